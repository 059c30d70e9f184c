"""`sink.check` on a streaming DataFrame: what the first batch would refuse is refused before the start."""

import pyspark.sql.functions as sf
import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import NUMBERED
from tests.integration.streams import finish
from yt_exactly_once.errors import ConfigError, ConsumerNotRegisteredError
from yt_exactly_once.ytsaurus import queues

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def flow(stream):
    """A query that copies a queue, read through a consumer."""
    made = stream(rows=10)
    assert made.consumer
    return made


def check(flow, frame, **options):
    """Check, and see that it has made nothing."""
    folder = flow.target.rpartition("/")[0]
    before = flow.client.list(folder)
    try:
        flow.sink(**options).check(frame)
    finally:
        assert flow.client.list(folder) == before


def test_queue_that_is_read_twice_with_one_consumer(flow):
    """A DataFrame that is used twice is one source; a self-join or a second load is two."""
    frame = flow.frame()
    check(flow, frame)
    check(flow, frame.where("id > 3").union(frame.where("id <= 3")))
    joined = frame.alias("a").join(frame.alias("b"), "id").select("a.*")
    for twice in (joined, frame.union(flow.frame())):
        with pytest.raises(ConfigError, match="twice with the same consumer") as found:
            check(flow, twice)
        assert found.value.where == {"queue": flow.queue.path, "consumer": flow.consumer}
    flow.consumer = ""
    with pytest.raises(ConfigError, match="twice without a consumer"):
        check(flow, flow.frame().union(flow.frame()))


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.dropDuplicates(["id"]),
        lambda frame: frame.groupBy(*frame.columns).count().drop("count"),
        lambda frame: frame.limit(5),
    ],
    ids=["deduplication", "aggregation", "limit"],
)
def test_idempotent_mode_of_a_query_that_keeps_state(flow, change):
    """Other modes take it."""
    with pytest.raises(ConfigError, match="this query keeps state"):
        check(flow, change(flow.frame()), mode="idempotent")
    check(flow, change(flow.frame()))


@pytest.mark.parametrize("folder", [False, True], ids=["nothing is set", "a folder for all is set"])
def test_query_that_names_no_checkpoint_is_refused(flow, spark, tmp_path, folder):
    """Spark lets a function go without: each start would be another query."""
    if folder:
        spark.conf.set(CHECKPOINTS, str(tmp_path / "all"))
    writer = flow.frame().writeStream.trigger(availableNow=True)
    try:
        with pytest.raises(StreamingQueryException, match="has no checkpointLocation"):
            finish(writer.foreachBatch(flow.sink()).start())
        flow.assert_untouched()
        if folder:
            finish(writer.foreachBatch(flow.sink()).queryName("orders").start())
            assert flow.wrong() == ""
    finally:
        spark.conf.unset(CHECKPOINTS)


def test_what_is_called_like_an_operator_is_none(flow):
    """Neither is the state of a batch query, which a function may give the sink."""
    frame = flow.frame().withColumnRenamed("name", "StateStoreSave")
    renamed = frame.withColumn("name", sf.col("StateStoreSave")).drop("StateStoreSave")
    check(flow, renamed, mode="idempotent")
    batch = flow.spark.createDataFrame([], flow.frame().schema)
    check(flow, batch.dropDuplicates(["id"]), mode="idempotent")


def test_idempotent_mode_of_a_shuffle(flow):
    """It gives rows that are numbered by their position another order."""
    with pytest.raises(ConfigError, match="this query has a shuffle"):
        check(flow, flow.frame().repartition(3), mode="idempotent")
    check(flow, flow.frame().repartition(3))


def test_idempotent_mode_of_a_shuffle_of_rows_that_carry_their_source(stream):
    """They may have any order, while they are of one queue alone."""
    flow = stream(NUMBERED, rows=10)
    frame, ticks = flow.frame(), flow.spark.readStream.format("rate").load()
    check(flow, frame.repartition(3), mode="idempotent")
    others = ticks.select(
        *(sf.lit(None).cast(one.dataType).alias(one.name) for one in frame.schema)
    )
    with pytest.raises(ConfigError, match="this query has a shuffle"):
        check(flow, frame.union(others).repartition(3), mode="idempotent")


def test_consumer_that_is_not_registered(flow, monkeypatch):
    """Unless the sink does not move it."""
    monkeypatch.setattr(queues, "_PAUSE_SECONDS", 0)
    frame = flow.frame()
    flow.client.unregister_queue_consumer(flow.queue.path, flow.consumer)
    with pytest.raises(ConsumerNotRegisteredError):
        check(flow, frame)
    check(flow, frame, advance_consumer=False)
