"""What runs inside Spark tasks in the modes that write from there.

A task may be retried, re-run or duplicated by Spark. `InsertTask` accepts that its rows may then be
there twice (at-least-once), or relies on keys to overwrite them with themselves. `PushTask` numbers its
rows and lets a queue-producer session drop those it has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, LongType, StructType

from yt_exactly_once.codec.reserved import RESERVED_PREFIX
from yt_exactly_once.codec.rows import encode
from yt_exactly_once.codec.schema import SOURCE_ROW_COLUMN, SOURCE_TABLET_COLUMN
from yt_exactly_once.errors import FencedError, NotOneToOneError, ProducerFencedError
from yt_exactly_once.observability import Event, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.sink.encode import chunks
from yt_exactly_once.spark.sink.row_digest import added, spelled
from yt_exactly_once.spark.sink.sessions import REPEAT, other_rows, position_session, session_prefix
from yt_exactly_once.ytsaurus.rows import ProducerSession, insert_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.spark.sink.sessions import NumberedRows, Numbering
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.rows import SessionState

REPORT_SCHEMA = StructType().add("row_count", LongType()).add("key_hashes", BinaryType())
"""What a task tells the driver, one row per chunk it wrote."""

KEY_HASH_COLUMNS = (f"{RESERVED_PREFIX}key_hash_64", f"{RESERVED_PREFIX}key_hash_32")
"""Two hashes of a row's key, 96 bits together, added to the frame by the driver."""

_WAY_ON = (
    f"use mode='transactional'. If it finds rows of this batch in the target already, {REPEAT}"
)

_REPORT = pa.schema([("row_count", pa.int64()), ("key_hashes", pa.binary())])


@dataclass(frozen=True)
class TaskSettings:
    """What every writing task needs.

    Attributes:
        names: columns of the batches the task gets, in order.
        target: where to write.
        connection: the cluster; opened in the worker.
        dyn_batch_size: rows per request.
        retry: how often a request is repeated.
    """

    names: tuple[str, ...]
    target: PreparedTarget
    connection: Connection
    dyn_batch_size: int
    retry: RetryPolicy

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cut the rows of the task into chunks under their real names."""
        for chunk in chunks(batches, self.dyn_batch_size):
            yield chunk.rename_columns(list(self.names))


@dataclass(frozen=True)
class InsertTask:
    """Writes chunks, each in a transaction of its own that the proxy begins and commits.

    Attributes:
        settings: see there.
        update: keep the columns that the frame does not have.
        unique_keys: refuse two rows with one key, as far as this task sees them, and report hashes.
    """

    settings: TaskSettings
    update: bool
    unique_keys: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; yield one report per chunk."""
        settings, target = self.settings, self.settings.target
        partition, emit = partition_id(), emitter(target=target.path)
        for chunk in settings.chunks(batches):
            hashes = key_hashes(chunk) if self.unique_keys else None
            if hashes is not None:
                require_unique(hashes, target.path)
            placed = target.placement.tablets(chunk)
            tablets = target.placement.tablet(partition) if placed is None else placed
            payload = encode(chunk, target.plan, target.wire, tablet_index=tablets)

            def insert(_: int, payload: bytes = payload) -> None:
                insert_payload(
                    settings.connection,
                    target.path,
                    payload,
                    target.wire.value,
                    update=self.update,
                )

            run_attempts(insert, settings.retry, emit)
            yield _report(chunk.num_rows, hashes)


@dataclass(frozen=True)
class PushTask:
    """Appends rows through queue-producer sessions, each row at most once.

    Rows are numbered by their source (session per queue partition, number = row index there) or by the
    batch (session per Spark partition). Numbers must grow within a session, and the same rows must come
    with the same numbers on a replay: one-to-one flows without a shuffle do. One that differs is refused.

    Attributes:
        settings: see there.
        numbering: how rows are numbered.
        producer: path of the producer table.
    """

    settings: TaskSettings
    numbering: Numbering
    producer: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push all rows of the task; yield one report per chunk."""
        partition = partition_id()
        sessions: dict[str, _NumberedSession] = {}
        for parts in self.numbering.numbered(self.settings.chunks(batches), partition):
            for part in parts:
                if part.session not in sessions:
                    sessions[part.session] = _NumberedSession(
                        self, part.session, part.home, partition
                    )
                sessions[part.session].push(part)
            yield _report(sum(len(part.numbers) for part in parts), None)
        if not (sessions or self.numbering.by_source) and _is_repeated():
            # The attempt before this one may have had rows.
            name = position_session(partition)
            sessions[name] = _NumberedSession(self, name, partition, partition)
            sessions[name].open()
        for session in sessions.values():
            session.close()


class _NumberedSession:
    """One session of a task: pushes what the session has not seen, and only that."""

    def __init__(self, task: PushTask, name: str, home: int, partition: int) -> None:
        self._task = task
        self._target = task.settings.target
        self._tablet = self._target.placement.tablet(home)
        self._partition = partition
        self._name = name
        self._session_id = session_prefix(task.numbering.batch.query_id, self._target.path) + name
        self._emit = emitter(target=self._target.path, session=self._session_id)
        self._session: ProducerSession | None = None
        self._last_seen = -1
        self._digest = 0

    def open(self) -> None:
        """Take the session over."""
        run_attempts(lambda _: self._open(), self._task.settings.retry, self._emit)

    def push(self, part: NumberedRows) -> None:
        numbers = part.numbers
        if len(numbers) == 0:
            return
        if numbers[0] <= self._last_seen or (np.diff(numbers) <= 0).any():
            raise NotOneToOneError(
                "Rows do not come in the order of their source, each once",
                remedy=f"Idempotent mode is for flows that neither shuffle nor multiply rows; {_WAY_ON}",
                target=self._target.path,
                session=self._session_id,
            )
        self._last_seen = int(numbers[-1])
        try:
            self._push(part)
        except ProducerFencedError as error:
            # Maybe by a driver or task that woke up and does not know that it was replaced. Rows are
            # right whoever owns the session, so it is taken back; once, or two would do so for ever.
            self._emit(Event.RETRY_SCHEDULED, reason=type(error).__name__, error=str(error))
            self._session = None
            self._push(part)
        self._digest = added(self._digest, part.parts)

    def close(self) -> None:
        """Find out that the session has rows of this batch which the task did not give."""
        if self._session is not None:
            self._require_same_rows(self._session.state, self._digest)

    def _push(self, part: NumberedRows) -> None:
        run_attempts(
            lambda number: self._attempt(part, fresh=number > 1),
            self._task.settings.retry,
            self._emit,
        )

    def _attempt(self, part: NumberedRows, *, fresh: bool) -> None:
        """Push the rows that the session has not seen; after a lost answer ask it which they are."""
        connection, numbers = self._task.settings.connection, part.numbers
        session = self._open() if self._session is None or fresh else self._session
        state = session.state
        skip = int(np.searchsorted(numbers, state.sequence_number, side="right"))
        if skip:
            self._require_later_numbers(state, int(numbers[0]))
        if skip == len(numbers):
            return
        self._require_same_rows(state, added(self._digest, part.parts[:skip]))
        unseen = part.rows.slice(skip)
        placed = self._target.placement.tablets(unseen)
        payload = encode(
            unseen,
            self._target.plan,
            self._target.wire,
            tablet_index=self._tablet if placed is None else placed,
            sequence_numbers=pa.array(numbers[skip:]),
        )
        self._session = session.push(
            connection,
            payload,
            self._target.wire.value,
            int(numbers[-1]),
            {
                "run": self._batch.run_id,
                "batch": self._batch.batch_id,
                "task": self._partition,
                "digest": spelled(added(self._digest, part.parts)),
            },
        )

    def _open(self) -> ProducerSession:
        self._session = ProducerSession.create(
            self._task.settings.connection,
            self._task.producer,
            self._target.path,
            self._session_id,
        )
        self._require_no_later_batch(self._session.state)
        self._require_sole_writer(self._session.state)
        return self._session

    @property
    def _batch(self) -> MicroBatch:
        return self._task.numbering.batch

    def _require_no_later_batch(self, state: SessionState) -> None:
        """Find out that this batch is a matter of the past: all its rows would be dropped."""
        if state.batch is not None and state.batch > self._batch.batch_id:
            raise FencedError(
                f"Batch {state.batch} was pushed through this session, and this is batch "
                f"{self._batch.batch_id}",
                remedy="Another driver runs on this checkpoint and is ahead: stop one of them. If there "
                "is none, the checkpoint is an older copy: restore the newest one",
                query=self._batch.query_id,
                target=self._target.path,
                session=self._session_id,
            )

    def _require_later_numbers(self, state: SessionState, number: int) -> None:
        """Find out that rows which nobody has written would be dropped as if they had been.

        A batch begins after the numbers of the batches before it, unless they count the rows of another
        queue: this one may hold columns of that name, from whoever filled it.
        """
        if state.batch is not None and state.batch < self._batch.batch_id:
            raise NotOneToOneError(
                f"A row has the number {number}, and batch {state.batch} went up to "
                f"{state.sequence_number}: the numbers are not those of the queue that is read",
                remedy=f"Rename {SOURCE_TABLET_COLUMN} and {SOURCE_ROW_COLUMN} in the DataFrame, unless "
                "they come from include_service_columns=true of this query's own source; or use "
                "mode='transactional'",
                target=self._target.path,
                session=self._session_id,
            )

    def _require_sole_writer(self, state: SessionState) -> None:
        """Find out that two tasks of one job share a session: their rows would drop each other.

        Another run may spread the same rows over other tasks.
        """
        ours = (state.run, state.batch) == (self._batch.run_id, self._batch.batch_id)
        if ours and state.task != self._partition:
            raise NotOneToOneError(
                f"Rows of one source partition are in the Spark partitions {state.task} and "
                f"{self._partition}",
                remedy=f"Idempotent mode is for flows that do not shuffle; {_WAY_ON}",
                target=self._target.path,
                session=self._session_id,
            )

    def _require_same_rows(self, state: SessionState, digest: int) -> None:
        """Find out that the rows of this batch that the session has are not those of this task."""
        has = state.digest if state.batch == self._batch.batch_id else spelled(0)
        if has != spelled(digest):
            raise other_rows(
                "this attempt gives other rows in their place, or in another order",
                self._task.numbering,
                self._target.path,
                self._session_id,
            )


def key_hashes(chunk: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Return the keys' hashes, one 12-byte record per row."""
    wide, narrow = (chunk.column(name).to_numpy() for name in KEY_HASH_COLUMNS)
    packed = np.empty(chunk.num_rows, dtype=[("wide", "<i8"), ("narrow", "<i4")])
    packed["wide"], packed["narrow"] = wide, narrow
    return packed


def require_unique(hashes: np.ndarray[Any, Any], target: str) -> None:
    """Check that no key occurs twice.

    Raises:
        NotOneToOneError: one does.
    """
    repeated = len(hashes) - len(np.unique(hashes))
    if repeated:
        raise NotOneToOneError(
            f"{repeated} rows of the batch have the key of another row of it",
            remedy="Idempotent mode writes each key once per batch; make the keys unique, or use "
            "mode='transactional', where the last row of a key wins",
            target=target,
        )


def unpack_hashes(packed: Iterable[bytes]) -> np.ndarray[Any, Any]:
    """Return what tasks reported as one array."""
    return np.frombuffer(b"".join(packed), dtype=[("wide", "<i8"), ("narrow", "<i4")])


def partition_id() -> int:
    """Return the number of the Spark partition that this task computes."""
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    return context.partitionId()


def _is_repeated() -> bool:
    context = TaskContext.get()
    return context is not None and bool(context.attemptNumber())


def _report(row_count: int, hashes: np.ndarray[Any, Any] | None) -> pa.RecordBatch:
    packed = None if hashes is None else hashes.tobytes()
    return pa.RecordBatch.from_arrays(
        [pa.array([row_count], pa.int64()), pa.array([packed], pa.binary())], schema=_REPORT
    )
