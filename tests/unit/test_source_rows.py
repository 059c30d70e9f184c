"""From a pull to what Spark expects: columns, types, service columns and row indexes."""

import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType
from yt import yson

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.source_options import SourceOptions, StartingPoint
from yt_exactly_once.spark.source_rows import RowFormat

TABLET, ROW = "__spyt_streaming_src_tablet_index", "__spyt_streaming_src_row_index"

COLUMNS = [
    {"name": "id", "type": "int64", "required": True, "type_v3": "int64"},
    {"name": "name", "type": "string", "type_v3": {"type_name": "optional", "item": "string"}},
]
EVERY_TYPE = [
    *({"name": name, "type_v3": name} for name in ("int8", "int16", "int32", "int64")),
    *({"name": name, "type_v3": name} for name in ("uint8", "uint16", "uint32", "uint64")),
    *({"name": name, "type_v3": name} for name in ("float", "double", "bool", "string", "utf8")),
    *({"name": name, "type_v3": name} for name in ("date", "datetime", "timestamp", "interval")),
    {"name": "any", "type": "any", "required": False},
    {"name": "decimal", "type_v3": {"type_name": "decimal", "precision": 12, "scale": 3}},
    {
        "name": "list",
        "type_v3": {"type_name": "list", "item": {"type_name": "optional", "item": "int64"}},
    },
    {"name": "dict", "type_v3": {"type_name": "dict", "key": "utf8", "value": "int64"}},
    {
        "name": "struct",
        "type_v3": {
            "type_name": "struct",
            "members": [
                {"name": "required", "type": "int64"},
                {"name": "nullable", "type": {"type_name": "optional", "item": "utf8"}},
            ],
        },
    },
]


def row_format(columns=COLUMNS, **options):
    parsed = SourceOptions(
        queue="//home/app/queue",
        consumer=None,
        cluster=ClusterConfig(proxy="localhost:80"),
        starting_offsets=StartingPoint.EARLIEST,
        **options,
    )
    return RowFormat(columns, parsed)


def pulled(*rows):
    return yson.dumps(list(rows), yson_type="list_fragment", yson_format="binary")


def row(index, tablet=0, **values):
    return {"$tablet_index": tablet, "$row_index": index, **values}


def test_rows_come_with_their_indexes_and_without_service_columns():
    """The indexes are for the reader, not for the query."""
    indexes, rows = row_format().decode(pulled(row(5, id=1, name="a"), row(6, id=2, name=None)))
    assert indexes == [5, 6]
    assert rows.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_empty_pull_has_no_rows():
    """And no indexes."""
    indexes, rows = row_format().decode(b"")
    assert (indexes, rows.num_rows) == ([], 0)


def test_service_columns_follow_the_others():
    """With the types the sink and SPYT's tables expect."""
    made = row_format(include_service_columns=True)
    assert made.spark_schema.names == ["id", "name", TABLET, ROW]
    assert made.spark_schema[TABLET].dataType == IntegerType()
    assert made.spark_schema[ROW].dataType == LongType()
    _, rows = made.decode(pulled(row(5, tablet=3, id=1, name="a")))
    assert rows.to_pylist() == [{"id": 1, "name": "a", TABLET: 3, ROW: 5}]


@pytest.mark.parametrize("include_service_columns", [True, False])
@pytest.mark.parametrize("binary_strings", [True, False])
def test_every_type_is_decoded_into_what_spark_was_told(include_service_columns, binary_strings):
    """Spark refuses a batch whose Arrow schema differs in a type or in a nullable field."""
    made = row_format(
        EVERY_TYPE,
        include_service_columns=include_service_columns,
        binary_strings=binary_strings,
    )
    _, rows = made.decode(b"")
    assert rows.schema.equals(to_arrow_schema(made.spark_schema, timezone="UTC"))


def test_older_types_are_used_when_type_v3_is_off():
    """A list is then `any`."""
    listed = {"name": "items", "type": "any", "type_v3": {"type_name": "list", "item": "int64"}}
    assert row_format([listed]).spark_schema["items"].dataType.simpleString() == "array<bigint>"
    older = row_format([listed], parsing_type_v3=False)
    assert older.spark_schema["items"].dataType.simpleString() == "binary"


def test_weight_is_that_of_the_first_row():
    """Whatever else the row holds."""
    columns = [*COLUMNS, {"name": "$cumulative_data_weight", "type": "int64"}]
    made = row_format(columns, max_bytes_per_partition=10)
    rows = (row(n, id=n, name=None, **{"$cumulative_data_weight": 100 + n}) for n in (5, 6))
    assert made.weight(pulled(*rows)) == 105
    assert made.weight(b"") is None


def test_limit_by_bytes_needs_the_weight_column():
    """The error names the column and the other option."""
    with pytest.raises(ConfigError, match=r"\$cumulative_data_weight.*max_rows_per_partition"):
        row_format(max_bytes_per_partition=10)


def test_format_travels_to_tasks():
    """Spark pickles it with the reader."""
    made = pickle.loads(pickle.dumps(row_format()))
    assert made.decode(pulled(row(5, id=1, name="a")))[0] == [5]
