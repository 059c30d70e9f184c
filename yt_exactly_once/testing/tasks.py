"""What is done to the tasks of an attacked batch: one waits until it is alone, or all fail once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from yt_exactly_once.testing import steps

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    Rows = Iterator[pa.RecordBatch]

_LOOK_SECONDS = 0.02


@contextmanager
def one_left(frame: DataFrame) -> Iterator[DataFrame]:
    """Return a DataFrame whose first task waits for ever; reach `ONE_TASK_LEFT` when it is alone."""
    context, over = frame.sparkSession.sparkContext, threading.Event()
    # The jobs of a query have the id of its run as their group. Only this thread knows it.
    group = context.getLocalProperty("spark.jobGroup.id")
    threading.Thread(target=_watch, args=(context, group, over), daemon=True).start()
    try:
        yield frame.mapInArrow(_let_the_first_wait, frame.schema)
    finally:
        over.set()


def _watch(context: SparkContext, group: str, over: threading.Event) -> None:
    """Reach `ONE_TASK_LEFT` when a stage of a group of jobs has one task left."""
    tracker = context.statusTracker()
    while not over.wait(_LOOK_SECONDS):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        if any(one and _has_one_left(one) for one in stages):
            steps.reach(steps.ONE_TASK_LEFT)
            return


def _has_one_left(stage: Any) -> bool:
    return bool(stage.numActiveTasks == 1 and stage.numCompletedTasks == stage.numTasks - 1)


def _let_the_first_wait(batches: Rows) -> Rows:
    """Hand on rows in all tasks but the first one, which is killed with the driver."""
    context = TaskContext.get()
    if context is not None and context.partitionId() == 0:
        while True:
            time.sleep(1)
    yield from batches


def watch_ends() -> None:
    """Make a step of the end of each task that runs Python in a process forked from this one.

    The task fails there if the gate says so. Spark clears the context of a task when its work is done, and
    before it says so.
    """
    clear: Any = TaskContext._setTaskContext  # noqa: SLF001 - nothing else is called at the end of every task

    def set_context(context: TaskContext | None) -> None:
        running = TaskContext.get()
        if context is None and running is not None:
            ids = running.taskAttemptId(), running.attemptNumber()
            if steps.reach(steps.TASK_ENDS, *ids) is steps.Reply.LOSE:
                raise RuntimeError("The test lets this task fail, after its work is done")
        clear(context)

    TaskContext._setTaskContext = set_context  # type: ignore[method-assign,assignment] # noqa: SLF001
