"""The ledger's table, and the entries of one query in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import Reader, Transaction
from yt_exactly_once.commit.entry import ENTRY_COLUMNS, LEDGER_VERSION, LedgerEntry
from yt_exactly_once.commit.tally import DIGEST_COLUMNS, TABLES, TALLY_COLUMNS, Tally
from yt_exactly_once.errors import LedgerDivergedError, require_known_format

LEDGER_MARK = "yt_exactly_once_ledger"
"""Attribute of every ledger, by which it is found; its value is the format of the table."""


class CommitLedger:
    """Entries of one query in one ledger table, for the targets that one sink writes together."""

    def __init__(self, path: str, query_id: str, targets: Sequence[str]) -> None:
        self.path = path
        self.query_id = query_id
        self.targets = tuple(targets)

    def read(self, reader: Reader) -> LedgerEntry | None:
        """Return the first entry with all tallies; raise `LedgerError` if several commits wrote them."""
        keys = [{"query_id": self.query_id, "target": target} for target in self.targets]
        rows = reader.lookup(self.path, keys)
        entries = [None if row is None else LedgerEntry.from_row(row) for row in rows]
        if len({entry.transaction_id if entry else None for entry in entries}) > 1:
            raise LedgerDivergedError(
                "The targets of this sink were not written by the same transaction",
                remedy="Name the targets that the sink had before. Or "
                f"{advice.begin_after(self.path, self.query_id)}",
                query=self.query_id,
                ledger=self.path,
            )
        if entries[0] is None:
            return None
        known = [entry for entry in entries if entry]
        tallies = [each for entry in known for each in entry.tallies.items()]
        columns = [each for entry in known for each in entry.columns.items()]
        return replace(entries[0], tallies=dict(tallies), columns=dict(columns))

    def record(self, transaction: Transaction, entry: LedgerEntry) -> None:
        """Write the entry for every target; it takes effect with the transaction."""
        rows = [replace(entry, target=target).to_row() for target in self.targets]
        transaction.insert(self.path, rows)

    def tallies(
        self, entry: LedgerEntry | None, batch: MicroBatch, written: Mapping[str, Tally]
    ) -> dict[str, Tally]:
        """Return the tallies after one more part, by what it has written into each target."""
        is_same = entry is not None and entry.batch_id == batch.batch_id
        old, nothing = entry.tallies if entry else {}, Tally()
        return {
            target: old.get(target, nothing).after(written.get(target, nothing), is_same=is_same)
            for target in self.targets
        }


def _column(name: str, kind: str, *, required: bool = True, **more: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "required": required, **more}


_KEY = ("query_id", "target")

LEDGER_SCHEMA: list[dict[str, Any]] = [
    *(_column(name, "string", sort_order="ascending") for name in _KEY),
    _column("format_version", "int64"),
    *(_column(name, kind) for name, kind in ENTRY_COLUMNS.items() if name not in _KEY),
    _column("part_digests", "any", required=False),
    _column("offsets", "any", required=False),
    *(_column(name, kind) for name, kind in TALLY_COLUMNS.items()),
    *(_column(name, kind, required=False) for name, kind in DIGEST_COLUMNS.items()),
    _column(TABLES, "any", required=False),
]
"""Columns of the ledger table."""

EARLIER_LEDGER_SCHEMA = [column for column in LEDGER_SCHEMA if column["name"] != TABLES]
"""The columns that ledgers of an earlier version have: enough for all targets but patterns."""

HISTORY_SCHEMA = [
    *LEDGER_SCHEMA[:2],
    _column("batch_id", "int64", sort_order="ascending"),
    *(column for column in LEDGER_SCHEMA[2:] if column["name"] != "batch_id"),
]
"""Columns of a table that keeps the entries of earlier batches too."""


def require_known_ledger(attributes: Mapping[str, Any], path: str) -> None:
    """Check the mark of a ledger's table; raise `NewerFormatError` if a newer version has created it."""
    version = int(attributes.get(LEDGER_MARK, LEDGER_VERSION))
    require_known_format(version, LEDGER_VERSION, "The ledger", ledger=path)
