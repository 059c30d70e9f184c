"""How long replaced rows, tombstones and row locks are kept.

Owns the pruning of what only old readers and old transactions need. A transaction that started before
the pruned moment cannot be checked for conflicts any more and is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables.layout import quote

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from yt_exactly_once.local.tables.layout import TableLayout, Tablet

KEPT_SECONDS = 600
_PRUNE_EVERY_SECONDS = 60
CANNOT_CHECK_CONFLICTS = 1729

_TABLE = """
CREATE TABLE IF NOT EXISTS retention (
    node_id TEXT PRIMARY KEY, pruned_at INTEGER NOT NULL, retained_from INTEGER NOT NULL
) WITHOUT ROWID
"""


def initialize(connection: sqlite3.Connection) -> None:
    """Create the table; needs a connection of `Store.write`."""
    connection.execute(_TABLE)


def retained_from(connection: sqlite3.Connection, node_id: str) -> int:
    """Return the timestamp since which a table's history is complete."""
    found = connection.execute(
        "SELECT retained_from FROM retention WHERE node_id = ?", (node_id,)
    ).fetchone()
    return found[0] if found else 0


def check_start(
    connection: sqlite3.Connection,
    layout: TableLayout,
    tablets: Sequence[Tablet],
    start: int,
    *,
    too_old: bool,
) -> None:
    """Refuse a transaction that started before what is known of conflicts in a tablet.

    Args:
        connection: from `Store.write`.
        layout: the table.
        tablets: those that the transaction writes to.
        start: when it started.
        too_old: whether it has lived too long, however short the history.

    Raises:
        YtError: 1729 when the transaction or the table's history is too long, or a tablet that was
            written after the start has been unmounted since.
    """
    kept = retained_from(connection, layout.node_id)
    for tablet in tablets:
        if too_old or start < max(kept, tablet.chunk_timestamp):
            raise YtError(
                "Checking for transaction conflicts against chunk stores is not supported; consider"
                " reducing transaction duration or increasing store retention time",
                CANNOT_CHECK_CONFLICTS,
                {
                    "start_timestamp": start,
                    "tablet_id": tablet.tablet_id,
                    "table_path": layout.path,
                },
            )


def prune(connection: sqlite3.Connection, layout: TableLayout, timestamp: int) -> None:
    """Drop what is older than the kept span; at most once a minute per table."""
    found = connection.execute(
        "SELECT pruned_at FROM retention WHERE node_id = ?", (layout.node_id,)
    ).fetchone()
    horizon = timestamp - (KEPT_SECONDS << TIMESTAMP_COUNTER_BITS)
    if found is None:
        connection.execute("INSERT INTO retention VALUES (?, ?, 0)", (layout.node_id, timestamp))
        return
    if timestamp - found[0] < _PRUNE_EVERY_SECONDS << TIMESTAMP_COUNTER_BITS:
        return
    history, table = quote(layout.history_table), quote(layout.sql_table)
    connection.execute(f'DELETE FROM {history} WHERE "$until" <= ?', (horizon,))
    connection.execute(f'DELETE FROM {table} WHERE "$deleted" = 1 AND "$ts" <= ?', (horizon,))
    connection.execute(
        "DELETE FROM row_locks WHERE node_id = ? AND max(read_ts, write_ts, shared_ts) <= ?",
        (layout.node_id, horizon),
    )
    connection.execute(
        "UPDATE retention SET pruned_at = ?, retained_from = ? WHERE node_id = ?",
        (timestamp, horizon, layout.node_id),
    )
