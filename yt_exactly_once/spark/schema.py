"""The schema of a source's DataFrame, and of a sink's; the pairs of types are in `codec.spark_types`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from yt_exactly_once.codec.spark_types import arrow_schema_from, document_from, with_instants

if TYPE_CHECKING:
    import pyarrow as pa


def spark_schema_of(arrow: pa.Schema) -> StructType:
    """Return a DataFrame's schema for such batches; raise `SchemaMismatchError` if a decimal is too wide."""
    return StructType.fromJson(document_from(arrow))


def arrow_of_spark(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a DataFrame; raise `SchemaMismatchError` if YTsaurus lacks a type."""
    return arrow_schema_from(schema.jsonValue())


def kinds_with_instants(schema: StructType) -> list[DataType]:
    """Return the types of the columns, with instants in place of local times.

    Spark casts the one to the other by the time zone of the session.
    """
    document = schema.jsonValue()
    loose = with_instants(document)
    changed = schema if loose == document else StructType.fromJson(loose)
    return [field.dataType for field in changed]


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
