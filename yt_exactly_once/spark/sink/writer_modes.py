"""The write modes of a streaming writer: what its tasks do, and what is left to the commit.

Each is the mode of the same name, with messages of tasks in the place of a DataFrame.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import SOURCE_TABLET_COLUMN
from yt_exactly_once.config import WriteMode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.arrived import TaskMessage, packed
from yt_exactly_once.spark.sink.encode import PARTITION_COLUMN, encode_batches
from yt_exactly_once.spark.sink.modes.at_least_once import AtLeastOnce
from yt_exactly_once.spark.sink.modes.idempotent import Idempotent
from yt_exactly_once.spark.sink.modes.push import PushTask, RehearsalTask, require_same_rows
from yt_exactly_once.spark.sink.modes.row_digest import seed_of
from yt_exactly_once.spark.sink.modes.sessions import Numbering, is_numbered_by_source
from yt_exactly_once.spark.sink.modes.tasks import (
    KEY_HASH_COLUMNS,
    ChunkReport,
    InsertTask,
    TaskSettings,
    require_unique,
    unpack_hashes,
)
from yt_exactly_once.spark.sink.modes.transactional import Transactional
from yt_exactly_once.spark.sink.placement import PRESERVE, ROUND_ROBIN, TABLET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from yt_exactly_once.codec.schema import WritePlan
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead, TargetRows
    from yt_exactly_once.spark.sink.arrived import ArrivedRows, TaskIdentity
    from yt_exactly_once.spark.sink.modes.mode import Mode, Sessions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState


@dataclass(frozen=True)
class WriterTask:
    """What a task of the batch does with its rows. It travels to the executors.

    Attributes:
        batch: the batch that was planned.
        names: columns of the DataFrame.
        target: where the rows go.
        sends: whether the rows go to the commit of the batch, which writes them.
        insert: writes rows by itself.
        push: pushes rows by itself.
        begun: see `TaskMessage`.
        is_replay: whether the batch was found in the ledger, and so must not be written.
    """

    batch: MicroBatch
    names: tuple[str, ...]
    target: PreparedTarget
    sends: bool
    insert: InsertTask | None = None
    push: PushTask | None = None
    begun: dict[str, SessionState] = field(default_factory=dict)
    is_replay: bool = False

    def run(self, batches: Iterable[pa.RecordBatch], task: TaskIdentity) -> TaskMessage:
        """Send or write all rows of the task; Spark's state needs every row to be computed."""
        if self.is_replay:
            return TaskMessage(task, sum(batch.num_rows for batch in batches), skipped=True)
        rows = self._prepared(batches, task.partition)
        if self.sends:
            content, count = packed(rows)
            return TaskMessage(task, count, content, begun=self.begun)
        if self.push is not None:
            numbering = replace(self.push.numbering, batch=replace(self.batch, run_id=task.run_id))
            return _reported(task, replace(self.push, numbering=numbering)(rows))
        assert self.insert is not None, "one of the three"
        return _reported(task, self.insert(rows))

    def _prepared(
        self, batches: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows with what Spark computes for them where there is a DataFrame."""
        place = 0
        for given in batches:
            rows = given.rename_columns(list(self.names))
            more: dict[str, Any] = {}
            count = rows.num_rows
            if self.target.placement.rule == ROUND_ROBIN:
                tablets = self.target.placement.tablet_count
                more[TABLET_COLUMN] = (np.arange(place, place + count) + partition) % tablets
            elif self.target.placement.rule == PRESERVE:
                more[TABLET_COLUMN] = rows.column(SOURCE_TABLET_COLUMN).cast(pa.int64())
            place += count
            if self.sends:
                more[PARTITION_COLUMN] = np.full(count, partition, np.int32)
            if self.insert is not None and self.insert.unique_keys:
                both = hashes(rows, self.target.plan.keys, "<i8,<i4")
                more |= dict(zip(KEY_HASH_COLUMNS, (both["f0"], both["f1"]), strict=True))
            yield pa.RecordBatch.from_arrays(
                [*rows.columns, *(pa.array(values) for values in more.values())],
                names=[*self.names, *more],
            )


def hashes(rows: pa.RecordBatch, plan: WritePlan, dtype: str) -> np.ndarray[Any, Any]:
    """Return a hash of what is written of each row.

    Args:
        rows: with the columns of the plan.
        plan: which columns.
        dtype: of one hash.
    """
    kind = np.dtype(dtype)
    texts = row_fragments(rows, plan).to_pylist()
    digests = (hashlib.blake2b(text, digest_size=kind.itemsize).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype=kind)


class WriterMode:
    """What the three have in common; mixed into the mode of the same name."""

    def task(
        self, arrived: ArrivedRows, batch: MicroBatch, target: PreparedTarget, begun: Sessions
    ) -> WriterTask:
        """Return what the tasks of a batch do.

        Args:
            arrived: without rows yet.
            batch: the micro-batch.
            target: where to write.
            begun: see `Mode.begun`.

        Raises:
            ConfigError: the rows cannot be written in this mode without a DataFrame.
        """
        raise NotImplementedError


class WriterTransactional(WriterMode, Transactional):
    """Tasks send their rows; the commit writes them in one transaction."""

    def task(
        self,
        arrived: ArrivedRows,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - the contract
    ) -> WriterTask:
        """See `WriterMode.task`."""
        return WriterTask(batch, tuple(arrived.columns), target, sends=True)

    def write(
        self,
        frame: Any,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - the contract
        send: SendAhead | None = None,  # noqa: ARG002 - all rows have come
    ) -> list[TargetRows]:
        """See `Mode.write`: the rows that arrived."""
        arrived: ArrivedRows = frame
        encoder = self.encoder(batch, target)
        rows = (rows for message in arrived.messages for rows in message.batches())
        encode_batches(rows, encoder, dyn_batch_size=target.request_size)
        return self.encoded(encoder, target)


class WriterAtLeastOnce(WriterMode, AtLeastOnce):
    """Tasks write, each request in a transaction of its own."""

    def task(
        self,
        arrived: ArrivedRows,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - the contract
    ) -> WriterTask:
        """See `WriterMode.task`."""
        settings = _settings(self, arrived, target.of_batch(batch))
        insert = InsertTask(settings, update=target.options.update_columns, unique_keys=False)
        return WriterTask(batch, tuple(arrived.columns), target, sends=False, insert=insert)

    def write(
        self,
        frame: Any,
        batch: MicroBatch,  # noqa: ARG002 - the contract
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002
        send: SendAhead | None = None,  # noqa: ARG002 - all rows have come
    ) -> list[TargetRows]:
        """See `Mode.write`: the tasks have written."""
        return self.written(target, _written_by_tasks(frame))


class WriterIdempotent(WriterMode, Idempotent):
    """Tasks write by key, or push rows that carry their source."""

    def task(
        self, arrived: ArrivedRows, batch: MicroBatch, target: PreparedTarget, begun: Sessions
    ) -> WriterTask:
        """See `WriterMode.task`.

        Rows of a batch that was begun are sent, since they must be compared before any of them is pushed.
        """
        names = tuple(arrived.columns)
        if target.is_sorted:
            settings = _settings(self, arrived, target, *KEY_HASH_COLUMNS)
            insert = InsertTask(settings, update=target.options.update_columns, unique_keys=True)
            return WriterTask(batch, names, target, sends=False, insert=insert)
        push = self._push_task(arrived, batch, target)
        return WriterTask(batch, names, target, sends=bool(begun), push=push, begun=dict(begun))

    def begun(
        self,
        frame: Any,
        batch: MicroBatch,
        targets: Sequence[PreparedTarget],
        sessions: Callable[[], Sessions],
    ) -> dict[str, dict[str, SessionState]]:
        """See `Mode.begun`; what was there before the tasks wrote comes in their messages."""
        return {} if frame.messages else super().begun(frame, batch, targets, sessions)

    def write(
        self,
        frame: Any,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - those that the tasks were planned with count
        send: SendAhead | None = None,  # noqa: ARG002 - all rows have come
    ) -> list[TargetRows]:
        """See `Mode.write`: the tasks have written, unless the batch was begun before."""
        arrived: ArrivedRows = frame
        if any(message.begun for message in arrived.messages):
            return self.written(target, self._push_arrived(arrived, batch, target))
        report = _written_by_tasks(arrived)
        if target.is_sorted:
            require_unique(unpack_hashes(report.key_hashes), target.path)
        return self.written(target, report)

    def _push_arrived(
        self, arrived: ArrivedRows, batch: MicroBatch, target: PreparedTarget
    ) -> ChunkReport:
        """Compare all rows with those that were pushed before, and push the rest from here."""
        begun = arrived.messages[0].begun
        push = self._push_task(arrived, batch, target)
        names = (*push.settings.names, PARTITION_COLUMN)
        push = replace(push, settings=replace(push.settings, names=names))
        last = {name: state.sequence_number for name, state in begun.items()}
        rehearsal = RehearsalTask(push.settings, push.numbering, last)
        found = [
            row
            for message in arrived.messages
            for report in rehearsal.rehearse(_in_order(message, names), message.task.partition)
            for row in report.to_pylist()
        ]
        require_same_rows(found, begun, push.numbering, target.path)
        return ChunkReport.of_all(
            report
            for message in arrived.messages
            for report in push.push(_in_order(message, names), message.task.partition)
        )

    def _push_task(
        self, arrived: ArrivedRows, batch: MicroBatch, target: PreparedTarget
    ) -> PushTask:
        if not is_numbered_by_source(arrived.columns, batch):
            raise ConfigError(
                "Idempotent mode cannot number the rows in the format yt: only foreachBatch shows whether "
                "they come in the same order again",
                remedy="Read one queue with include_service_columns=true and keep its columns; or use "
                "mode='transactional', or foreachBatch",
                query=batch.query_id,
                target=target.path,
            )
        names = target.plan.names
        numbering = Numbering(batch, by_source=True, plan=target.plan, seed=seed_of(names))
        settings = _settings(self, arrived, target)
        return PushTask(settings, numbering, self.options.producer)


def _settings(mode: Mode, arrived: ArrivedRows, target: PreparedTarget, *more: str) -> TaskSettings:
    placed = [TABLET_COLUMN] * (target.placement.rule in {PRESERVE, ROUND_ROBIN})
    return TaskSettings(
        names=(*arrived.columns, *placed, *more),
        target=target,
        connection=mode.connection,
        dyn_batch_size=target.request_size,
        retry=mode.options.retry,
        connections=mode.options.connections,
    )


def _in_order(message: TaskMessage, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch.select(list(names)) for batch in message.batches())


def _reported(task: TaskIdentity, reports: Iterable[pa.RecordBatch]) -> TaskMessage:
    """Return the message of a task that writes by itself, when it has written."""
    written = tuple(reports)
    return TaskMessage(task, ChunkReport.of_all(written).row_count, reports=written)


def _written_by_tasks(arrived: ArrivedRows) -> ChunkReport:
    return ChunkReport.of_all(report for message in arrived.messages for report in message.reports)


WRITER_MODES: dict[str, Any] = {
    WriteMode.TRANSACTIONAL: WriterTransactional,
    WriteMode.AT_LEAST_ONCE: WriterAtLeastOnce,
    WriteMode.IDEMPOTENT: WriterIdempotent,
}
