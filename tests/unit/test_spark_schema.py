"""Spark's types against Arrow's, without a JVM."""

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.testing.objects import ExamplePointUDT

from tests.kinds import decimal, dict_of, listed, optional, tuple_of, variant
from yt_exactly_once.codec.scalars import SCALARS
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.errors import SchemaMismatchError
from yt_exactly_once.spark.schema import arrow_of_spark, spark_schema_of

EVERY_TYPE = types.StructType(
    [
        types.StructField("flag", types.BooleanType(), nullable=False),
        types.StructField("tiny", types.ByteType()),
        types.StructField("short", types.ShortType()),
        types.StructField("int", types.IntegerType()),
        types.StructField("long", types.LongType()),
        types.StructField("float", types.FloatType()),
        types.StructField("double", types.DoubleType()),
        types.StructField("text", types.StringType()),
        types.StructField("bytes", types.BinaryType()),
        types.StructField("day", types.DateType()),
        types.StructField("instant", types.TimestampType()),
        types.StructField("span", types.DayTimeIntervalType()),
        types.StructField("money", types.DecimalType(20, 4)),
        types.StructField("nothing", types.NullType()),
        types.StructField("list", types.ArrayType(types.LongType(), containsNull=False)),
        types.StructField(
            "map",
            types.MapType(
                types.StringType(), types.ArrayType(types.DateType()), valueContainsNull=False
            ),
        ),
        types.StructField(
            "struct",
            types.StructType(
                [
                    types.StructField("a", types.LongType(), nullable=False),
                    types.StructField("b", types.DateType()),
                ]
            ),
        ),
    ]
)


def test_frame_schema_is_the_one_spark_hands_to_python():
    """Field by field the same as Spark's own conversion."""
    assert arrow_of_spark(EVERY_TYPE).equals(to_arrow_schema(EVERY_TYPE, timezone="UTC"))


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (types.CharType(5), pa.string()),
        (types.VarcharType(5), pa.string()),
        (ExamplePointUDT(), pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ],
)
def test_type_is_what_spark_hands_to_python(kind, arrow):
    """Texts with a length are strings, and types of users what they are stored as."""
    assert arrow_of_spark(types.StructType([types.StructField("c", kind)])).types == [arrow]


@pytest.mark.parametrize(
    ("foreign", "remedy"),
    [
        (types.TimestampNTZType(), "CAST(at AS TIMESTAMP_LTZ)"),
        (types.YearMonthIntervalType(), "Cast it in the query"),
        (types.CalendarIntervalType(), "Cast it in the query"),
        (types.VariantType(), "to_json(at)"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_spark_type_without_a_counterpart_is_refused(foreign, remedy, nested):
    """The column is named, with what to do, also deep inside."""
    kind = types.MapType(types.StringType(), types.ArrayType(foreign)) if nested else foreign
    with pytest.raises(SchemaMismatchError) as caught:
        arrow_of_spark(types.StructType([types.StructField("at", kind)]))
    assert caught.value.where == {"column": "at"}
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "empty",
    [
        types.ArrayType(types.NullType(), containsNull=False),
        types.MapType(types.NullType(), types.NullType(), valueContainsNull=False),
        types.ArrayType(types.ArrayType(types.NullType(), containsNull=False)),
    ],
    ids=["array()", "map()", "array(array())"],
)
def test_array_and_map_without_a_type_are_refused_with_a_cast(empty):
    """Spark's array() and map() have the type void inside, and no null: Arrow has no such type."""
    with pytest.raises(SchemaMismatchError, match=r"\[column=at\]. Give it one: CAST\(at AS ARRAY"):
        arrow_of_spark(types.StructType([types.StructField("at", empty)]))


COLUMNS = [
    {"name": name, "type_v3": name if name in ("null", "void") else optional(name)}
    for name in sorted(SCALARS)
] + [
    {"name": "required", "type_v3": "uint64"},
    {"name": "decimal", "type_v3": decimal(38, 10)},
    {"name": "list", "type_v3": listed(optional("uint8"))},
    {"name": "dict", "type_v3": dict_of("utf8", "timestamp")},
    {"name": "tuple", "type_v3": tuple_of("int8", "yson")},
    {"name": "variant", "type_v3": variant(a="interval")},
    {"name": "nested", "type_v3": optional(optional("date"))},
]  # fmt: skip


@pytest.mark.parametrize("binary_strings", [False, True])
def test_source_schema_is_the_one_its_batches_have(binary_strings):
    """Spark compares the two and would refuse the batches of a source otherwise."""
    table = TableSchema.from_yt(COLUMNS)
    arrow = arrow_schema_of(table, binary_strings=binary_strings)
    spark = spark_schema_of(arrow)
    assert to_arrow_schema(spark, timezone="UTC").equals(arrow)
    assert arrow_of_spark(spark).equals(arrow)


def test_unsigned_columns_are_read_into_the_next_wider_type():
    """Spark has no unsigned types; a uint64 needs a decimal of twenty digits."""
    spark = spark_schema_of(arrow_schema_of(TableSchema.from_yt(COLUMNS)))
    found = {name: spark[name].dataType.simpleString() for name in ("uint8", "uint16", "uint32")}
    assert found == {"uint8": "smallint", "uint16": "int", "uint32": "bigint"}
    assert spark["uint64"].dataType == types.DecimalType(20, 0)
    assert spark["uint64"].nullable
    assert not spark["required"].nullable


def test_decimal_too_wide_for_spark_is_refused():
    """Spark's decimals end at 38 digits."""
    table = TableSchema.from_yt([{"name": "big", "type_v3": decimal(39, 0)}])
    with pytest.raises(SchemaMismatchError, match="decimal256") as caught:
        spark_schema_of(arrow_schema_of(table))
    assert caught.value.where == {"column": "big"}
