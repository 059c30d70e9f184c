"""Jobs of a sink: what Spark's UI shows of them, and whether their rows come straight from the micro-batch.

That is: same rows, same tasks, same order. The lineage of the job's RDD is what counts. It shows what a plan
hides: a shuffle below a cached DataFrame, inside a limit, or in the query itself, in this very batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from yt_exactly_once import advice
from yt_exactly_once.errors import ConfigError, TasksRefusedError
from yt_exactly_once.spark.compat.jvm import execution_of, jvm_of, queries_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch

_DESCRIPTION = "spark.job.description"

_SHUFFLE = re.compile(r"^[ |]*\+-\(", re.MULTILINE)
"""How `RDD.toDebugString` begins what is on the other side of a shuffle."""

_RDD = re.compile(r"(\w+)\[(\d+)\] at ")
"""How it names an RDD: class and id."""

_TASKS = re.compile(r"\((\d+)\)")
"""How it begins: with the number of tasks."""

_EXCHANGES = ("Exchange", "AdaptiveSparkPlan")
"""Parts of a physical plan that runs in several stages, or that Spark may still change so."""

_IN_ORDER = re.compile("(LocalTableScan|CommandResult)(?! <empty>)")
"""Parts that spread rows over tasks which the driver has in one order; Spark marks one without rows."""

_SEEN_THROUGH = frozenset(
    {
        "CoalescedRDD",
        "EmptyRDD",
        "MapPartitionsRDD",
        "MapPartitionsWithEvaluatorRDD",
        "PartitionPruningRDD",
        "PartitionwiseSampledRDD",
        "PythonRDD",
        "SQLExecutionRDD",
        "SQLPartitioningAwareUnionRDD",
        "UnionRDD",
        "ZippedPartitionsRDD2",
        "ZippedPartitionsWithEvaluatorRDD",
    }
)
"""RDDs that have no rows of their own and keep the order of those they are given."""


@contextmanager
def described(frame: Any, batch: MicroBatch, step: str) -> Iterator[None]:
    """Describe the jobs that start here: Spark's own words about query and batch, and the step.

    Afterwards the description is what it was. A session without a context (Spark Connect) shows none.
    """
    context = getattr(getattr(frame, "sparkSession", None), "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    known = before or f"query = {batch.query_id}<br/>batch = {batch.batch_id}"
    context.setLocalProperty(_DESCRIPTION, f"{known}<br/>yt_exactly_once: {step}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def has_shuffle(lineage: str) -> bool:
    """Return whether there is a shuffle in what `RDD.toDebugString` has returned."""
    return _SHUFFLE.search(lineage) is not None


def strangers(lineage: str, batch: str) -> list[str]:
    """Return the classes of RDDs with rows that may not come from a batch; both are lineages."""
    known = {number for _, number in _RDD.findall(batch)}
    own = {name for name, number in _RDD.findall(lineage) if number not in known}
    return sorted(own - _SEEN_THROUGH)


def require_straight(job: DataFrame, batch: MicroBatch) -> int:
    """Check that a repeated task gets the same rows in order, and return how many tasks there are.

    Raise `ConfigError` if that is not known. Nothing is computed, but Spark runs the shuffles below.
    """
    jvm = jvm_of(job.sparkSession)
    if jvm is None:
        raise refused("this session cannot show whether rows are shuffled (Spark Connect)", batch)
    query_id = jvm.java.util.UUID.fromString(batch.query_id)
    running = queries_in(job).get(query_id).lastExecution().toRdd()
    own = running.toDebugString()
    whole = execution_of(job).toRdd().toDebugString()
    tasks = _TASKS.match(whole)
    if tasks is None or _TASKS.match(own) is None:
        raise refused("Spark shows the lineage in a way that is not known", batch)
    if has_shuffle(own) or has_shuffle(whole):
        raise refused("this query has a shuffle", batch)
    found = strangers(whole, own)
    if found:
        raise refused(f"rows do not come straight from the batch ({', '.join(found)})", batch)
    return int(tasks[1])


def tasks_of_one_stage(job: DataFrame, batch: MicroBatch) -> int | None:
    """Return how many tasks a job has if it has one stage; `None` if it has several, or nobody can know.

    With one stage Spark starts attempt 0 of each task once. A stage runs again when its input from another
    stage is lost, and then its attempts begin at 0 again. Nothing of the DataFrame is computed.

    Raises:
        TasksRefusedError: its rows have an order that only the driver knows.
    """
    if jvm_of(job.sparkSession) is None:
        return None
    execution = execution_of(job)
    # An RDD of such a plan would run its shuffles.
    shown = execution.executedPlan().toString()
    text = "" if any(name in shown for name in _EXCHANGES) else execution.toRdd().toDebugString()
    tasks = _TASKS.match(text)
    if tasks is None or has_shuffle(text):
        return None
    if _IN_ORDER.search(shown):
        raise TasksRefusedError(
            "Tasks cannot write into one transaction rows that the driver had in one order",
            remedy=advice.SENT_BY_AUTO,
            **batch.where,
        )
    return int(tasks[1])


def refused(why: str, batch: MicroBatch) -> ConfigError:
    """Return the error of rows whose position in a task may change."""
    return ConfigError(
        f"Idempotent mode would number the rows by their position in a task, and {why}: a repeated task "
        "may get them in another order, and rows would be lost or repeated",
        remedy="Use mode='transactional'; or pass the DataFrame of the batch without a shuffle "
        "(repartition, join, distinct, order by, limit), a checkpoint, or rows from elsewhere; or, with "
        "one queue, let rows carry their source: include_service_columns=true",
        **batch.where,
    )
