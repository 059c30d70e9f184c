"""From a pull to what Spark expects: columns, types, service columns and row indexes."""

import datetime as dt
import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, TimestampType
from yt import yson

from tests.kinds import listed, optional
from tests.unit.test_spark_schema import COLUMNS as EVERY_TYPE
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.source.options import SourceOptions, StartingPoint
from yt_exactly_once.spark.source.rows import RowFormat

TABLET, ROW = "__spyt_streaming_src_tablet_index", "__spyt_streaming_src_row_index"
QUEUE, STAMP = "__spyt_streaming_src_queue_path", "__spyt_streaming_src_timestamp"

COLUMNS = [
    {"name": "id", "type": "int64", "required": True, "type_v3": "int64"},
    {"name": "name", "type": "string", "type_v3": optional("string")},
]


def row_format(columns=COLUMNS, **options):
    parsed = SourceOptions(
        path="//home/app/queue",
        proxy="localhost:80",
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
    _, indexes, rows = row_format().decode(pulled(row(5, id=1, name="a"), row(6, id=2, name=None)))
    assert indexes.tolist() == [5, 6]
    assert rows.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_row_that_is_no_text_comes_with_all_others():
    """Its bytes pass in its column alone: what may take them is for the target to say."""
    named = [row(n, id=n, name=name) for n, name in enumerate(["a", b"\xff", "é"])]
    _, indexes, rows = row_format().decode(pulled(*named))
    assert indexes.tolist() == [0, 1, 2]
    assert rows.column("name").cast("binary").to_pylist() == [b"a", b"\xff", "é".encode()]


def test_some_columns_are_bytes_and_the_others_text():
    """One column that is no text does not turn all others into bytes."""
    columns = [*COLUMNS, {"name": "raw", "type": "string", "type_v3": optional("string")}]
    found = row_format(columns, binary_strings=("raw",))
    assert found.spark_schema.simpleString() == "struct<id:bigint,name:string,raw:binary>"
    _, _, rows = found.decode(pulled(row(0, id=1, name="a", raw=b"\xff")))
    assert rows.to_pylist() == [{"id": 1, "name": "a", "raw": b"\xff"}]
    with pytest.raises(ConfigError, match=r"names nmae.*Choose from: id, name, raw"):
        row_format(columns, binary_strings=("nmae",))


def test_empty_pull_has_no_rows():
    """And no indexes."""
    _, indexes, rows = row_format().decode(b"")
    assert (indexes.tolist(), rows.num_rows) == ([], 0)


@pytest.mark.parametrize("end", [b"", b";"])
def test_pulls_are_decoded_together(end):
    """In their order, whether a fragment ends with a semicolon or not; one may be empty."""
    parts = [pulled(row(5, tablet=n, id=n, name="a")).rstrip(b";") + end for n in (2, 0)]
    partitions, indexes, rows = row_format().decode(parts[0], b"", parts[1])
    assert (partitions.tolist(), indexes.tolist()) == ([2, 0], [5, 5])
    assert rows.column("id").to_pylist() == [2, 0]


def test_service_columns_come_first():
    """In the order and with the types that SPYT gives them."""
    made = row_format(include_service_columns=True)
    assert made.spark_schema.names == [TABLET, ROW, "id", "name"]
    assert {made.spark_schema[name].dataType for name in (TABLET, ROW)} == {LongType()}
    _, _, rows = made.decode(pulled(row(5, tablet=3, id=1, name="a")))
    assert rows.to_pylist() == [{"id": 1, "name": "a", TABLET: 3, ROW: 5}]


@pytest.mark.parametrize("include_service_columns", [True, False])
@pytest.mark.parametrize("binary_strings", [True, False])
def test_every_type_is_decoded_into_what_spark_was_told(include_service_columns, binary_strings):
    """Spark refuses a batch whose Arrow schema differs in a type or in a nullable field."""
    made = row_format(
        EVERY_TYPE, include_service_columns=include_service_columns, binary_strings=binary_strings
    )
    _, _, rows = made.decode(b"")
    assert rows.schema.equals(to_arrow_schema(made.spark_schema, timezone="UTC"))


def test_older_types_are_used_when_type_v3_is_off():
    """A list is then `any`."""
    items = {"name": "items", "type": "any", "type_v3": listed("int64")}
    assert row_format([items]).spark_schema["items"].dataType.simpleString() == "array<bigint>"
    older = row_format([items], parsing_type_v3=False)
    assert older.spark_schema["items"].dataType.simpleString() == "binary"


def test_weight_is_that_of_the_first_row():
    """Whatever else the row holds."""
    columns = [*COLUMNS, {"name": "$cumulative_data_weight", "type": "int64"}]
    made = row_format(columns, max_bytes_per_partition=10)
    rows = (row(n, id=n, name=None, **{"$cumulative_data_weight": 100 + n}) for n in (5, 6))
    assert made.weight(pulled(*rows)) == 105
    assert made.weight(b"") is None


def test_rows_older_than_the_weight_column_are_refused_in_words():
    """They have no weight, and nobody can tell how many fit into the limit."""
    columns = [*COLUMNS, {"name": "$cumulative_data_weight", "type": "int64"}]
    made = row_format(columns, max_bytes_per_partition=10)
    payload = pulled(row(5, id=5, name=None, **{"$cumulative_data_weight": None}))
    with pytest.raises(ConfigError, match="Use max_rows_per_partition until"):
        made.weight(payload)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"max_bytes_per_partition": 10}, r"needs the column \$cumulative_data_weight"),
        ({"include_timestamp": True}, r"include_timestamp needs the column \$timestamp"),
    ],
)
def test_option_needs_a_column_of_the_queue(option, told):
    """The error names both."""
    with pytest.raises(ConfigError, match=told):
        row_format(**option)


STAMPED = [*COLUMNS, {"name": "$timestamp", "type": "uint64"}]


def test_queue_path_tells_the_rows_of_several_queues_apart():
    """Every row carries it, behind the coordinates."""
    made = row_format(include_service_columns=True, include_queue_path=True)
    assert made.spark_schema.names == [TABLET, ROW, QUEUE, "id", "name"]
    assert made.spark_schema[QUEUE].dataType == StringType()
    _, _, rows = made.decode(pulled(row(5, id=1, name="a"), row(6, id=2, name="b")))
    assert rows.column(QUEUE).to_pylist() == ["//home/app/queue"] * 2


def test_timestamp_is_when_the_row_was_committed():
    """The cluster counts seconds, and below them the transactions of one second."""
    made = row_format(STAMPED, include_timestamp=True)
    assert made.spark_schema.names == [STAMP, "id", "name", "$timestamp"]
    assert made.spark_schema[STAMP].dataType == TimestampType()
    stamp = (1_700_000_000 << 30) + 17
    _, _, rows = made.decode(
        pulled(row(5, id=1, name="a", **{"$timestamp": yson.YsonUint64(stamp)}))
    )
    assert rows.schema.equals(to_arrow_schema(made.spark_schema, timezone="UTC"))
    (found,) = rows.to_pylist()
    assert found[STAMP] == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert found["$timestamp"] == stamp


def test_queue_may_hold_service_columns_of_its_own():
    """It was written by a query that kept them: they are columns like others."""
    columns = [{"name": TABLET, "type_v3": "int64"}, {"name": ROW, "type_v3": "int64"}]
    _, indexes, rows = row_format(columns).decode(pulled(row(5, tablet=2, **{TABLET: 7, ROW: 70})))
    assert (indexes.tolist(), rows.to_pylist()) == ([5], [{TABLET: 7, ROW: 70}])
    with pytest.raises(ConfigError, match=f"adds the column {TABLET}, and the queue has one"):
        row_format(columns, include_service_columns=True)


def test_format_travels_to_tasks():
    """Spark pickles it with the reader."""
    made = pickle.loads(pickle.dumps(row_format()))
    assert made.decode(pulled(row(5, id=1, name="a")))[1] == [5]
