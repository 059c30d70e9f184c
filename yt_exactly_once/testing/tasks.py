"""What is done to the tasks of an attacked batch: one waits until it is alone, or all fail once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
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
    with NamedTemporaryFile(prefix="stage-") as file:
        stage = Path(file.name)
        threading.Thread(target=_watch, args=(context, stage, over), daemon=True).start()
        try:
            yield frame.mapInArrow(partial(_let_the_first_wait, stage), frame.schema)
        finally:
            over.set()


def _watch(context: SparkContext, stage: Path, over: threading.Event) -> None:
    """Reach `ONE_TASK_LEFT` when the stage that a file names has one task left; others do not count."""
    tracker = context.statusTracker()
    while not over.wait(_LOOK_SECONDS):
        number = stage.read_text()
        info = tracker.getStageInfo(int(number)) if number else None
        if info and info.numActiveTasks == 1 and info.numCompletedTasks == info.numTasks - 1:
            steps.reach(steps.ONE_TASK_LEFT)
            return


def _let_the_first_wait(stage: Path, batches: Rows) -> Rows:
    """Hand on rows in all tasks but the first one, which names its stage and is killed with the driver."""
    context = TaskContext.get()
    if context is not None and context.partitionId() == 0:
        stage.write_text(str(context.stageId()))
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
