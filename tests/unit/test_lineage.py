"""What the lineage of a job shows, as Spark 4 writes it."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError, TasksRefusedError
from yt_exactly_once.spark.compat.jobs import (
    has_shuffle,
    require_straight,
    strangers,
    tasks_of_one_stage,
)

BATCH = """(2) SQLExecutionRDD[23] at start at NativeMethodAccessorImpl.java:0 []
 |  MapPartitionsRDD[22] at start at NativeMethodAccessorImpl.java:0 []
 |  FileScanRDD[20] at start at NativeMethodAccessorImpl.java:0 []"""

CACHED = """(12) SQLExecutionRDD[63] at toRdd at <unknown>:0 []
 |   CoalescedRDD[61] at toRdd at <unknown>:0 []
 |   *(1) Scan ExistingRDD[id#18L]
 MapPartitionsRDD[58] at toRdd at <unknown>:0 [Disk Memory Deserialized 1x Replicated]
 |       CachedPartitions: 2; MemorySize: 4.4 KiB; DiskSize: 0.0 B
 |   SQLExecutionRDD[23] at start at NativeMethodAccessorImpl.java:0 []
 |   MapPartitionsRDD[22] at start at NativeMethodAccessorImpl.java:0 []
 |   FileScanRDD[20] at start at NativeMethodAccessorImpl.java:0 []"""

SHUFFLED = """(3) MapPartitionsRDD[182] at x []
 |  ShuffledRowRDD[171] at y []
 +-(2) MapPartitionsRDD[170] at z []
    |  SQLExecutionRDD[23] at start []"""

SHUFFLED_IN_A_UNION = """(5) UnionRDD[9] at x []
 |  MapPartitionsRDD[8] at x []
 |  ShuffledRowRDD[7] at y []
 |  +-(2) MapPartitionsRDD[6] at z []
 |     |  SQLExecutionRDD[23] at start []
 |  SQLExecutionRDD[23] at start []"""

CHECKPOINT = """(2) MapPartitionsRDD[193] at toRdd at <unknown>:0 []
 |  LocalCheckpointRDD[189] at localCheckpoint at NativeMethodAccessorImpl.java:0 []"""

NAMED = """(2) MapPartitionsRDD[5] at toRdd []
 |  a +-(2) name
 MapPartitionsRDD[4] at x []
 |  SQLExecutionRDD[23] at start []"""


def test_rows_of_the_batch_are_no_strangers():
    """Whatever source the query has."""
    assert strangers(BATCH, BATCH) == strangers(CACHED, BATCH) == []
    assert not has_shuffle(BATCH)
    assert not has_shuffle(CACHED)


def test_shuffles_are_found_at_any_depth():
    """Below a map, and in one branch of a union."""
    assert has_shuffle(SHUFFLED)
    assert has_shuffle(SHUFFLED_IN_A_UNION)


def test_what_cannot_be_seen_through_is_named():
    """A checkpoint forgets where its rows came from; files may be anybody's."""
    assert strangers(CHECKPOINT, BATCH) == ["LocalCheckpointRDD"]
    assert strangers(BATCH.replace("[20]", "[99]"), BATCH) == ["FileScanRDD"]


def test_name_of_an_rdd_hides_nothing():
    """Users choose names."""
    assert not has_shuffle(NAMED)
    elsewhere = NAMED.replace("SQLExecutionRDD[23]", "FileScanRDD[99]")
    assert strangers(elsewhere.replace("name", "UnionRDD[8] at "), BATCH) == ["FileScanRDD"]


def job(text, *, running=BATCH):
    """Return what writes rows with one lineage, while a batch with another one is running."""
    frame = MagicMock()
    frame.sparkSession._jvm.java.util.UUID.fromString = str
    plans = {"query": SimpleNamespace(lastExecution=lambda: execution(running))}
    frame.sparkSession._jsparkSession.sharedState().activeStreamingQueries.return_value = plans
    frame._jdf.queryExecution.return_value = execution(text)
    return frame


def execution(text, plan=""):
    return SimpleNamespace(
        toRdd=lambda: SimpleNamespace(toDebugString=lambda: text), executedPlan=lambda: shown(plan)
    )


def shown(plan):
    return SimpleNamespace(toString=lambda: plan)


def test_job_over_the_rows_of_the_batch_is_straight():
    """Through a cache, too."""
    for text in (BATCH, CACHED):
        require_straight(job(text), MicroBatch("query", 0, "run"))


@pytest.mark.parametrize(
    ("text", "running", "why"),
    [
        (SHUFFLED, BATCH, "has a shuffle"),
        (BATCH, SHUFFLED, "has a shuffle"),
        (CHECKPOINT, BATCH, r"straight from the batch \(LocalCheckpointRDD\)"),
    ],
)
def test_job_whose_rows_may_come_in_another_order_is_refused(text, running, why):
    """Whether the function or the query moves them."""
    with pytest.raises(ConfigError, match=why):
        require_straight(job(text, running=running), MicroBatch("query", 0, "run"))


@pytest.mark.parametrize(
    ("text", "plan", "tasks"),
    [
        (BATCH, "", 2),
        (SHUFFLED, "", None),
        (SHUFFLED_IN_A_UNION, "", None),
        ("no lineage", "", None),
        (BATCH, "AdaptiveSparkPlan\n+- Exchange hashpartitioning(key, 2)", None),
        (BATCH, "MapInArrow\n+- LocalTableScan <empty>, [id]", 2),
    ],
)
def test_tasks_of_one_stage_are_counted(text, plan, tasks):
    """Attempts begin at 0 again in a stage that runs again. A plan that may shuffle is not even run."""
    frame = job(text)
    frame._jdf.queryExecution.return_value = execution(text, plan)
    assert tasks_of_one_stage(frame, MicroBatch("query", 0, "run")) == tasks


@pytest.mark.parametrize(
    "plan",
    ["LocalTableScan [id]", "Union\n:- LocalTableScan <empty>, [id]\n+- LocalTableScan [id]"],
)
def test_rows_in_one_order_of_the_driver_are_not_for_tasks(plan):
    frame = job(BATCH)
    frame._jdf.queryExecution.return_value = execution(BATCH, plan)
    with pytest.raises(TasksRefusedError, match="in one order"):
        tasks_of_one_stage(frame, MicroBatch("query", 0, "run"))


def test_shuffle_that_cannot_be_known_is_refused():
    """On Spark Connect there is no plan to look at. Nor is the number of stages known."""
    frame = SimpleNamespace(sparkSession=SimpleNamespace())
    assert tasks_of_one_stage(frame, MicroBatch("query", 0, "run")) is None
    with pytest.raises(ConfigError, match="cannot show whether rows are shuffled"):
        require_straight(frame, MicroBatch("query", 0, "run"))
