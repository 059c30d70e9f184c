"""What runs inside Spark tasks that push: each row goes once through a queue-producer session.

`PushTask` numbers its rows, and the session drops those it has seen. After a run that broke off,
`RehearsalTask` first finds out whether the replay gives the rows that were pushed. Only then the DataFrame is
computed twice. The first time no task sends a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from yt_exactly_once.codec.row_hash import added, spelled
from yt_exactly_once.codec.rows import encode
from yt_exactly_once.errors import (
    FencedError,
    NotOneToOneError,
    ProducerFencedError,
    RequestRefusedError,
)
from yt_exactly_once.observability import Event, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.modes.mode import Rehearsal, RowTask
from yt_exactly_once.spark.modes.sessions import (
    REPEAT,
    SESSION_VERSION,
    NumberedRows,
    Numbering,
    other_rows,
    position_session,
)
from yt_exactly_once.spark.modes.tasks import REPORT_SCHEMA, ChunkReport
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.worker import side_by_side
from yt_exactly_once.ytsaurus.rows import ProducerSession, SessionState, session_prefix

_REHEARSAL = pa.schema({"session": pa.string(), "partition": pa.int64(), "digest": pa.string()})
"""What a task reports to the driver, one row per session."""

_WAY_ON = (
    f"use mode='transactional'. If it finds rows of this batch in the target already, {REPEAT}"
)


@dataclass(frozen=True)
class PushTask(RowTask):
    """Appends rows through queue-producer sessions, each row at most once.

    Rows are numbered by their source (session per queue partition, number = row index there) or by the
    batch (session per Spark partition). Numbers must grow within a session, and the same rows must come
    with the same numbers on a replay: one-to-one flows without a shuffle do. One that differs is refused.

    Attributes:
        is_begun: whether sessions had rows of the batch when it was planned.
        owned: sessions by id as the driver left them, where it does what tasks would do: until somebody takes
            a session over, nobody need ask the cluster for it. `None` in tasks.
    """

    numbering: Numbering
    producer: str
    is_begun: bool = False
    owned: dict[str, ProducerSession] | None = field(default=None, compare=False, repr=False)

    reports = REPORT_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Push the rows of one Spark partition; yield one report per chunk and session."""
        sessions: dict[str, _NumberedSession] = {}
        for chunk in self.numbering.numbered(self.settings.chunks(batches), partition):
            for numbered in chunk:
                if (name := numbered.session) not in sessions:
                    sessions[name] = _NumberedSession(self, name, partition)
            # A small batch has a few rows for each of many sessions, and waits for the cluster.
            pushes = [partial(sessions[numbered.session].push, numbered) for numbered in chunk]
            sent = side_by_side(pushes, self.settings.connections)
            for numbered, byte_count in zip(chunk, sent, strict=True):
                yield ChunkReport.of_chunk(self.settings, numbered.rows, byte_count).to_arrow()
        if not (sessions or self.numbering.source) and (self.is_begun or _is_repeated()):
            # An attempt before this one may have had rows.
            name = position_session(partition)
            sessions[name] = _NumberedSession(self, name, partition)
            sessions[name].open()
        for session in sessions.values():
            session.close()


class _NumberedSession:
    """One session of a task: pushes what the session has not seen, and only that."""

    def __init__(self, task: PushTask, name: str, partition: int) -> None:
        self._task = task
        self._target, self._batch = task.settings.target, task.numbering.batch
        self._name, self._partition = name, partition
        self._session_id = session_prefix(self._batch.query_id, self._target.path) + name
        # Whatever fails with it, the next one asks the cluster.
        self._session = (task.owned or {}).pop(self._session_id, None)
        self._is_owned = self._session is not None
        self._where: dict[str, Any] = {"target": self._target.path, "session": self._session_id}
        self._emit = emitter(**self._where)
        self._last_seen = -1
        self._digest = 0

    def open(self) -> None:
        """Take the session over."""
        retry = self._task.settings.retry
        self._require_ours(run_attempts(lambda _: self._open(), retry, self._emit).state)

    def push(self, numbered: NumberedRows) -> int:
        """Push rows, and return how many bytes they took; a repeated request does not count."""
        numbers = numbered.numbers
        self._sent_bytes = 0
        if len(numbers) == 0:
            return 0
        if numbers[0] <= self._last_seen or (np.diff(numbers) <= 0).any():
            raise NotOneToOneError(
                "Rows do not come in the order of their source, each once",
                remedy=f"Idempotent mode is for flows that neither shuffle nor multiply rows; {_WAY_ON}",
                **self._where,
            )
        self._last_seen = int(numbers[-1])
        try:
            self._push(numbered)
        except (ProducerFencedError, RequestRefusedError) as error:
            # Maybe by a driver or task that woke up after it was replaced. The rows are right whoever owns
            # the session, so this task takes it back; once, or two tasks would do so for ever. A session
            # that was owned may also be gone.
            if not (self._is_owned or isinstance(error, ProducerFencedError)):
                raise
            self._emit(Event.RETRY_SCHEDULED, reason=type(error).__name__, error=str(error))
            self._session = None
            self._push(numbered)
        self._digest = added(self._digest, numbered.row_digests)
        return self._sent_bytes

    def close(self) -> None:
        """Refuse a session that has rows of this batch which the task did not give."""
        if self._session is not None:
            self._require_same_rows(self._session.state, self._digest)
            if self._task.owned is not None:
                self._task.owned[self._session_id] = self._session

    def _push(self, numbered: NumberedRows) -> None:
        retry = self._task.settings.retry
        run_attempts(lambda number: self._attempt(numbered, fresh=number > 1), retry, self._emit)

    def _attempt(self, numbered: NumberedRows, *, fresh: bool) -> None:
        """Push the rows that the session has not seen; after a lost answer ask it which they are."""
        numbers = numbered.numbers
        session = self._open() if self._session is None or fresh else self._session
        state = session.state
        self._require_ours(state)
        skip = int(np.searchsorted(numbers, state.sequence_number, side="right"))
        if skip:
            self._require_later_numbers(state, int(numbers[0]))
            numbered.require_fit()
        if skip == len(numbers):
            return
        seen = added(self._digest, numbered.row_digests[:skip]) if skip else self._digest
        self._require_same_rows(state, seen)
        rest = numbered.rows.slice(skip)
        target, connection = self._target, self._task.settings.connection
        tablets = target.placement.tablets(rest, numbered.home)
        new = pa.array(numbers[skip:])
        payload = encode(rest, target.plan, target.wire, tablet_index=tablets, sequence_numbers=new)
        self._sent_bytes = max(self._sent_bytes, len(payload))
        meta = {
            "format": SESSION_VERSION,
            "run": self._task.settings.run_id,
            "batch": self._batch.batch_id,
            "task": self._partition,
            "digest": spelled(added(self._digest, numbered.row_digests)),
        }
        self._session = session.push(connection, payload, target.wire.value, int(numbers[-1]), meta)

    def _open(self) -> ProducerSession:
        self._session = ProducerSession.create(
            self._task.settings.connection, self._task.producer, self._target.path, self._session_id
        )
        return self._session

    def _require_ours(self, state: SessionState) -> None:
        """Refuse a session that would drop rows of this task, whether it is taken over or was owned."""
        self._require_no_later_batch(state)
        self._require_sole_writer(state)

    def _require_no_later_batch(self, state: SessionState) -> None:
        """Refuse a batch that is behind the session, which would drop all its rows."""
        if state.batch is not None and state.batch > self._batch.batch_id:
            raise FencedError(
                f"Batch {state.batch} was pushed through this session, and this is batch "
                f"{self._batch.batch_id}",
                remedy="Another driver runs on this checkpoint and is ahead: stop one of them. If there "
                "is none, the checkpoint is an older copy: restore the newest one. If the target was put "
                f"back too, {REPEAT}",
                query=self._batch.query_id,
                **self._where,
            )

    def _require_later_numbers(self, state: SessionState, number: int) -> None:
        """Refuse rows that the session would drop although they were never written.

        The numbers of a batch begin after those of earlier batches. If they do not, they count the rows of
        another queue: somebody wrote columns of that name into this one.
        """
        if state.batch is not None and state.batch < self._batch.batch_id:
            raise NotOneToOneError(
                f"A row has the number {number}, and batch {state.batch} went up to "
                f"{state.sequence_number}: the numbers are not those of the source that is read",
                remedy=self._task.numbering.other_numbers,
                **self._where,
            )

    def _require_sole_writer(self, state: SessionState) -> None:
        """Refuse a session that two tasks of one job share: it would drop rows of one of them.

        Another run may spread the same rows over other tasks.
        """
        ours = (state.run, state.batch) == (self._task.settings.run_id, self._batch.batch_id)
        if ours and state.task != self._partition:
            raise NotOneToOneError(
                f"Rows of one source partition are in the Spark partitions {state.task} and "
                f"{self._partition}",
                remedy=f"Idempotent mode is for flows that do not shuffle; {_WAY_ON}",
                **self._where,
            )

    def _require_same_rows(self, state: SessionState, digest: int) -> None:
        """Refuse rows that differ from those of this batch that the session has, unless these are gone."""
        if self._name in self._task.numbering.gone:
            return
        has = state.digest if state.batch == self._batch.batch_id else spelled(0)
        if has != spelled(digest):
            why = "this attempt gives other rows in their place, or in another order"
            raise other_rows(why, self._task.numbering, self._target.path, self._session_id)


@dataclass(frozen=True)
class RehearsalTask(Rehearsal):
    """Reports, for each session, the digest of those rows of the task that the session has."""

    numbering: Numbering
    sessions: Mapping[str, SessionState]

    reports = spark_schema_of(_REHEARSAL)

    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Report about the rows of one Spark partition."""
        digests = dict[str, int]()
        last = {name: state.sequence_number for name, state in self.sessions.items()}
        for chunk in self.numbering.numbered(self.settings.chunks(batches), partition):
            for numbered in chunk:
                numbered.require_fit()
                seen = numbered.numbers <= last.get(numbered.session, -1)
                digest = digests.get(numbered.session, 0)
                digests[numbered.session] = added(digest, numbered.row_digests[seen])
        reports = [
            {"session": name, "partition": partition, "digest": spelled(digest)}
            for name, digest in digests.items()
        ]
        yield pa.RecordBatch.from_pylist(reports, schema=_REHEARSAL)

    def require_same_rows(self, reports: Iterable[pa.RecordBatch]) -> None:
        """Refuse a replay whose sessions have other rows, or more."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for row in chain.from_iterable(report.to_pylist() for report in reports):
            found.setdefault(row["session"], []).append(row)
        for name, state in self.sessions.items():
            tasks = found.get(name, [])
            is_gone = name in self.numbering.gone and len(tasks) <= 1
            if is_gone or (len(tasks) == 1 and tasks[0]["digest"] == state.digest):
                continue
            if not tasks:
                why = "no task of this replay gives them"
            elif len(tasks) > 1:
                partitions = " and ".join(str(row["partition"]) for row in tasks)
                why = f"this replay gives them in the Spark partitions {partitions}"
            else:
                why = "this replay gives other rows in their place, or in another order"
            raise other_rows(why, self.numbering, self.settings.target.path, name)


def _is_repeated() -> bool:
    context = TaskContext.get()
    return context is not None and bool(context.attemptNumber())
