"""`writeStream.format("yt")`: the writer that Spark asks, batch by batch.

Spark asks for it in Python processes that serve several batches, runs and queries, in turns: to plan a batch,
to commit it, and to abort it. The tasks get the planned one. No process knows what the others have done. Only
the tasks know the run, and their messages bring it to the commit. So what must be known before the tasks
write is looked up for every batch; the commit remembers what its process has committed of that very run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError, FencedError
from yt_exactly_once.spark.compat.checkpoint import WriterFiles
from yt_exactly_once.spark.compat.running import (
    BATCH_ID_PROPERTY,
    QUERY_ID_PROPERTY,
    RUN_ID_PROPERTY,
)
from yt_exactly_once.spark.compat.versions import ArrowStreamWriter
from yt_exactly_once.spark.doors.arrived import TaskMessage, TaskRows, WriterTask, give_up
from yt_exactly_once.spark.doors.writer_options import QUERY_NAME, parse_writer_options
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.tuning.collector import freeze_modules
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamDoor:
    """Brings the engine rows that tasks have sent or written: the same steps, in two halves."""

    def __init__(self, options: SinkOptions, output_mode: str, query_name: str = "") -> None:
        connection = Connection(options.cluster)
        self._engine = Engine(mode_of(options, connection))
        location = str(options.checkpoint_location)
        self._files = WriterFiles(location, connection, output_mode, query_name)

    def plan(self, schema: StructType) -> WriterTask:
        """Take steps 1 and 2, before the rows are computed, and return what the tasks do.

        Nothing tells this process the run, so any batch may be a replay. The ledger is asked here if tasks
        write rows, and in `finish` otherwise. If this raises, nothing is written.
        """
        running = self._files.locate(None, self._files.newest())
        running = replace(running, run_id=f"plan-{uuid.uuid4()}")
        looks_up = not self._engine.mode.one_transaction
        assignment, is_replay = self._engine.plan(running, TaskRows(schema), looks_up=looks_up)
        if assignment.is_by_position:
            raise ConfigError(
                "Idempotent mode cannot number the rows in the format yt: only foreachBatch shows "
                "whether they come in the same order again",
                remedy="Read one queue with include_service_columns=true and keep its columns; or use "
                "mode='transactional', or foreachBatch",
                query=running.query_id,
                target=assignment.given.target.path,
            )
        return WriterTask(assignment, is_replay=is_replay)

    def finish(self, schema: StructType, messages: Sequence[TaskMessage], number: int) -> None:
        """Take steps 1 to 9, when Spark knows which task of each partition counts.

        If this raises, the batch was not written, or the replay will resolve its outcome.
        """
        running = replace(self._files.locate(None, number), run_id=messages[0].run_id)
        self._engine.deliver(running, TaskRows(schema, messages))

    def give_up(self, messages: Sequence[TaskMessage | None], number: int) -> None:
        """End what is open of a batch whose job has failed; the next run plans it again."""
        query_id = self._files.locate(None, number).query_id
        give_up(self._engine.mode, query_id, number, messages)


class StreamWriter(ArrowStreamWriter):
    """Writes one batch. Spark pickles it for the tasks, which need no more than their part."""

    def __init__(
        self,
        task: WriterTask | None,
        finish: Callable[[Sequence[Any], int], None] | None = None,
        give_up: Callable[[Sequence[Any], int], None] | None = None,
    ) -> None:
        self._task, self._finish, self._give_up = task, finish, give_up

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the executors."""
        return StreamWriter, (self._task,)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send or write a task's rows; raise `ExactlyOnceError` if one does not fit or another batch runs."""
        freeze_modules()
        assert self._task is not None, "planned"
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        run_id = _require_planned(self._task.assignment.given.batch, context)
        return self._task.run(iterator, run_id, context.partitionId())

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch visible exactly once; see `StreamDoor.finish`."""
        assert self._finish is not None, "a task does not commit"
        self._finish(messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave a failed batch to its replay: what its tasks have written is found or repeated there.

        This raises nothing: it would hide why the batch has failed.
        """
        if self._give_up is not None:
            with suppress(Exception):
                self._give_up(messages, batchId)


@lru_cache(maxsize=32)
def _door_of(given: tuple[tuple[str, str], ...], output_mode: str) -> StreamDoor:
    """Return the door of this process for a query's options: its connections and prepared targets."""
    named = {name.lower(): value for name, value in given}.get(QUERY_NAME, "")
    return StreamDoor(parse_writer_options(dict(given)), output_mode, named)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, complete: bool, plans: bool
) -> StreamWriter:
    """Return what writes the batch that Spark runs.

    Args:
        complete: whether the query has output mode `complete`; it has `append` otherwise.
        plans: whether the batch is to be planned. To commit and to abort needs no plan, and an abort that
            failed would hide why the batch did.
    """
    given = tuple(sorted(options.items()))
    door = partial(_door_of, given, "complete" if complete else "append")
    task = door().plan(schema) if plans else None
    return StreamWriter(
        task,
        lambda messages, number: door().finish(schema, messages, number),
        lambda messages, number: door().give_up(messages, number),
    )


def _require_planned(batch: MicroBatch, context: TaskContext) -> str:
    """Return the run of a task, whose batch must be the newest one in the checkpoint.

    Otherwise another driver has got ahead (`FencedError`), or the checkpoint is that of another query.
    """
    query_id, run_id, number = (
        context.getLocalProperty(name)
        for name in (QUERY_ID_PROPERTY, RUN_ID_PROPERTY, BATCH_ID_PROPERTY)
    )
    if query_id is None or run_id is None or number is None:
        raise ConfigError(
            "Spark does not tell a task its query, run and batch",
            remedy="Use writeStream with a micro-batch trigger, or foreachBatch",
        )
    if batch.query_id != query_id:
        raise ConfigError(
            "checkpointLocation is the checkpoint of another query",
            remedy="Give each query a checkpoint of its own",
            query=query_id,
            other_query=batch.query_id,
        )
    if batch.batch_id != int(number):
        raise FencedError(
            f"Spark runs batch {number}, and the checkpoint has batch {batch.batch_id}",
            remedy="Two drivers share one checkpoint: stop one of them",
            query=query_id,
            batch=int(number),
        )
    return run_id
