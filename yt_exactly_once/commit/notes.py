"""Notes beside Spark's own logs: batches that are incomplete, the newest committed one, and ledgers in use.

Before the first row of a run they are compared with the ledger: is every batch before this one complete?
Afterwards a run knows what it has written.

The ledger cannot hold these: it does not answer while the cluster is unavailable, and it may be removed.
Spark's checkpoint is always available, because Spark cannot finish a batch without it. All that matters is
in the name of a note's file, which a file system creates atomically. Notes are never removed: the ledger's
entry decides whether a note still counts. Only the note of a committed batch is renamed for the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

from yt_exactly_once import advice, errors
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.config import DeliveryMode

FOLDER = "yt_exactly_once"
"""Name of the folder in the checkpoint; Spark ignores what it does not know there."""

NOTES_VERSION = 1
"""Format of the notes. Raise it when an earlier version would misread one."""


BEGAN = "began"
"""Name of the producer session of a query without rows: a table that has lost it has lost others, too."""


class NoteKind(StrEnum):
    """What a note says about a batch.

    Attributes:
        FAILED: a call for the batch failed. Counts until the ledger has the batch or a later one.
        REFUSED: a second call for the batch was refused. Counts until the ledger has a later batch, since
            the batch in the ledger lacks the rows of the second call.
        LEDGER: the batch was the first one that was about to be committed with a ledger.
        CLUSTER: the same for a cluster.
        PRODUCER: the same for a producer table, and again for each batch that returns to it from another
            mode. The session `BEGAN` was there before.
        COMMITTED: the batch is the newest one that the ledger has, or had. Spark logs it only after this.
    """

    FAILED = "failed"
    REFUSED = "refused"
    LEDGER = "ledger"
    CLUSTER = "cluster"
    PRODUCER = "producer"
    COMMITTED = "committed"


@dataclass(frozen=True)
class Note:
    """One note.

    Attributes:
        target: short digest of the target's path.
        ledger: short digest of the ledger's path, or of the producer's.
        object_id: of the table for `LEDGER` and `PRODUCER`, of the cluster's `//sys` for `CLUSTER`.
    """

    kind: NoteKind
    target: str
    ledger: str
    batch: int
    object_id: str = ""

    @classmethod
    def about(
        cls, kind: NoteKind, target: str, ledger: str, batch: int, object_id: str = ""
    ) -> Self:
        """Return the note about a target and a ledger, given by their paths."""
        return cls(kind, digest_of_path(target), digest_of_path(ledger), batch, object_id)

    @property
    def name(self) -> str:
        """Name of its file."""
        version, kind = f"v{NOTES_VERSION}", self.kind.value
        fields = (version, kind, self.target, self.ledger, str(self.batch), self.object_id)
        return "-".join(filter(None, fields))

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Read a file's name; return `None` if it is no note, raise `NewerFormatError` for a newer one."""
        version, _, rest = name.partition("-")
        if version[:1] != "v" or not version[1:].isdecimal():
            return None
        errors.require_known_format(
            int(version[1:]), NOTES_VERSION, "A note in the checkpoint", note=name
        )
        kind, *fields = rest.split("-", 4)
        if kind not in set(NoteKind) or len(fields) < 3 or not fields[2].isdigit():  # noqa: PLR2004 - target, ledger, batch
            return None
        return cls(NoteKind(kind), fields[0], fields[1], int(fields[2]), *fields[3:])


Sessions = Mapping[str, Mapping[str, int | None]]
"""By ordered target: the producer sessions of a query by name, with the batch of their last push."""


class Notes(Protocol):
    """The notes of one query; they live as long as its checkpoint."""

    def all(self) -> Sequence[Note]:
        """Return every note."""

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        """Keep a note, with a text for people; or have it take the place of another one."""


def missing_batches(
    notes: Iterable[Note], target: str, ledger: str, committed: int | None, number: int
) -> range:
    """Return the batches that a target lacks rows of; an empty range without any.

    Args:
        committed: newest batch in the ledger; `None` without an entry. Notes made with another ledger
            count then too: a new ledger hides no gap.
    """
    newest = -1 if committed is None else committed
    firsts = [
        note.batch
        for note in notes
        if note.target == digest_of_path(target)
        and (note.ledger == digest_of_path(ledger) or committed is None)
        and (
            (note.kind in {NoteKind.FAILED, NoteKind.REFUSED} and newest < note.batch < number)
            or (note.kind is NoteKind.REFUSED and note.batch == newest)
        )
    ]
    if not firsts:
        return range(0)
    return range(min(firsts), max(min(firsts) + 1, number))


def digest_of_path(path: str) -> str:
    """Return a short digest of a path, for the name of a file."""
    return hashlib.sha256(path.encode()).hexdigest()[:16]


ONE_CALL = (
    "Call one sink once per batch and target: give one sink several Targets, or join the DataFrames with "
    "union. Or give each sink its own target, and set advance_consumer=False for all but the last"
)
"""How to write several DataFrames of one batch."""


def settle(missing: range) -> str:
    """Return what to do about batches that a target lacks rows of."""
    return (
        f"Then settle {_named(missing)}: let Spark replay what was not written, write the missing rows "
        "yourself, or accept the loss. In the last two cases start with "
        f"accept_incomplete={_value(missing)}. The steps are in how-to/recover.md, section 'A batch is "
        "incomplete'"
    )


def _named(batches: range) -> str:
    first, last = batches[0], batches[-1]
    return f"batches {first} to {last}" if first < last else f"batch {first}"


def _value(batches: range) -> str:
    """Return the value of `accept_incomplete`."""
    first, last = batches[0], batches[-1]
    return f"({first}, {last})" if first < last else str(first)


def newest_committed(notes: Collection[Note], target: str) -> Note | None:
    """Return the note of the newest committed batch of a target, with whatever ledger."""
    noted = _used(notes, target, NoteKind.COMMITTED)
    return max(noted, key=lambda note: note.batch, default=None)


@dataclass(frozen=True)
class History:
    """What the notes of a query say beside its ledger, before the first row of a run.

    Attributes:
        notes: all of the query.
        batch: the first one of the run.
        ledger_id: object id of the ledger table.
        accepted: batches that the user has settled.
        may_be_written: returns whether an earlier run may have written the batch, by what Spark says; it is
            told whether no sink has used the checkpoint.
    """

    notes: Collection[Note]
    batch: MicroBatch
    ledger: CommitLedger
    ledger_id: str
    accepted: Collection[int]
    may_be_written: Callable[[bool], bool]

    def require_same_cluster(self, cluster_id: str) -> None:
        """Raise `ConfigError` if the cluster is not the one that the query has written last."""
        for target in self.ledger.targets:
            noted = _used(self.notes, target, NoteKind.CLUSTER)
            if noted and cluster_id not in {note.object_id for note in noted}:
                raise errors.ConfigError(
                    "The proxy belongs to another cluster: the query has written to its own one since batch "
                    f"{max(note.batch for note in noted)}",
                    remedy=advice.OTHER_CLUSTER,
                    **self.batch.where,
                    target=target,
                )

    def require_whole(self, entry: LedgerEntry | None) -> None:
        """Raise `IncompleteBatchError` if a batch before this one lacks rows in a target."""
        committed = None if entry is None else entry.batch_id
        for target in self.ledger.targets:
            missing = missing_batches(
                self.notes, target, self.ledger.path, committed, self.batch.batch_id
            )
            if set(missing) <= set(self.accepted):
                continue
            raise errors.IncompleteBatchError(
                f"The target lacks rows of batch {missing[0]}, but the query has continued after it"
                if committed is None or committed < missing[0]
                else f"The target lacks rows of batch {missing[0]}: a second call for it was refused",
                remedy="Call the sink once per batch and target, and do not catch its errors. "
                f"{settle(missing)}",
                **self._where(target),
            )

    def require_ledger(self, *, may_be_new: bool, has_rows: Callable[[str], bool]) -> None:
        """Check that a ledger without an entry never had one.

        Args:
            may_be_new: whether the query may begin with this ledger on purpose.
            has_rows: returns whether a target may have been written by anybody.

        Raises:
            LedgerMissingError: it may have had one; then a replay would not be recognised.
        """
        is_unused = all(note.kind is not NoteKind.LEDGER for note in self.notes)
        path = digest_of_path(self.ledger.path)
        for target in self.ledger.targets:
            used = _used(self.notes, target)
            first = {note.object_id: note.batch for note in used if note.ledger == path}
            if first:
                since, number = first.get(self.ledger_id), self.batch.batch_id
                if since is not None and set(range(since, number)) <= set(self.accepted):
                    continue
                raise errors.LedgerMissingError(
                    "The ledger has no entry of this query, although the query has used it since batch "
                    f"{min(first.values())}",
                    remedy=f"Restore the ledger. {_LOST}",
                    **self._where(target),
                )
            if may_be_new:
                continue
            # A sink with another target has used the checkpoint: this one may have been changed by mistake.
            if used or (self.may_be_written(is_unused) and (not is_unused or has_rows(target))):
                raise errors.LedgerMissingError(
                    "The query has used another ledger for this target"
                    if used
                    else "The ledger has no entry of this query, although Spark's log has earlier batches "
                    "of it",
                    remedy="If proxy, ledger_path, the target or the checkpoint location was changed by "
                    f"mistake, change it back. {_LOST}",
                    **self._where(target),
                )

    def require_newest(self, entry: LedgerEntry, *, may_be_new: bool) -> None:
        """Check that the ledger has the newest batch that was committed; its own id proves nothing.

        Args:
            may_be_new: whether the target may lack the batches from this one on, or have them twice.

        Raises:
            LedgerMissingError: rows of the ledger were put back from a copy. Batches before this one would
                be lost if the target was put back too, and later ones repeated if it was not.
        """
        number, has = self.batch.batch_id, entry.batch_id
        for target in self.ledger.targets:
            note = newest_committed(self.notes, target)
            if note is None or note.batch <= has:
                continue
            newest = note.batch
            missing = range(has + 1, min(newest + 1, number))
            what = (
                f"The ledger ends at batch {has}, and the query has committed batch {newest}: somebody put "
                "an older copy back"
            )
            if not set(missing) <= set(self.accepted):
                raise errors.LedgerMissingError(
                    what,
                    remedy=f"{_NEWEST_LEDGER} {_named(missing)}. If they are there, start with "
                    f"accept_incomplete={_value(missing)}. "
                    "If not, the target is an older copy too: let Spark repeat what it lacks. The steps are "
                    f"in {_PUT_BACK}",
                    **self._where(target),
                )
            if newest >= number and not may_be_new:
                raise errors.LedgerMissingError(
                    what,
                    remedy=f"{_NEWEST_LEDGER} {_named(range(max(number, has + 1), newest + 1))}. If they "
                    f"are not there, start with new_ledger=True: the query writes them again. "
                    f"The steps are in {_PUT_BACK}",
                    **self._where(target),
                )

    def require_same_ledger(self, entry: LedgerEntry) -> None:
        """Raise `LedgerMissingError` if another table was used last, and this may lack a replayed batch.

        A copy is another object. The batch that Spark replays may be missing in it, and be in the target.
        """
        if entry.batch_id >= self.batch.batch_id:
            return
        for target in self.ledger.targets:
            used = _used(self.notes, target)
            others = [note.batch for note in used if note.object_id != self.ledger_id]
            is_noted = len(others) < len(used)
            is_other = others and (max(others) > entry.batch_id or not is_noted)
            if is_other and self.may_be_written(False):
                raise errors.LedgerMissingError(
                    f"The query has used another ledger table since batch {max(others)}. This one ends at "
                    f"batch {entry.batch_id}: it may be a copy that lacks this batch",
                    remedy="Put the original table back. If this is all there is, first make sure that the "
                    "target does not have the rows of this batch: the query writes them again. Then start "
                    "with new_ledger=True. The steps are in how-to/recover.md, section 'A ledger is missing'",
                    **self._where(target),
                )

    def require_sessions(
        self, entry: LedgerEntry | None, producer_id: str, sessions: Sessions
    ) -> None:
        """Check that the producer sessions are there which may have rows of this batch.

        Args:
            producer_id: object id of the producer table.
            sessions: of the query, see `Sessions`.

        Raises:
            LedgerMissingError: they are gone, and the rows would be pushed again.
        """
        number = self.batch.batch_id
        for target, found in sessions.items():
            lost = self._lost_sessions(entry, producer_id, target, found)
            if lost and (entry is None or entry.batch_id < number):
                raise errors.LedgerMissingError(
                    f"{lost}, and this batch may have been pushed before",
                    remedy="Put the newest producer back. If it is lost, look in the target for the rows of "
                    f"batch {number}. If none is there, start with new_ledger=True: the query pushes them "
                    "again. The steps are in how-to/recover.md, section 'A producer is missing'",
                    **self._where(target),
                )

    def _lost_sessions(
        self,
        entry: LedgerEntry | None,
        producer_id: str,
        target: str,
        found: Mapping[str, int | None],
    ) -> str:
        """Return what is wrong with the sessions of a target, or nothing."""
        done = -1 if entry is None else entry.batch_id
        used = _used(self.notes, target, NoteKind.PRODUCER)
        since = min((one.batch for one in used if one.object_id == producer_id), default=None)
        others = max((one.batch for one in used if one.object_id != producer_id), default=-1)
        # After a batch in another mode, one that is pushed is noted first.
        has_pushed = entry is None or entry.mode == DeliveryMode.IDEMPOTENT
        if not used or not (has_pushed or max(one.batch for one in used) > done):
            return ""
        if since is None or others > done:
            return "Another table is in the place of the producer"
        if BEGAN not in found:
            return "The producer has lost the sessions of this query"
        newest = max((batch for batch in found.values() if batch is not None), default=-1)
        had_rows = entry is not None and entry.tallies.get(target, Tally()).rows > 0
        if has_pushed and had_rows and since <= done and newest < done:
            return (
                f"The sessions of the producer end before batch {done}: an older copy was put back"
            )
        return ""

    def note_use(self, notes: Notes, cluster_id: str) -> None:
        """Note, before the first commit, that the query uses a ledger, and a cluster if its id is known."""
        path, number = self.ledger.path, self.batch.batch_id
        for target in self.ledger.targets:
            ids = {NoteKind.LEDGER: self.ledger_id, NoteKind.CLUSTER: cluster_id}
            for kind, object_id in ids.items():
                note = Note.about(kind, target, path, number, object_id)
                used = _used(self.notes, target, kind)
                known = {(one.ledger, one.object_id) for one in used}
                if object_id and (note.ledger, object_id) not in known:
                    notes.add(note, f"Writes {target} with the ledger {path} from this batch on")

    def has_producer(self, target: str, producer_id: str, entry: LedgerEntry | None) -> bool:
        """Return whether it is noted that this batch may be pushed through the producer."""
        used = _used(self.notes, target, NoteKind.PRODUCER)
        since = [note.batch for note in used if note.object_id == producer_id]
        returns = entry is not None and entry.mode != DeliveryMode.IDEMPOTENT
        return bool(since) and not (returns and max(since) < self.batch.batch_id)

    @property
    def has_failed(self) -> bool:
        """Whether a call for the batch has failed before."""
        path, number = self.ledger.path, self.batch.batch_id
        failed = [Note.about(NoteKind.FAILED, one, path, number) for one in self.ledger.targets]
        return any(note in self.notes for note in failed)

    def _where(self, target: str) -> dict[str, Any]:
        return {**self.batch.where, "target": target, "ledger": self.ledger.path}


_PUT_BACK = "how-to/recover.md, section 'An older copy was put back'"

_NEWEST_LEDGER = "Put the newest ledger back. If it is lost, look in the target for the rows of"

_LOST = (
    "To begin with a new ledger, first make sure that the target has the rows of every batch before, and "
    "none of this one: the query writes it again. Then start with new_ledger=True and a ledger_path that "
    "the query has not used. The steps are in how-to/recover.md, section 'A ledger is missing'"
)


def lack_notes(notes: Collection[Note], entry: LedgerEntry) -> bool:
    """Return whether notes of a query are gone: its ledger counts batches from before the first note.

    Each query notes its ledger before it commits its first batch there. A batch job keeps no notes.
    """
    first = min((note.batch for note in _used(notes, entry.target)), default=entry.batch_id + 1)
    return not entry.application and entry.tally.total_batches > entry.batch_id + 1 - first


def lack_all_notes(notes: Collection[Note], entry: LedgerEntry) -> bool:
    """Return the same if this run is the first one to miss them: it notes the ledger again."""
    return lack_notes(notes, entry) and not _used(notes, entry.target)


def _used(notes: Collection[Note], target: str, kind: NoteKind = NoteKind.LEDGER) -> Sequence[Note]:
    digest = digest_of_path(target)
    return [note for note in notes if note.kind is kind and note.target == digest]
