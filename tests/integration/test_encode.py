"""Frames as payloads, from real Spark tasks."""

from collections import defaultdict
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
import yt.yson

from tests.model.tasks import encoder_of
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, check_frame, table_schema_for
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.encode import PARTITION_COLUMN, encode_batches
from yt_exactly_once.spark.sink.frame_rows import collected
from yt_exactly_once.spark.sink.placement import Placement

TIME_ZONE = "spark.sql.session.timeZone"


BY_KEY = Placement(None)
"""A sorted table: keys choose the tablets."""


class Chunk(NamedTuple):
    """A payload and the lane it is in: its lowest tablet, or Spark partition where keys choose."""

    lane: int
    row_count: int
    data: bytes


def payloads(frame, *, size=1000, placement=BY_KEY):
    """Encode for a table of the frame's own columns."""
    schema = arrow_of_spark(frame.schema)
    table = TableSchema.from_yt(table_schema_for(schema))
    plan = check_frame(schema, table, target="//t", sorted=False)
    encoder = encoder_of(plan, WireFormat.YSON, placement, request_size=size)
    needed = placement.tablet_count != 1
    arrived = collected(placement.placed(frame), needs_partitions=needed)
    encode_batches(arrived, encoder, is_placed=needed)
    chunks = [
        Chunk(lane, payload.row_count, payload.data)
        for lane, lane_payloads in encoder.lanes.items()
        for payload in lane_payloads
    ]
    assert sum(chunk.row_count for chunk in chunks) == sum(encoder.rows_by_tablet.values())
    return chunks


def rows_of(chunk):
    return list(
        yt.yson.loads(
            chunk.data, yson_type="list_fragment", encoding=None, always_create_attributes=False
        )
    )


@pytest.mark.parametrize(
    ("batch_rows", "expected"),
    [(7, [{0}, {1, 3}, {4}]), (0, [{0}, {1}, {3}, {4}]), (100, [{0}, {1}, {3}, {4}])],
)
def test_arrow_batches_end_where_a_spark_partition_ends(spark, arrow_rows, batch_rows, expected):
    """Partition 2 has no rows, and 1 has 14: two full batches, after which it might go on."""
    arrow_rows(batch_rows)
    frame = (
        spark.range(0, 100, 1, 5)
        .withColumn("at", sf.spark_partition_id())
        .where("at != 2 and (at != 1 or id % 20 < 14)")
    )
    found = defaultdict(set)
    ids = []
    for batch in collected(frame, needs_partitions=True, ends_tell=True):
        ids += batch["id"].to_pylist()
        for row in batch.to_pylist():
            found[row[PARTITION_COLUMN]].add(row["at"])
    assert [found[number] for number in sorted(found)] == expected
    assert ids == sorted(ids)
    assert len(ids) == 74


def test_struct_that_is_null_may_have_members_that_must_not_be(spark):
    """Wherever it stands; PySpark's own way to Arrow refuses such rows."""
    frame = spark.range(2).selectExpr(
        "id",
        "if(id = 0, named_struct('x', 1), null) as `one.two`",
        "array(if(id = 0, null, named_struct('x', named_struct('y', 2)))) as deep",
    )
    with pytest.raises(pa.ArrowInvalid, match="cannot be viewed as non-nullable"):
        frame.toArrow()
    (chunk,) = payloads(frame)
    rows = [(row[b"one.two"], row[b"deep"]) for row in rows_of(chunk)]
    assert rows == [({b"x": 1}, [None]), (None, [{b"x": {b"y": 2}}])]


def test_columns_whose_names_differ_in_case_are_told_apart(spark):
    """YTsaurus does, and Spark does not; also where a column must be loosened on its way."""
    frame = spark.range(1).selectExpr("named_struct('x', id) as a", "7 as A", "id as `b.c`")
    (chunk,) = payloads(frame)
    assert rows_of(chunk) == [{b"a": {b"x": 0}, b"A": 7, b"b.c": 0}]


def test_rows_go_to_their_tablets_in_order(spark):
    """Tablets with few rows share a payload; the rows of a partition keep their order in each."""
    for rule in ("round_robin", ("id",), ("in`3", "id")):
        frame = spark.range(0, 900, 1, 3).selectExpr("id", "id % 3 as `in``3`")
        chunks = payloads(frame, placement=Placement(4, rule), size=200)
        found = {}
        for chunk in chunks:
            for row in rows_of(chunk):
                place = row[b"id"] // 300, row[b"$tablet_index"]
                found.setdefault(place, []).append(row[b"id"])
        assert sorted(one for ids in found.values() for one in ids) == list(range(900))
        assert all(ids == sorted(ids) for ids in found.values())
        assert {tablet for _, tablet in found} == {0, 1, 2, 3}
        if rule == "round_robin":
            assert {len(ids) for ids in found.values()} == {75}


def test_columns_with_odd_names_keep_them(spark):
    """Dots, backticks and spaces are part of a column's name, not a path."""
    frame = spark.range(0, 2, 1, 1).toDF("a.b").selectExpr("`a.b`", "`a.b` * 10 as `c ``d`")
    (chunk,) = payloads(frame)
    assert rows_of(chunk) == [{b"a.b": 0, b"c `d": 0}, {b"a.b": 1, b"c `d": 10}]


EVERY_KIND = [
    "cast(id as tinyint) as tiny",
    "cast(id as float) as float",
    "id % 2 = 0 as flag",
    "cast(id as string) as text",
    "cast(cast(id as string) as binary) as bytes",
    "date_add(date'1969-12-31', cast(id as int)) as day",
    "timestamp_micros(id - 1) as instant",
    "interval '1' second * id as span",
    "cast(id as decimal(10, 2)) as money",
    "if(id = 1, null, id) as nullable",
    "array(id, null) as list",
    "map('k', id) as map",
    "named_struct('a', id, 'b', nullif(id, 0)) as struct",
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_of_every_kind_arrive_exactly(spark, zone, request):
    """The session's time zone has no part in it."""
    request.addfinalizer(partial(spark.conf.set, TIME_ZONE, spark.conf.get(TIME_ZONE)))
    spark.conf.set(TIME_ZONE, zone)
    (chunk,) = payloads(spark.range(0, 2, 1, 1).selectExpr(*EVERY_KIND))
    first, second = rows_of(chunk)
    assert first == {
        b"tiny": 0,
        b"float": 0.0,
        b"flag": True,
        b"text": b"0",
        b"bytes": b"0",
        b"day": -1,
        b"instant": -1,
        b"span": 0,
        b"money": b"\x80" + bytes(7),
        b"nullable": 0,
        b"list": [0, None],
        b"map": [[b"k", 0]],
        b"struct": {b"a": 0, b"b": None},
    }
    assert second[b"nullable"] is None
    assert second[b"span"] == 1_000_000
    assert second[b"money"] == b"\x80" + bytes(6) + b"\x64"


def test_both_zeros_are_placed_alike(spark):
    """Values that are equal go to one tablet, and bits do not count; also inside a struct."""
    frame = spark.range(0, 40, 1, 1).selectExpr("cast(if(id % 2 = 0, -0.0D, 0.0D) as double) as d")
    frame = frame.selectExpr("d", "cast(d as float) as f", "named_struct('d', d) as s")
    for rule in (("d",), ("f",), ("s",), ("s", "f", "d")):
        chunks = payloads(frame, placement=Placement(7, rule), size=10)
        assert len({chunk.lane for chunk in chunks}) == 1
