"""Which calls of sinks a run of a query has made: Spark runs every batch once, so a sink is called once.

One registry serves the whole process. So a function may call one sink object twice, copies of it, or a new
one each time, from any thread: all calls are counted. The notes in the query's checkpoint keep what must
outlive the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.notes import ONE_CALL, Note, NoteKind, Notes, newest_committed, settle
from yt_exactly_once.errors import ExactlyOnceError, IncompleteBatchError, RepeatedCallError
from yt_exactly_once.observability import Emitter, Event
from yt_exactly_once.spark.query.offset_log import RunningBatch


class LedgerKey(NamedTuple):
    """What a sink writes for one target; of two sinks with the same, one would hide the other."""

    cluster: str
    ledger: str
    target: str


@dataclass
class _Row:
    """What one run has done about one ledger row.

    Attributes:
        newest: newest batch that a sink was called for.
        running: batch of the call under way.
        failed: oldest batch whose last call failed.
        refused: batch whose second call was refused.
        commits_sent: see `Call.commits_sent`; of the newest batch.
        compared: whether the notes were compared with the ledger.
        committed: the note of the newest committed batch.
    """

    newest: int | None = None
    running: int | None = None
    failed: int | None = None
    refused: int | None = None
    commits_sent: dict[str, str | None] = field(default_factory=dict)
    compared: bool = False
    committed: Note | None = None


class Call:
    """One call of a sink.

    Attributes:
        running: the batch of the call.
        commits_sent: transactions whose commit was sent for this batch by this run, with a digest of what
            they carried; the digest is empty for those of this very call.
        is_first: whether the notes are still to be compared with the ledger.
        is_repeated: whether a call for this batch failed before, in this run.
    """

    def __init__(
        self, running: RunningBatch, keys: Sequence[LedgerKey], rows: Sequence[_Row]
    ) -> None:
        self.running = running
        self._keys = keys
        self._rows = rows
        self.commits_sent = {
            key: digest
            for row in rows
            if row.newest == running.batch_id
            for key, digest in row.commits_sent.items()
        }
        self.is_repeated = any(row.failed == running.batch_id for row in rows)

    @property
    def is_first(self) -> bool:
        """Whether no call of this run has compared the notes with the ledger."""
        return not all(row.compared for row in self._rows)

    def has_sent_commit(self, entry: LedgerEntry | None) -> bool:
        """Return whether an earlier call of this run for this batch has written an entry."""
        return entry is not None and entry.transaction_id in self.commits_sent

    def compared(self, notes: Collection[Note]) -> None:
        """Remember that the notes agree with the ledger."""
        for key, row in zip(self._keys, self._rows, strict=True):
            row.compared = True
            row.committed = newest_committed(notes, key.target)

    def note_committed(self) -> None:
        """Note that the ledger has the batch, before Spark can log it as done."""
        for key, row in zip(self._keys, self._rows, strict=True):
            note = _note(NoteKind.COMMITTED, key, self.running.batch_id)
            if row.committed != note:
                text = f"The newest batch of {key.target} in the ledger {key.ledger}: see the name"
                self.running.log.notes.add(note, text, row.committed)
                row.committed = note


class Calls:
    """The calls of all runs of all queries in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[tuple[str, str], dict[LedgerKey, _Row]] = {}

    @contextmanager
    def call(
        self, running: RunningBatch, keys: Sequence[LedgerKey], emit: Emitter, ledger_notes: Notes
    ) -> Iterator[Call]:
        """Let one call through, or refuse it.

        Args:
            emit: gets `note.failed` when the checkpoint does not take a note.
            ledger_notes: takes the notes that the checkpoint refuses.

        Raises:
            RepeatedCallError: a sink was called for this batch already.
            IncompleteBatchError: an earlier batch of this run is not whole.
        """
        with self._lock:
            rows = self._rows_of(running, keys)
            refusal, notes = _refusal(running, keys, rows)
            call = Call(running, keys, rows)
            if refusal is None:
                for row in rows:
                    row.newest = row.running = running.batch_id
        if refusal is not None:
            _keep(running, ledger_notes, notes, refusal, emit)
            raise refusal
        try:
            yield call
        except BaseException as error:
            # Before Spark logs the batch, which it does when the function swallows the error.
            refused = isinstance(error, RepeatedCallError)
            kind = NoteKind.REFUSED if refused else NoteKind.FAILED
            notes = [_note(kind, key, running.batch_id) for key in keys]
            _keep(running, ledger_notes, notes, error, emit)
            self._end(running, rows, call, kind)
            raise
        self._end(running, rows, call, None)

    def _rows_of(self, running: RunningBatch, keys: Sequence[LedgerKey]) -> list[_Row]:
        run = running.query_id, running.run_id
        if run not in self._runs:
            self._runs = {
                other: rows
                for other, rows in self._runs.items()
                if other[0] != run[0] or any(row.running is not None for row in rows.values())
            }
        known = self._runs.setdefault(run, {})
        return [known.setdefault(key, _Row()) for key in keys]

    def _end(
        self, running: RunningBatch, rows: Sequence[_Row], call: Call, noted: NoteKind | None
    ) -> None:
        number = running.batch_id
        with self._lock:
            for row in rows:
                row.running = None
                if row.newest == number:
                    row.commits_sent = call.commits_sent
                if noted is NoteKind.REFUSED:
                    row.refused = number
                elif noted is NoteKind.FAILED:
                    row.failed = number if row.failed is None else min(row.failed, number)
                elif row.failed == number:
                    # A later batch was refused in the meantime, and is still to be written.
                    row.failed = row.newest if row.newest != number else None


PROCESS_CALLS = Calls()
"""The calls of this process."""


def _refusal(
    running: RunningBatch, keys: Sequence[LedgerKey], rows: Sequence[_Row]
) -> tuple[ExactlyOnceError | None, list[Note]]:
    """Return why a call must not begin, and the notes of that."""
    found = [(key, row, _judge(running, key, row)) for key, row in zip(keys, rows, strict=True)]
    refusal = next((error for _, _, error in found if error is not None), None)
    if refusal is None:
        return None, []
    notes = []
    for key, row, error in found:
        if isinstance(error, RepeatedCallError):
            assert row.newest is not None
            row.refused = row.newest
            notes.append(_note(NoteKind.REFUSED, key, row.newest))
            continue
        row.newest = running.batch_id
        row.failed = running.batch_id if row.failed is None else row.failed
        notes.append(_note(NoteKind.FAILED, key, running.batch_id))
    return refusal, notes


def _judge(running: RunningBatch, key: LedgerKey, row: _Row) -> ExactlyOnceError | None:
    number = running.batch_id
    named = {"target": key.target, "ledger": key.ledger}
    where: dict[str, Any] = {"query": running.query_id, "batch": number, **named}
    if row.newest is not None and (
        number < row.newest or (number == row.newest and row.failed != number)
    ):
        under_way = "is under way" if row.running == number else "was made"
        return RepeatedCallError(
            f"A call for this batch and target {under_way} in this run"
            if number == row.newest
            else f"The sink was called for batch {number} after batch {row.newest}",
            remedy=f"{ONE_CALL}. {settle(range(row.newest, row.newest + 1))}",
            **where,
        )
    if row.running is not None:
        return IncompleteBatchError(
            f"Batch {row.running} is still being written by another thread",
            remedy="The function returned before its sink did, so Spark counts the batch as done. Wait "
            "in the function for every sink that it calls, and let errors through",
            **where,
        )
    broken = row.refused if row.refused is not None else row.failed
    if broken is None or broken == number:
        return None
    return IncompleteBatchError(
        f"Batch {broken} was not written, and the function ended without an error",
        remedy=f"Let the errors of the sink out of the function. {settle(range(broken, number))}",
        **where,
    )


def _note(kind: NoteKind, key: LedgerKey, number: int) -> Note:
    return Note.about(kind, key.target, key.ledger, number)


def _keep(
    running: RunningBatch,
    ledger_notes: Notes,
    notes: Sequence[Note],
    error: BaseException,
    emit: Emitter,
) -> None:
    """Keep notes where they outlive this process, before Spark can log the batch."""
    text = f"{type(error).__name__}: {error}"
    for note in notes:
        failures = []
        # The checkpoint may be writable again once the other notes have used up its retries.
        for keeper in (running.log.notes, ledger_notes, running.log.notes):
            try:
                keeper.add(note, text)
                break
            except Exception as failure:  # noqa: BLE001 - the error that is noted matters more
                failures.append(str(failure))
        if failures:
            kept = ("checkpoint", "ledger", "checkpoint", "memory")[len(failures)]
            emit(Event.NOTE_FAILED, note=note.name, kept=kept, error="; ".join(failures))
