"""Entries of ledgers that nobody may need any more: which they are, and their removal."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from yt_exactly_once.operations.ledgers import LedgerRow, read_ledger
from yt_exactly_once.ytsaurus import browsing

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection


class Use(StrEnum):
    """Who may still need a ledger entry."""

    IN_USE = "in use"
    """Its query needs it: nothing shows that the query is gone."""

    SUPERSEDED = "superseded"
    """A later query reads on where it ended, for the same target and in the same ledger."""

    TARGET_GONE = "target gone"
    """The target does not exist any more."""


class Judged(NamedTuple):
    """An entry, and who may need it."""

    row: LedgerRow
    use: Use
    why: str


def judge_entries(connection: Connection, ledger: str) -> list[Judged]:
    """Say of each entry of a ledger who may need it.

    Only a checkpoint shows whether its query will run again, and a checkpoint is not on the cluster. So an
    entry is never dead for certain. If the checkpoint of a removed entry starts again, the sink refuses it
    with `LedgerMissingError`: a note in the checkpoint says that there was an entry.
    """
    rows = read_ledger(connection, ledger)
    found = []
    for row in rows:
        use, why = Use.IN_USE, "its checkpoint may start again"
        if row.entry.application:
            why = "its job may be repeated"
        if (later := row.successor(rows)) is not None:
            use = Use.SUPERSEDED
            why = f"query {later.entry.label} reads on where it ended"
        looked = browsing.attributes_of_all(connection, row.entry.tables, ["type"])
        if looked and not any(map(browsing.or_raise, looked.values())):
            use, why = Use.TARGET_GONE, f"there is no table {row.entry.target}"
        found.append(Judged(row, use, why))
    return found


def remove_entry(connection: Connection, row: LedgerRow) -> None:
    """Remove an entry; raise `ConflictError`, and remove nothing, if its query has written it since."""
    with connection.transaction() as transaction:
        row.require_unchanged(transaction)
        transaction.delete(row.ledger, [row.key])
