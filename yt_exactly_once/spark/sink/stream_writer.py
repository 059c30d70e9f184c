"""`writeStream.format("yt")`: the writer that Spark asks, batch by batch.

Spark makes a writer twice per batch, each time in a Python process that serves several batches: to plan
the batch, and to commit it. The tasks get the planned one. What the processes keep only saves requests: the
ledger, the checkpoint and the messages of the tasks decide.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ConfigError, FencedError, LedgerDivergedError
from yt_exactly_once.observability import Clock, Event, reported
from yt_exactly_once.spark.query.checkpoint import WriterFiles
from yt_exactly_once.spark.sink.arrived import ArrivedRows, TaskIdentity
from yt_exactly_once.spark.sink.look_up import find
from yt_exactly_once.spark.sink.run import Delivery
from yt_exactly_once.spark.sink.transactional_sink import TransactionalSink
from yt_exactly_once.spark.sink.writer_modes import WRITER_MODES, WriterMode
from yt_exactly_once.spark.sink.writer_options import parse_writer_options
from yt_exactly_once.spark.versions import ArrowStreamWriter
from yt_exactly_once.spark.worker import spare_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead, TargetRows
    from yt_exactly_once.spark.sink.arrived import TaskMessage
    from yt_exactly_once.spark.sink.look_up import Found
    from yt_exactly_once.spark.sink.writer_modes import WriterTask
    from yt_exactly_once.spark.sink.writer_options import WriterOptions


class WriterSink(TransactionalSink):
    """A sink for rows that tasks have sent or written: the same steps, in two halves.

    Args:
        options: of the writer.
    """

    _modes = WRITER_MODES

    def __init__(self, options: WriterOptions) -> None:
        self.options = options.sink
        self._open()
        self._files = self._offset_log = WriterFiles(options.checkpoint, self._connection)
        self._mode.check()
        self._planned: tuple[str, int] | None = None

    def plan(self, schema: StructType, output_mode: str) -> PlannedBatch:
        """Steps 1 and 2, before the rows are computed.

        Args:
            schema: of the DataFrame.
            output_mode: of the query.

        Raises:
            ExactlyOnceError: the batch cannot be written; nothing has been.
        """
        number = self._files.newest()
        run = self._run_that_plans(number)
        arrived: Any = ArrivedRows(schema, output_mode, run)
        place = self._offset_log.locate(arrived, number)
        emit = self._emitter(place)
        with reported(emit), self._calls.begun(place, self.options.ledger_rows, emit) as call:
            batch = self._offset_log.identify(arrived, place)  # 1
            ledger = self._ledger(batch)
            delivery = Delivery(batch, arrived, call, self._run(batch), ledger, emit)
            self._prepare(delivery)
            found = find(delivery, self._mode, self._offset_log)  # 2
            (target,) = delivery.run.targets
            assert isinstance(self._mode, WriterMode), "one of WRITER_MODES"
            task = self._mode.task(arrived, batch, target, delivery.run.begun.get(target.path, {}))
        self._planned = run, number
        return PlannedBatch(
            replace(task, is_replay=found.is_replay), arrived, found, records=call.records
        )

    def finish(self, planned: PlannedBatch, messages: Sequence[TaskMessage], number: int) -> None:
        """Steps 3 to 9, when Spark knows which task of each partition counts.

        Raises:
            ExactlyOnceError: the batch was not written, or the replay will resolve its outcome.
        """
        task = messages[0].task
        arrived: Any = replace(
            planned.arrived,
            run_id=task.run_id,
            query_id=task.query_id,
            messages=sorted(messages, key=lambda message: message.task.partition),
        )
        place = self._offset_log.locate(arrived, number)
        emit = self._emitter(place)
        with reported(emit), self._calls.begun(place, self.options.ledger_rows, emit) as call:
            _require_planned(planned.task.batch, number, task.query_id)
            batch = replace(planned.task.batch, run_id=task.run_id)
            call.records = planned.records
            run = self._run(planned.task.batch)
            delivery = Delivery(batch, arrived, call, run, self._ledger(batch), emit)
            if planned.found.is_replay:
                self._skip(delivery, planned.found)
                return
            _require_rows(messages, batch)
            clock = Clock()
            rows = self._compute(delivery)  # 3
            clock.lap("compute")
            committer = self._committer(delivery)
            self._write(delivery, committer, rows, planned.found.resumed, clock)

    def _skip(self, delivery: Delivery, found: Found) -> None:
        """Let a replay pass; Spark has computed it, and so has its state."""
        delivery.emit(Event.BATCH_SKIPPED, reason="replay", rows=found.rows)

    def _rows(
        self,
        delivery: Delivery,
        send: SendAhead | None,  # noqa: ARG002 - all rows have come
    ) -> list[TargetRows]:
        (target,) = delivery.run.targets
        return self._mode.write(delivery.frame, delivery.batch, target, {})

    def _run_that_plans(self, number: int) -> str:
        """Return an id for batches that this process plans one after the other.

        The run of the query is not known before its tasks name it. A batch that does not follow the one
        before, as after a restart, is looked up like the first of a run.
        """
        if self._planned is not None and self._planned[1] == number - 1:
            return self._planned[0]
        return f"plan-{uuid.uuid4()}"


@dataclass(frozen=True)
class PlannedBatch:
    """A batch before its rows are computed.

    Attributes:
        task: what its tasks do.
        arrived: without rows.
        found: by the look-up.
        records: see `Call.records`.
    """

    task: WriterTask
    arrived: Any
    found: Found
    records: bool


class StreamWriter(ArrowStreamWriter):
    """Writes one batch. Spark pickles it for the tasks, which need no more than their part.

    Args:
        task: what the tasks do.
        sink: of this process.
        planned: the batch.
    """

    def __init__(
        self,
        task: WriterTask,
        sink: WriterSink | None = None,
        planned: PlannedBatch | None = None,
    ) -> None:
        self._task = task
        self._sink = sink
        self._planned = planned

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the executors."""
        return StreamWriter, (self._task,)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send or write the rows of a task.

        Raises:
            ExactlyOnceError: a row cannot be written, or the task is of another batch.
        """
        spare_modules()
        task = TaskIdentity.of_this_task()
        _require_planned(self._task.batch, task.batch_id, task.query_id)
        return self._task.run(iterator, task)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch visible exactly once; see `WriterSink.finish`."""
        assert self._sink is not None, "a task does not commit"
        assert self._planned is not None, "a task does not commit"
        self._sink.finish(self._planned, messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave a failed batch to its replay: what its tasks have written is found or repeated there."""


@lru_cache(maxsize=32)
def _sink_of(given: tuple[tuple[str, str], ...]) -> WriterSink:
    """Return the sink of this process for a query's options: its connections and prepared targets."""
    return WriterSink(parse_writer_options(dict(given)))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, complete: bool
) -> StreamWriter:
    """Plan the batch that Spark runs, and return what writes it.

    Args:
        options: as Spark hands them over.
        schema: of the DataFrame.
        complete: whether the query has output mode `complete`; it has `append` otherwise.

    Raises:
        ExactlyOnceError: the batch cannot be written; nothing has been.
    """
    sink = _sink_of(tuple(sorted(options.items())))
    planned = sink.plan(schema, "complete" if complete else "append")
    return StreamWriter(planned.task, sink, planned)


def _require_planned(batch: MicroBatch, number: int, query_id: str) -> None:
    """Check that the newest batch in the checkpoint is the one that runs.

    Raises:
        ConfigError: the checkpoint is that of another query.
        FencedError: another driver has got ahead.
    """
    if batch.query_id != query_id:
        raise ConfigError(
            "checkpointLocation is the checkpoint of another query",
            remedy="Give each query a checkpoint of its own",
            query=query_id,
            other_query=batch.query_id,
        )
    if batch.batch_id != number:
        raise FencedError(
            f"Spark runs batch {number}, and the checkpoint has batch {batch.batch_id}",
            remedy="Two drivers share one checkpoint: stop one of them",
            query=query_id,
            batch=number,
        )


def _require_rows(messages: Iterable[TaskMessage], batch: MicroBatch) -> None:
    """Check that no task has left its rows out.

    Raises:
        LedgerDivergedError: one has, since the ledger had the batch when it was planned.
    """
    if any(message.skipped for message in messages):
        raise LedgerDivergedError(
            "The ledger had this batch when it was planned, and has it no more",
            remedy="Restore the ledger, and start the query again",
            query=batch.query_id,
            batch=batch.batch_id,
        )
