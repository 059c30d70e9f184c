"""Locks of rows: which exclude which, and when each lock group of a row was last taken.

A commit here is one moment, so a lock never waits: what counts is whether a conflicting lock was taken
after the transaction started. In a table with one lock group, a write records its exclusive lock in the row
itself. Every other lock is in the table `row_locks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Literal, NamedTuple, get_args

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import row_images

LockType = Literal["none", "shared_weak", "shared_strong", "shared_write", "exclusive"]
LOCK_TYPES: tuple[LockType, ...] = get_args(LockType)
"""From the weakest to the strongest."""

PRIMARY_LOCK = ""

Mask = dict[str, LockType]
"""The locks of one row by lock group."""

_COLUMNS = {"exclusive": "write_ts", "shared_write": "shared_ts", "shared_strong": "read_ts"}
_READ: frozenset[LockType] = frozenset(("shared_weak", "shared_strong"))
_WRITE: frozenset[LockType] = frozenset(("shared_write", "exclusive"))
_READ_CONFLICT = "Write failed due to concurrent read lock"
_WRITE_CONFLICT = "Row lock conflict due to concurrent write"
_SHARED_WRITE_CONFLICT = "Row lock conflict due to concurrent shared write"


@dataclass
class _Taken:
    """When the locks of one group of one row were last taken; 0 is never."""

    exclusive: int = 0
    shared_write: int = 0
    read: int = 0

    def conflict(self, wanted: LockType, start: int) -> tuple[str, int] | None:
        """Return why a lock cannot be taken by who started at a moment, and the winner's commit."""
        found = None
        if wanted == "exclusive" and self.read > start:
            found = _READ_CONFLICT, self.read
        if self.exclusive > start:
            found = _WRITE_CONFLICT, self.exclusive
        if wanted != "shared_write" and self.shared_write > start:
            found = _SHARED_WRITE_CONFLICT, self.shared_write
        if wanted == "shared_write" and self.read > start:
            found = _READ_CONFLICT, self.read
        return found


class Conflict(NamedTuple):
    """A lock that a transaction cannot take, what was faster, and when that was committed."""

    key: bytes
    lock: str
    message: str
    winner: int


def parse(given: str) -> LockType:
    """Read the type of a lock; raise `YtError` if there is no such type."""
    for known in LOCK_TYPES:
        if known == given:
            return known
    raise YtError(f'Error parsing lock type: "{given}" is not one of {", ".join(LOCK_TYPES)}')


def parse_write(given: str) -> LockType:
    """Read the type of a lock that a write takes; raise `YtError` if it is none, or one for reading."""
    lock = parse(given)
    if lock not in _WRITE:
        raise YtError(f'Inappropriate lock type "{lock}" given for write modification')
    return lock


def strongest(left: LockType, right: LockType) -> LockType:
    """Return what two locks of one transaction come to: reading and writing make an exclusive one."""
    kinds = {left, right}
    if kinds & _READ and kinds & _WRITE:
        return "exclusive"
    return max(left, right, key=LOCK_TYPES.index)


def merge(parts: Iterable[tuple[Iterable[bytes], Mapping[str, LockType]]]) -> dict[bytes, Mask]:
    """Join the locks that a transaction takes by row; parts are keys, and the locks of each of them."""
    masks: dict[bytes, Mask] = {}
    for keys, locks in parts:
        for key in keys:
            mask = masks.setdefault(key, {})
            for name, lock in locks.items():
                mask[name] = strongest(mask.get(name, "none"), lock)
    return masks


@dataclass(frozen=True)
class RowLocks:
    """The locks of a sorted table as one commit sees them.

    Attributes:
        connection: from `Store.write`.
        start: the moment after which another lock is a conflict.
        timestamp: of the commit.
    """

    connection: Connection
    layout: TableLayout
    start: int
    timestamp: int

    def any_newer(self) -> bool:
        """Tell whether a lock of the table was taken, other than by a write, since the start."""
        found = self.connection.execute(
            "SELECT 1 FROM row_locks WHERE node_id = ? AND max(read_ts, write_ts, shared_ts) > ?"
            " LIMIT 1",
            (self.layout.node_id, self.start),
        ).fetchone()
        return found is not None

    def find_conflict(self, masks: Mapping[bytes, Mask]) -> Conflict | None:
        """Return the first lock that cannot be taken; the primary one is checked in any case."""
        taken = self._taken(list(masks))
        for key, mask in masks.items():
            for name, lock in self._checked(mask):
                found = taken.get((key, name), _Taken()).conflict(lock, self.start)
                if found is not None:
                    return Conflict(key, name, *found)
        return None

    def remember_writes(self, masks: Mapping[bytes, Mask]) -> None:
        """Keep the last exclusive lock of rows that a shared write is about to change.

        With one lock group the timestamp of the row is that of its lock, and the write replaces it.
        """
        if len(self.layout.locks) > 1:
            return
        shared = [key for key, mask in masks.items() if mask.get(PRIMARY_LOCK) == "shared_write"]
        taken = self._taken(shared)
        self._store("write_ts", ((key, name, t.exclusive) for (key, name), t in taken.items()))

    def record(self, masks: Mapping[bytes, Mask]) -> None:
        """Take locks; weak ones last as long as their transaction and leave nothing."""
        for lock, column in _COLUMNS.items():
            taken = (
                (key, name, self.timestamp)
                for key, mask in masks.items()
                for name, wanted in mask.items()
                if wanted == lock
            )
            self._store(column, taken)

    def _checked(self, mask: Mask) -> Iterator[tuple[str, LockType]]:
        """Yield the locks to check: those of the mask, and the strongest of them for the row itself."""
        primary: LockType = "none"
        for lock in mask.values():
            primary = strongest(primary, lock)
        for name in self.layout.locks:
            lock = primary if name == PRIMARY_LOCK else mask.get(name, "none")
            if lock != "none":
                yield name, lock

    def _taken(self, keys: Sequence[bytes]) -> dict[tuple[bytes, str], _Taken]:
        taken: dict[tuple[bytes, str], _Taken] = {}
        for marks, portion in row_images.portions(keys):
            for key, name, read, write, shared in self.connection.execute(
                "SELECT key, lock, read_ts, write_ts, shared_ts FROM row_locks"
                f" WHERE node_id = ? AND key IN ({marks})",
                (self.layout.node_id, *portion),
            ):
                taken[key, name] = _Taken(write, shared, read)
            if len(self.layout.locks) > 1:
                continue
            for key, moment in self.connection.execute(
                f'SELECT "$key", "$ts" FROM {self.layout.sql_table} WHERE "$key" IN ({marks})',
                portion,
            ):
                known = taken.setdefault((key, PRIMARY_LOCK), _Taken())
                # It may also be that of a shared write, or of this commit.
                if moment not in (known.shared_write, self.timestamp):
                    known.exclusive = max(known.exclusive, moment)
        return taken

    def _store(self, column: str, moments: Iterable[tuple[bytes, str, int]]) -> None:
        self.connection.executemany(
            f"INSERT INTO row_locks (node_id, key, lock, {column}) VALUES (?, ?, ?, ?)"
            f" ON CONFLICT DO UPDATE SET {column} = excluded.{column}",
            ((self.layout.node_id, *moment) for moment in moments),
        )
