"""The ledger: one row per query and target that says which batch was committed last, and how.

It resolves commits with an unknown outcome. Every commit writes it, so of two writers at most one wins. Every
mode writes it, so a query may change its mode. An entry that contradicts the batch is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import Reader, Transaction
from yt_exactly_once.commit.entry import LedgerEntry, Tally, Written
from yt_exactly_once.errors import LedgerDivergedError


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
                remedy="After a change of the targets, use a new ledger_path and a new checkpoint",
                query=self.query_id,
                ledger=self.path,
            )
        if entries[0] is None:
            return None
        tallies = [each for entry in entries if entry for each in entry.tallies.items()]
        return replace(entries[0], tallies=dict(tallies))

    def record(self, transaction: Transaction, entry: LedgerEntry) -> None:
        """Write the entry for every target; it takes effect with the transaction."""
        rows = [replace(entry, target=target).to_row() for target in self.targets]
        transaction.insert(self.path, rows)

    def tallies(
        self, before: LedgerEntry | None, batch: MicroBatch, written: Mapping[str, Written]
    ) -> dict[str, Tally]:
        """Return the tallies after one more part, by what it has written into each target."""
        is_same = before is not None and before.batch_id == batch.batch_id
        old, nothing = before.tallies if before else {}, Written()
        return {
            target: old.get(target, Tally()).after(written.get(target, nothing), is_same=is_same)
            for target in self.targets
        }
