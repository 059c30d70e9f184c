"""Check the notes in a checkpoint against the ledger: is every batch before this one complete?

This happens once per run, before the first row. Afterwards a run knows what it has written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from yt_exactly_once import advice
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.notes import Note, NoteKind, Notes, digest_of_path, missing_batches
from yt_exactly_once.errors import ConfigError, IncompleteBatchError, LedgerMissingError

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.ledger import CommitLedger


ONE_CALL = (
    "Call one sink once per batch and target: give one sink several Targets, or join the DataFrames with "
    "union. Or give each sink its own target, and set advance_consumer=False for all but the last"
)
"""How to write several DataFrames of one batch."""


def settle(missing: range) -> str:
    """Return what to do about batches that a target lacks rows of."""
    first, last = missing[0], missing[-1]
    several = len(missing) > 1
    named = f"batches {first} to {last}" if several else f"batch {first}"
    value = f"({first}, {last})" if several else str(first)
    return (
        f"Then settle {named}: let Spark replay what was not written, write the missing rows yourself, or "
        f"accept the loss. In the last two cases start with accept_incomplete={value}. The steps are in "
        "how-to/recover.md, section 'A batch is incomplete'"
    )


def require_same_cluster(
    notes: Collection[Note], batch: MicroBatch, ledger: CommitLedger, cluster_id: str
) -> None:
    """Check that the cluster is the one that the query has written last.

    Raises:
        ConfigError: it is another one.
    """
    for target in ledger.targets:
        used = {note.object_id: note.batch for note in _used(notes, target, NoteKind.CLUSTER)}
        if used and cluster_id not in used:
            raise ConfigError(
                "The proxy belongs to another cluster: the query has written to its own one since batch "
                f"{max(used.values())}",
                remedy=advice.OTHER_CLUSTER,
                **batch.where,
                target=target,
            )


def require_whole(
    notes: Collection[Note],
    entry: LedgerEntry | None,
    batch: MicroBatch,
    ledger: CommitLedger,
    accepted: Collection[int],
) -> None:
    """Check that no batch before this one lacks rows in a target.

    Args:
        accepted: batches that the user has settled.

    Raises:
        IncompleteBatchError: one does.
    """
    committed = None if entry is None else entry.batch_id
    for target in ledger.targets:
        missing = missing_batches(notes, target, ledger.path, committed, batch.batch_id)
        if set(missing) <= set(accepted):
            continue
        raise IncompleteBatchError(
            f"The target lacks rows of batch {missing[0]}, but the query has continued after it"
            if committed is None or committed < missing[0]
            else f"The target lacks rows of batch {missing[0]}: a second call for it was refused",
            remedy="Call the sink once per batch and target, and do not catch its errors. "
            f"{settle(missing)}",
            **batch.where,
            target=target,
            ledger=ledger.path,
        )


def require_ledger(
    notes: Collection[Note],
    batch: MicroBatch,
    ledger: CommitLedger,
    ledger_id: str,
    *,
    accepted: Collection[int],
    may_be_new: bool,
    may_be_written: Callable[[bool], bool],
    has_rows: Callable[[str], bool],
) -> None:
    """Check that a ledger without an entry never had one.

    Args:
        accepted: batches that the user has settled.
        may_be_new: whether the query may begin with this ledger on purpose.
        may_be_written: returns whether an earlier run may have written the batch, by what Spark says; it is
            told whether no sink has used the checkpoint.
        has_rows: returns whether a target may have been written by anybody.

    Raises:
        LedgerMissingError: it may have had one; then a replay would not be recognised.
    """
    where = {**batch.where, "ledger": ledger.path}
    is_unused = all(note.kind is not NoteKind.LEDGER for note in notes)
    for target in ledger.targets:
        used = _used(notes, target)
        first = {note.object_id: note.batch for note in used if note.ledger == _ledger(ledger)}
        if first:
            first_batch = first.get(ledger_id)
            if first_batch is not None and set(range(first_batch, batch.batch_id)) <= set(accepted):
                continue
            raise LedgerMissingError(
                "The ledger has no entry of this query, although the query has used it since batch "
                f"{min(first.values())}",
                remedy=f"Restore the ledger. {_LOST}",
                target=target,
                **where,
            )
        if may_be_new:
            continue
        # A sink with another target has used the checkpoint: this one may have been changed by mistake.
        if used or (may_be_written(is_unused) and (not is_unused or has_rows(target))):
            raise LedgerMissingError(
                "The query has used another ledger for this target"
                if used
                else "The ledger has no entry of this query, although Spark's log has earlier batches of it",
                remedy="If proxy, ledger_path, the target or the checkpoint location was changed by mistake, "
                f"change it back. {_LOST}",
                target=target,
                **where,
            )


def require_same_ledger(
    notes: Collection[Note],
    entry: LedgerEntry,
    batch: MicroBatch,
    ledger: CommitLedger,
    ledger_id: str,
    *,
    may_be_written: Callable[[bool], bool],
) -> None:
    """Check that the ledger with an entry is the one that the query has used last, not a copy made earlier.

    A copy is another object. The batch that Spark replays may be missing in it, and be in the target.

    Args:
        may_be_written: see `require_ledger`.

    Raises:
        LedgerMissingError: it is another table, and Spark may replay a batch that it does not have.
    """
    if entry.batch_id >= batch.batch_id:
        return
    for target in ledger.targets:
        used = _used(notes, target)
        others = [note.batch for note in used if note.object_id != ledger_id]
        is_noted = len(others) < len(used)
        if others and (max(others) > entry.batch_id or not is_noted) and may_be_written(False):
            raise LedgerMissingError(
                f"The query has used another ledger table since batch {max(others)}. This one ends at batch "
                f"{entry.batch_id}: it may be a copy that lacks this batch",
                remedy="Put the original table back. If this is all there is, first make sure that the "
                "target does not have the rows of this batch: the query writes them again. Then start with "
                "new_ledger=True. The steps are in how-to/recover.md, section 'A ledger is missing'",
                **batch.where,
                target=target,
                ledger=ledger.path,
            )


_LOST = (
    "To begin with a new ledger, first make sure that the target does not have the rows of this batch: the "
    "query writes them again. Then start with new_ledger=True and a ledger_path that the query has not "
    "used. The steps are in how-to/recover.md, section 'A ledger is missing'"
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


def note_ledger(
    notes: Notes,
    known: Collection[Note],
    batch: MicroBatch,
    ledger: CommitLedger,
    ledger_id: str,
    cluster_id: str,
) -> None:
    """Note, before the first commit, that the query uses a ledger and a cluster.

    Args:
        cluster_id: see `Cluster`; empty where nobody has asked.
    """
    for target in ledger.targets:
        for kind, object_id in ((NoteKind.LEDGER, ledger_id), (NoteKind.CLUSTER, cluster_id)):
            note = Note.about(kind, target, ledger.path, batch.batch_id, object_id)
            same = [
                other
                for other in _used(known, target, kind)
                if (other.ledger, other.object_id) == (note.ledger, object_id)
            ]
            if object_id and not same:
                notes.add(note, f"Writes {target} with the ledger {ledger.path} from this batch on")


def is_noted(notes: Collection[Note], ledger: CommitLedger, number: int) -> bool:
    """Check whether a call for a batch has failed before."""
    return any(
        Note.about(NoteKind.FAILED, target, ledger.path, number) in notes
        for target in ledger.targets
    )


def _used(notes: Collection[Note], target: str, kind: NoteKind = NoteKind.LEDGER) -> Sequence[Note]:
    digest = digest_of_path(target)
    return [note for note in notes if note.kind is kind and note.target == digest]


def _ledger(ledger: CommitLedger) -> str:
    return digest_of_path(ledger.path)
