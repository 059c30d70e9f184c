"""Frames as payloads: which rows are of one Spark partition, in which order, and with which values."""

import random
from collections import defaultdict
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pytest
import yt.yson
from pyspark.sql import functions as sf

from tests.flows import columns, create_table
from tests.model.tasks import encoder_of
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, check_frame, table_schema_for
from yt_exactly_once.delivery import route
from yt_exactly_once.spark.compat.versions import arrow_batches
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink import encode
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.encode import encode_batches
from yt_exactly_once.spark.sink.placement import Placement

ROWS = 2_000
TIME_ZONE = "spark.sql.session.timeZone"
BY_KEY = Placement(None)
"""A sorted table: keys choose the tablets."""


def encoded(frame, *, size=1000, placement=BY_KEY):
    """Encode for a table of the frame's own columns; return the encoder, with all groups."""
    schema = arrow_of_spark(frame.schema)
    table = TableSchema.from_yt(table_schema_for(schema))
    plan = check_frame(schema, table, target="//t", sorted=False)
    encoder = encoder_of(plan, WireFormat.YSON, placement, dyn_batch_size=size)
    needed = placement.tablet_count != 1
    arrived = frame_rows.collected(placement.placed(frame), needs_partitions=needed)
    encode_batches(arrived, encoder, is_placed=needed)
    return encoder


@pytest.fixture
def arrow(spark):
    """What PySpark makes of a pandas DataFrame or an Arrow table: rows that the driver has."""
    name = "spark.sql.leafNodeDefaultParallelism"
    spark.conf.set(name, "8")

    def make(count, first=0):
        # The first of eight tasks has the most to do, and ends after others.
        texts = ["x" * (20_000 if number < count // 8 else 1) for number in range(count)]
        numbers = pa.array(range(first, first + count), pa.int64())
        return spark.createDataFrame(pa.table({"id": numbers, "text": texts}))

    yield make
    spark.conf.unset(name)


def test_newest_change_of_a_key_counts_when_a_function_goes_through_pandas(
    spark, cluster, client, tmp, tmp_path, arrow, monkeypatch
):
    """Spark gives all rows the partition 0 before it has tasks, and two tasks compute them.

    These tasks do not send the rows, however many there are.
    """
    monkeypatch.setattr(route, "LARGE", 1)
    schema = columns({"id": "int64?", "text": "string?", "version": "int64?"}, ["id"])
    target = create_table(client, f"{tmp}/target", schema)
    sink = TransactionalSink(
        target, proxy=cluster.proxy_urls[0], ledger_path=f"{tmp}/ledger", connections=1
    )

    def write(_, batch_id):
        changes = arrow(ROWS).withColumn("version", sf.col("id") + batch_id * ROWS)
        sink(changes.withColumn("id", sf.col("id") % 500), batch_id)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while query.isActive and len(query.recentProgress) < 4:
            query.awaitTermination(0.1)
    finally:
        query.stop()
    assert query.exception() is None
    last = int(next(client.select_rows(f"max(version) as last from [{target}] group by 1"))["last"])
    found = {row["id"]: row["version"] for row in client.select_rows(f"* from [{target}]")}
    assert found == {key: last - (last - key) % 500 for key in range(500)}


def _leaf(spark, arrow, choose, first):
    """Return rows with ids from a number on, in their order."""
    count = choose.choice([1, 40, ROWS])
    ids = spark.range(first, first + count, numPartitions=choose.randint(1, 4))
    text = sf.repeat(sf.lit("x"), 1 + 1_000 * (sf.col("id") % 3 == 0).cast("int"))
    match choose.randrange(5):
        case 0 | 1:
            return arrow(count, first)
        case 2:
            return ids.withColumn("text", text)
        case 3:
            return arrow(count, first).cache()
        case _:
            values = ", ".join(
                f"({number}L, 'x')" for number in range(first, first + min(count, 40))
            )
            return spark.sql(f"select * from values {values} as t(id, text)")


OPERATORS = [
    lambda below, choose: below.coalesce(choose.randint(1, 3)),
    lambda below, choose: below.repartition(choose.randint(1, 3), "id"),
    lambda below, _: below.sort(sf.desc("id")),
    lambda below, choose: below.limit(choose.choice([1, 30, 1_500])),
    lambda below, _: below.where(sf.col("id") % 7 > 0),
    lambda below, _: below.withColumn("text", sf.concat("text", sf.lit("y"))),
    lambda below, _: below.join(sf.broadcast(below.limit(7).select("id")), "id"),
    lambda below, _: below.dropDuplicates(["id"]),
    lambda below, _: below.groupBy("id").agg(sf.max("text").alias("text")),
    lambda below, _: below.mapInArrow(lambda batches: batches, "id bigint, text string"),
    lambda below, _: below.withColumn("n", sf.monotonically_increasing_id()).drop("n"),
]


def _plan(spark, arrow, choose, depth, first=0):
    """Return a DataFrame of random operators, whose rows have different ids."""
    if depth == 0:
        return _leaf(spark, arrow, choose, first)
    below = _plan(spark, arrow, choose, depth - 1, first)
    operator = choose.choice([*OPERATORS, None])
    if operator is not None:
        return operator(below, choose)
    return below.union(_plan(spark, arrow, choose, depth - 1, first + 10_000 * 2**depth))


@pytest.mark.further
@pytest.mark.parametrize("seed", first_of(range(60), count=8))
def test_order_holds_in_every_plan(spark, arrow, monkeypatch, seed):
    """Rows of a group are in the order that Spark says they have, and no partition is in two groups."""
    seen = []

    def recorded(job):
        batches = arrow_batches(job)
        seen.extend(number for batch in batches for number in batch.column(0).to_pylist())
        return batches

    monkeypatch.setattr(frame_rows, "arrow_batches", recorded)
    monkeypatch.setattr(encode, "SMALL_BATCH", 100)
    choose = random.Random(seed)
    frame = _plan(spark, arrow, choose, choose.randint(0, 3))
    encoder = encoded(frame, size=choose.choice([150, 10_000]))
    place = {number: place for place, number in enumerate(seen)}
    count = 0
    for payloads in encoder.groups.values():
        found = [
            place[row["id"]]
            for payload in payloads
            for row in yt.yson.loads(payload.data, yson_type="list_fragment")
        ]
        assert found == sorted(found)
        count += len(found)
    assert count == len(place) == len(seen)
    spark.catalog.clearCache()


class Chunk(NamedTuple):
    """A payload and the group it is in: its lowest tablet, or Spark partition where keys choose."""

    group: int
    row_count: int
    data: bytes


def payloads(frame, **options):
    encoder = encoded(frame, **options)
    chunks = [
        Chunk(group, payload.row_count, payload.data)
        for group, group_payloads in encoder.groups.items()
        for payload in group_payloads
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
    for batch in frame_rows.collected(frame, needs_partitions=True, by_ends=True):
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


def test_columns_whose_names_differ_in_case_place_rows(spark):
    """Each by its own values."""
    frame = spark.range(0, 9, 1, 1).selectExpr("id as a", "7 as A")
    tablets = {}
    for name in ("a", "A"):
        rows = [
            row
            for chunk in payloads(frame, placement=Placement(3, (name,)))
            for row in rows_of(chunk)
        ]
        assert sorted((row[b"a"], row[b"A"]) for row in rows) == [
            (number, 7) for number in range(9)
        ]
        tablets[name] = {row[b"$tablet_index"] for row in rows}
    assert (len(tablets["a"]), len(tablets["A"])) == (3, 1)


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


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_time_zone_of_the_session_has_no_part_in_values(spark, zone, request):
    """Values of every type pass in `test_round_trip.py`."""
    request.addfinalizer(partial(spark.conf.set, TIME_ZONE, spark.conf.get(TIME_ZONE)))
    spark.conf.set(TIME_ZONE, zone)
    frame = spark.range(0, 1, 1, 1).selectExpr(
        "date_add(date'1969-12-31', 0) as day",
        "timestamp_micros(id - 1) as instant",
        "interval '1' second * id as span",
    )
    (chunk,) = payloads(frame)
    assert rows_of(chunk) == [{b"day": -1, b"instant": -1, b"span": 0}]


def test_both_zeros_are_placed_alike(spark):
    """Values that are equal go to one tablet, and bits do not count; also inside a struct."""
    frame = spark.range(0, 40, 1, 1).selectExpr("cast(if(id % 2 = 0, -0.0D, 0.0D) as double) as d")
    frame = frame.selectExpr("d", "cast(d as float) as f", "named_struct('d', d) as s")
    for rule in (("d",), ("f",), ("s",), ("s", "f", "d")):
        chunks = payloads(frame, placement=Placement(7, rule), size=10)
        assert len({chunk.group for chunk in chunks}) == 1
