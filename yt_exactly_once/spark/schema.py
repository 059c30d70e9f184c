"""The schema of a source's DataFrame, and of a sink's; the pairs of types are in `codec.spark_types`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
)

from yt_exactly_once.codec import spark_types

if TYPE_CHECKING:
    import pyarrow as pa


def spark_schema_of(arrow: pa.Schema) -> StructType:
    """Return a DataFrame's schema for such batches; raise `SchemaMismatchError` if a decimal is too wide."""
    return StructType.fromJson(spark_types.document_from(arrow))


def arrow_of_spark(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a DataFrame; raise `SchemaMismatchError` if YTsaurus lacks a type."""
    return spark_types.arrow_schema_from(schema.jsonValue())


def as_written(schema: StructType) -> StructType:
    """Return the columns with what is written in place of local times and variants, see `codec`.

    Spark casts a local time by the time zone of the session; `to_json` makes a variant a text.
    """
    document = schema.jsonValue()
    written = spark_types.as_written(document)
    return schema if written == document else StructType.fromJson(written)


def is_variant(kind: DataType) -> bool:
    """Return whether values have any shape; PySpark 3.5 has no such type."""
    return kind.typeName() == spark_types.VARIANT


def local_times_of(schema: StructType) -> list[str]:
    """Return the names of the columns that are local times."""
    return [field.name for field in schema if isinstance(field.dataType, TimestampNTZType)]


def with_nullable_members(kind: DataType) -> DataType:
    """Return a type whose structs, at any depth, may have nulls for members.

    Where a struct is null, Arrow has nulls in place of its members too. PySpark's `toArrow` refuses such
    nulls if a member must not be null.
    """
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(field.name, with_nullable_members(field.dataType), nullable=True)
                for field in kind
            ]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(with_nullable_members(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        key, value = with_nullable_members(kind.keyType), with_nullable_members(kind.valueType)
        return MapType(key, value, kind.valueContainsNull)
    return kind
