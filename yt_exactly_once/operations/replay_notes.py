"""Which letters of a dead-letter table are in their targets: a table beside it, with a row for each of them.

The dead-letter table names that table by its object id, in an attribute. So both may be renamed. The row is
written in the transaction that writes the letter: of two replays at once, one writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.entry import LETTERS_PREFIX
from yt_exactly_once.config import replayed_beside
from yt_exactly_once.errors import TableError
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of
from yt_exactly_once.operations.ledgers import ledgers_near, read_ledger
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.tables import (
    LETTERS,
    describe_table,
    ensure_table,
    existing,
    require_columns,
    set_attribute,
)

if TYPE_CHECKING:
    from yt_exactly_once.operations.letter_rows import Letter
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.transaction import TabletTransaction

    Positions = set[tuple[int, int]]

MARK = "yt_exactly_once_replayed"
"""Attribute of a dead-letter table: its own object id, and that of the table with its notes."""


def _column(name: str, kind: str, **more: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "required": True, **more}


_KEY = {"table": "string", "tablet": "int64", "index": "int64"}
SCHEMA = [
    *(_column(name, kind, sort_order="ascending") for name, kind in _KEY.items()),
    _column("target", "string"),
    _column("transaction_id", "string"),
]
"""Columns of that table: object id of the dead-letter table, position of the letter, and where it is now."""


@dataclass(frozen=True)
class ReplayNotes:
    """The notes of one dead-letter table.

    Attributes:
        letters: path of the dead-letter table.
        table: its object id.
        path: of the table with the notes; `None` before the first replay.
    """

    letters: str
    table: str
    path: str | None

    @classmethod
    def of(cls, connection: Connection, letters: str) -> ReplayNotes:
        """Find the notes of a dead-letter table; raise `TableError` if they are gone, or of another one."""
        found = existing(connection, letters, ["id", LETTERS, MARK])
        mark, table = found.get(MARK), str(found["id"])
        others = [
            name
            for name, known in (
                (MARK, (mark or {}).get("letters", table)),
                (LETTERS, found.get(LETTERS, table)),
            )
            if str(known) != table
        ]
        if others:
            commands = " && ".join(f"yt remove {quote(letters)}/@{name}" for name in others)
            raise TableError(
                "The table is a copy of a dead-letter table, and the notes of replays are of that one",
                remedy=f"Use the table that was copied. Or, if no letter was ever replayed, run: {commands}",
                path=letters,
            )
        if mark is None:
            return cls(letters, table, None)
        notes = attributes_of(connection, f"#{mark['notes']}", ["path"])
        if notes is None:
            raise TableError(
                "The table is gone that says which letters were replayed",
                remedy="Move it back from where it was removed to. Or, if no letter was ever replayed, run: "
                f"yt remove {quote(letters)}/@{MARK}",
                path=letters,
            )
        return cls(letters, table, str(notes["path"]))

    def created(self, connection: Connection) -> ReplayNotes:
        """Return the notes with a table that is ready, which the dead-letter table names."""
        if self.path is not None:
            ensure_table(connection, self.path, SCHEMA, {})
            return self
        path = replayed_beside(self.letters)
        ensure_table(connection, path, SCHEMA, {})
        info = describe_table(connection, path)
        remedy = "Move it to another path: notes of replays are kept here"
        require_columns(info, SCHEMA, "the notes of replays", TableError, remedy)
        mark = {"letters": self.table, "notes": info.id}
        set_attribute(connection, self.letters, MARK, mark)
        return replace(self, path=path)

    def positions(self, connection: Connection) -> Positions:
        """Return the positions of all letters that were replayed."""
        if self.path is None:
            return set()
        info = describe_table(connection, self.path)
        info.require_mounted()
        batches = RangeReader(connection).keys(info, fields_of(info, list(_KEY)), 0)
        rows = (row for batch in batches for row in batch.to_pylist())
        return {
            (row["tablet"], row["index"]) for row in rows if row["table"] == self.table.encode()
        }

    def take(self, transaction: TabletTransaction, letters: Sequence[Letter]) -> list[Letter]:
        """Note letters as replayed by a transaction; return those that were not noted yet."""
        assert self.path is not None
        keys = [dict(zip(_KEY, (self.table, *one.position), strict=True)) for one in letters]
        noted = transaction.lookup(self.path, keys)
        waiting = [n for n, row in enumerate(noted) if row is None]
        rows = [
            {**keys[n], "target": letters[n].target, "transaction_id": transaction.id}
            for n in waiting
        ]
        if rows:
            transaction.insert(self.path, rows)
        return [letters[n] for n in waiting]


def noted_earlier(
    connection: Connection, table: str, target: str, ledger: str | None = None
) -> Positions:
    """Return the positions of letters that an earlier version has replayed: it kept notes in ledgers.

    Args:
        table: object id of the dead-letter table.
        ledger: one more, besides those near the target.

    Raises:
        LedgerError: a ledger cannot be read.
        TableError: it is not mounted.
    """
    paths = {*ledgers_near(connection, target), *([ledger] if ledger else ())}
    entries = [row.entry for row in read_ledger(connection, *sorted(paths))]
    texts = [one.other_sources for one in entries if one.query_id == LETTERS_PREFIX + table]
    return {
        (int(tablet), index)
        for text in texts
        if text
        for tablet, ranges in json.loads(text).items()
        for first, end in ranges
        for index in range(first, end)
    }
