"""Batches that Spark replays: found in the ledger, skipped, and the state of the query built again."""

import pytest

from tests.flows import AGGREGATION, DEDUP, QUERIES, STATELESS, WINDOWED
from tests.tiers import NIGHTLY, first_of
from yt_exactly_once import Event
from yt_exactly_once.spark.compat.versions import SPARK

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

KINDS = [(STATELESS, False), (AGGREGATION, True), (DEDUP, False), (WINDOWED, True)]
# The first two are killed, not just broken off, by the crash tests.
BROKEN_OFF = KINDS[2:]
if NIGHTLY:
    KINDS = BROKEN_OFF = [
        (kind, is_sorted) for kind in QUERIES.values() for is_sorted in (False, True)
    ]


@pytest.fixture
def rocks(spark):
    """The state store that Spark can repartition."""
    spark.conf.set(PROVIDER, ROCKS)
    yield
    spark.conf.unset(PROVIDER)


def named(kind):
    query, is_sorted = kind
    return f"{query.name}-{'sorted' if is_sorted else 'ordered'}"


@pytest.mark.parametrize("kind", first_of([(kind,) for kind in KINDS], count=2), ids=named)
def test_batch_without_its_commit_log_entry_is_replayed_without_effect(stream, kind):
    """Whatever the query, and also for the batches that come after."""
    query, is_sorted = kind
    flow = stream(query, is_sorted=is_sorted)
    told = flow.run()
    assert told.count(Event.LEDGER_READ) == 1 < told.count(Event.BATCH_COMMITTED)
    flow.assert_exact()
    flow.forget_last_batch()
    told = flow.run()
    (skipped,) = told.of(Event.BATCH_SKIPPED)
    assert skipped["reason"] == "replay"
    assert skipped["rows"] > 0
    assert told.count(Event.TRANSACTION_STARTED) == 0
    flow.assert_exact()
    for partition in range(3):
        flow.queue.append(1_000, partition)
    flow.run()
    flow.assert_exact()


def test_stateless_replay_is_skipped_without_reading(stream):
    """The rows may be trimmed by then: the ledger alone is enough."""
    flow = stream()
    flow.run()
    flow.forget_last_batch()
    for partition, rows in flow.queue.ends().items():
        flow.client.trim_rows(flow.queue.path, partition, rows)
    told = flow.run()
    assert [fields["reason"] for fields in told.of(Event.BATCH_SKIPPED)] == ["replay"]
    flow.assert_exact()


@pytest.mark.further
@pytest.mark.parametrize("query", first_of([AGGREGATION, WINDOWED]), ids=lambda query: query.name)
def test_rows_of_a_stateful_batch_are_kept_until_spark_has_logged_it(stream, query):
    """A queue that trims all its vital consumer has read still has what a replay needs."""
    flow = stream(query, is_sorted=True)
    flow.break_off(flow.sink(), 1)
    for partition, offset in flow.queue.stored(flow.consumer).items():
        flow.client.trim_rows(flow.queue.path, partition, offset)
    flow.run()
    flow.assert_exact()


@pytest.mark.further
@pytest.mark.usefixtures("rocks")
@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 is the first that repartitions state")
def test_batch_in_which_spark_repartitions_state_is_no_gap(stream, spark):
    """The sink never sees its number. The batch after it comes again without effect."""
    flow = stream(AGGREGATION, is_sorted=True)
    flow.run()
    manager = spark._jsparkSession.streamingCheckpointManager()
    manager.repartition(str(flow.checkpoint), 3, True)
    for partition in range(3):
        flow.queue.append(1_000, partition)
    before = flow.entry().batch_id
    told = [flow.run()]
    assert flow.entry().batch_id == before + 2
    flow.assert_exact()
    flow.forget_last_batch()
    told.append(flow.run())
    flow.assert_exact()
    assert [one.count(Event.BATCHES_LEFT_OUT) for one in told] == [0, 0]
