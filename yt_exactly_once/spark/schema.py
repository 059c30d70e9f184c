"""Spark's types and Arrow's: the schema of a source's DataFrame, and of a sink's.

Only types are looked at. Which of them fit a table's columns is decided in `codec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
)

from yt_exactly_once.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import Column

_TO_ARROW: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    CharType: pa.string(),
    VarcharType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    DayTimeIntervalType: pa.duration("us"),
    NullType: pa.null(),
}

_TO_SPARK: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.duration("us"): DayTimeIntervalType(),
    pa.null(): NullType(),
}

_REMEDIES: dict[type[DataType], str] = {
    TimestampNTZType: "Cast it: CAST({x} AS TIMESTAMP); a local time alone names no instant",
}
_REMEDY = "Cast it in the query to a number, a string or a timestamp, or drop it"


def spark_schema_of(arrow: pa.Schema) -> StructType:
    """Return the schema of a DataFrame whose batches have that Arrow schema.

    Raises:
        SchemaMismatchError: a decimal has more digits than Spark's decimals can have.
    """
    return StructType([_spark_field(field, field.name) for field in arrow])


def arrow_of_spark(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark passes such a DataFrame to Python.

    Raises:
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
    """
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def _spark_field(field: pa.Field, column: str) -> StructField:
    return StructField(field.name, _spark_type(field.type, column), field.nullable)


def _spark_type(arrow: pa.DataType, column: str) -> DataType:
    if arrow in _TO_SPARK:
        return _TO_SPARK[arrow]
    if pa.types.is_decimal128(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_map(arrow):
        value = _spark_type(arrow.item_type, column)
        return MapType(_spark_type(arrow.key_type, column), value, arrow.item_field.nullable)
    if pa.types.is_list(arrow):
        return ArrayType(_spark_type(arrow.value_type, column), arrow.value_field.nullable)
    if pa.types.is_struct(arrow):
        return StructType([_spark_field(field, column) for field in arrow])
    raise SchemaMismatchError(
        f"Spark has no type that holds {arrow}",
        remedy="Read a copy of the table with a narrower column",
        column=column,
    )


def _arrow_field(field: StructField, column: str) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.dataType, column), nullable=field.nullable)


def _arrow_type(spark: DataType, column: str) -> pa.DataType:
    if type(spark) in _TO_ARROW:
        return _TO_ARROW[type(spark)]
    match spark:
        case DecimalType():
            return pa.decimal128(spark.precision, spark.scale)
        case ArrayType():
            element = _arrow_type(spark.elementType, column)
            return pa.list_(pa.field("element", element, nullable=spark.containsNull))
        case MapType():
            key = pa.field("key", _arrow_type(spark.keyType, column), nullable=False)
            value = _arrow_type(spark.valueType, column)
            return pa.map_(key, pa.field("value", value, nullable=spark.valueContainsNull))
        case StructType():
            return pa.struct([_arrow_field(field, column) for field in spark.fields])
        case UserDefinedType():
            return _arrow_type(spark.sqlType(), column)
        case _:
            raise SchemaMismatchError(
                f"No column type of YTsaurus holds {spark.simpleString()}",
                remedy=_REMEDIES.get(type(spark), _REMEDY).replace("{x}", column),
                column=column,
            )


def named_column(name: str) -> Column:
    """Return a column of a DataFrame; Spark takes a dot in a bare name for a path into a struct."""
    escaped = name.replace("`", "``")
    return sf.col(f"`{escaped}`")


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
