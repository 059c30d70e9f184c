"""Which rows are of one Spark partition, and in which order they are: whatever plan computes them."""

import random

import pyarrow as pa
import pytest
import yt.yson
from pyspark.sql import functions as sf

from tests.model.tasks import encoder_of
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, check_frame, table_schema_for
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink import encode, frame_rows, sender
from yt_exactly_once.spark.sink.encode import encode_batches
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.versions import arrow_batches

ROWS = 2_000


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
    monkeypatch.setattr(sender, "LARGE", 1)
    target = f"{tmp}/target"
    schema = [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "text", "type": "string"},
        {"name": "version", "type": "int64"},
    ]
    client.create("table", target, attributes={"dynamic": True, "schema": schema})
    client.mount_table(target, sync=True)
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
    """In every lane the rows are in the order that Spark says they have, and no partition is in two lanes."""
    seen = []

    def recorded(job):
        batches = arrow_batches(job)
        seen.extend(number for batch in batches for number in batch.column(0).to_pylist())
        return batches

    monkeypatch.setattr(frame_rows, "arrow_batches", recorded)
    monkeypatch.setattr(encode, "SMALL_BATCH", 100)
    choose = random.Random(seed)
    frame = _plan(spark, arrow, choose, choose.randint(0, 3))
    schema = arrow_of_spark(frame.schema)
    plan = check_frame(
        schema, TableSchema.from_yt(table_schema_for(schema)), target="//t", sorted=False
    )
    size = choose.choice([150, 10_000])
    encoder = encoder_of(plan, WireFormat.YSON, Placement(None), request_size=size)
    rows = frame_rows.collected(frame, needs_partitions=True)
    encode_batches(rows, encoder)
    place = {number: place for place, number in enumerate(seen)}
    count = 0
    for payloads in encoder.lanes.values():
        found = [
            place[row["id"]]
            for payload in payloads
            for row in yt.yson.loads(payload.data, yson_type="list_fragment")
        ]
        assert found == sorted(found)
        count += len(found)
    assert count == len(place) == len(seen)
    spark.catalog.clearCache()
