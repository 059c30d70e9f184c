"""Notes beside Spark's own logs: which batches are incomplete, and which ledgers the query has used.

The ledger cannot hold these: it does not answer while the cluster is unavailable, and it may be removed.
Spark's checkpoint is always available, because Spark cannot finish a batch without it. All that matters is
in the name of a note's file, which a file system creates atomically. Notes are never removed: the ledger's
entry decides whether a note still counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from yt_exactly_once.commit.formats import require_known_format

FOLDER = "yt_exactly_once"
"""Name of the folder in the checkpoint; Spark ignores what it does not know there."""

NOTES_VERSION = 1
"""Format of the notes. Raise it when an earlier version would misread one."""


class NoteKind(StrEnum):
    """What a note says about a batch.

    Attributes:
        FAILED: a call for the batch failed. Counts until the ledger has the batch or a later one.
        REFUSED: a second call for the batch was refused. Counts until the ledger has a later batch, since
            the batch in the ledger lacks the rows of the second call.
        LEDGER: the batch was the first one that was about to be committed with a ledger.
        CLUSTER: the same for a cluster; earlier versions of this package pass over such notes.
    """

    FAILED = "failed"
    REFUSED = "refused"
    LEDGER = "ledger"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Note:
    """One note.

    Attributes:
        target: short digest of the target's path.
        ledger: short digest of the ledger's path.
        object_id: of the ledger table for `LEDGER`, of the cluster's `//sys` for `CLUSTER`.
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
        parts = (version, kind, self.target, self.ledger, str(self.batch), self.object_id)
        return "-".join(filter(None, parts))

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Read a file's name; return `None` if it is no note, raise `NewerFormatError` for a newer one."""
        version, _, rest = name.partition("-")
        if version[:1] != "v" or not version[1:].isdecimal():
            return None
        require_known_format(int(version[1:]), NOTES_VERSION, "A note in the checkpoint", note=name)
        kind, *parts = rest.split("-", 4)
        if kind not in set(NoteKind) or len(parts) < 3 or not parts[2].isdigit():  # noqa: PLR2004 - target, ledger, batch
            return None
        return cls(NoteKind(kind), parts[0], parts[1], int(parts[2]), *parts[3:])


class Notes(Protocol):
    """The notes of one query; they live as long as its checkpoint."""

    def all(self) -> Sequence[Note]:
        """Return every note."""

    def add(self, note: Note, text: str) -> None:
        """Keep a note, with a text for people."""


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
