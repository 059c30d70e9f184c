"""Every output mode of Spark through the sink: exact rows, also when a batch of the query is replayed.

Each query runs over a part of the queue, forgets its newest batch, and goes on over the rest. What must
come out is computed in plain Python.
"""

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tests.flows import AGGREGATION, DEDUP, STATELESS, WINDOW_SECONDS, WINDOWED, Query
from tests.tiers import first_of
from yt_exactly_once import Event

pytestmark = pytest.mark.further

COMPLETE = {"write": "replace"}


def _all_windows(queue, _size):
    """Every window that has rows, as it is in the end."""
    width = WINDOW_SECONDS * 1_000_000
    count, total = Counter(), defaultdict(int)
    for row in queue.all_rows():
        start = row["at"] // width * width
        count[start] += 1
        total[start] += row["value"]
    return [(start, count[start], total[start]) for start in count]


def _totals_after(rows):
    count, total = Counter(), Counter()
    for row in rows:
        count[row["key"]] += 1
        total[row["key"]] += row["value"]
    return [(key, count[key], total[key]) for key in count]


def _every_result(queue, size):
    """Each batch gives the whole result again."""
    seen, told = [], []
    for batch in queue.batches(size):
        seen += batch
        told += _totals_after(seen)
    return told


def _totals(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").agg(sf.count("id").alias("n"), sf.sum("value").alias("total"))


TOTALS = {"key": "int64?", "n": "int64", "total": "int64?"}

EVERY_TOTAL = Query("totals", TOTALS, ("key",), "complete", _totals, _every_result)

EVEN_TOTALS = Query(
    "even totals", TOTALS, ("key",), "complete",
    lambda frame: _totals(frame).where("total % 2 = 0"),
    lambda queue, _: [row for row in _totals_after(queue.all_rows()) if row[2] % 2 == 0],
)  # fmt: skip

PAIRS = Query(
    "dedup within watermark", {"pair": "int64?"}, ("pair",), "append",
    lambda frame: frame.selectExpr("id div 2 as pair", "at").withWatermark("at", "30 seconds")
    .dropDuplicatesWithinWatermark(["pair"]).select("pair"),
    lambda queue, _: [(pair,) for pair in {row["id"] // 2 for row in queue.all_rows()}],
)  # fmt: skip


def _with_state(mode):
    """Count the rows of each key in a state of our own."""

    def count(key, batches, state):
        import pandas as pd

        seen = (state.get[0] if state.exists else 0) + sum(len(rows) for rows in batches)
        state.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "n": [seen]})

    def build(frame):
        return frame.select("key", "id").groupBy("key").applyInPandasWithState(
            count, "key long, n long", "seen long", mode, "NoTimeout"
        )  # fmt: skip

    def expected(queue, size):
        seen, told = Counter(), []
        for batch in queue.batches(size):
            seen.update(row["key"] for row in batch)
            told += [(key, seen[key]) for key in {row["key"] for row in batch}]
        return told

    types = {"key": "int64?", "n": "int64?"}
    return Query("state of our own", types, ("key",), mode, build, expected, growing=True)


def _with_processor(mode):
    """The same by the newer interface."""
    query = _with_state(mode)

    def build(frame):
        from pyspark.sql.streaming import StatefulProcessor

        class Count(StatefulProcessor):
            def init(self, handle):
                self.seen = handle.getValueState("seen", "seen long")

            def handleInputRows(self, key, rows, timer_values):  # noqa: ARG002, N802
                import pandas as pd

                seen = self.seen.get()[0] if self.seen.exists() else 0
                seen += sum(len(part) for part in rows)
                self.seen.update((seen,))
                yield pd.DataFrame({"key": [key[0]], "n": [seen]})

            def close(self):
                pass

        return frame.select("key", "id").groupBy("key").transformWithStateInPandas(
            Count(), "key long, n long", mode, "none"
        )  # fmt: skip

    return replace(query, name="stateful processor", build=build)


UPDATED_WINDOWS = replace(WINDOWED, output_mode="update", expected=_all_windows, growing=True)
ORDERED, SORTED = False, True

MATRIX = [
    (PAIRS, ORDERED, {}),
    (_with_state("append"), ORDERED, {}),
    # As above with another target or output mode, or in tests of replays.
    (AGGREGATION, ORDERED, {}),
    (DEDUP, SORTED, {}),
    (STATELESS, SORTED, {}),
    (WINDOWED, ORDERED, {}),
    (WINDOWED, SORTED, {}),
    (AGGREGATION, SORTED, {}),
    (UPDATED_WINDOWS, SORTED, {}),
    (replace(DEDUP, output_mode="update"), ORDERED, {}),
    (_with_state("update"), SORTED, {}),
    (EVERY_TOTAL, ORDERED, {}),
    (EVEN_TOTALS, SORTED, COMPLETE),
    (replace(WINDOWED, output_mode="complete", expected=_all_windows), SORTED, COMPLETE),
]


def named(case):
    query, is_sorted, _ = case
    return f"{query.output_mode}, {query.name}, {'sorted' if is_sorted else 'ordered'}"


def run_with_replay(flow):
    """Run, forget the newest batch, and go on: the replay touches nothing."""
    flow.run()
    last = flow.forget_last_batch()
    for partition in range(len(flow.queue.rows)):
        flow.queue.append(60, partition)
    told = flow.run()
    started = [fields["batch"] for fields in told.of(Event.TRANSACTION_STARTED)]
    assert last in [fields["batch"] for fields in told.of(Event.BATCH_SKIPPED)]
    assert started
    assert last not in started


@pytest.fixture(autouse=True)
def _one_shuffle_partition(spark):
    """State is cheaper to keep then."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize("case", first_of([(case,) for case in MATRIX], count=2), ids=named)
def test_output_mode_is_exact(stream, case):
    """Query, target, result."""
    query, is_sorted, options = case
    flow = stream(query, is_sorted=is_sorted, rows=80, rows_per_partition=40, partitions=2)
    flow.options = options
    run_with_replay(flow)
    flow.assert_exact()


@pytest.mark.nightly
def test_stateful_processor_is_exact(stream, spark):
    """`transformWithState`, which needs the RocksDB state store."""
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        flow = stream(
            _with_processor("update"), is_sorted=True, rows=80, rows_per_partition=40, partitions=2
        )
        run_with_replay(flow)
        flow.assert_exact()
    finally:
        spark.conf.set(name, before)
