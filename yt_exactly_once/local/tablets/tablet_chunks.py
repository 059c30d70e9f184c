"""Chunks of dynamic tables: every flush of a tablet that was written to since the last one makes a chunk.

Owns their ids and counts only; rows stay where they are. Nothing is compacted, and a chunk of an ordered
table disappears when its rows are trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.cypress.ids import make_id

if TYPE_CHECKING:
    import sqlite3

    from yt_exactly_once.local.tablets.layout import TableLayout, Tablet

TABLES = """
CREATE TABLE IF NOT EXISTS tablet_chunks (
    node_id TEXT NOT NULL, tablet_id TEXT NOT NULL, chunk_id TEXT NOT NULL, ts INTEGER NOT NULL,
    last_row INTEGER NOT NULL, PRIMARY KEY (node_id, tablet_id, ts)
) WITHOUT ROWID;
"""


def add_chunk(connection: sqlite3.Connection, layout: TableLayout, tablet: Tablet) -> None:
    """Make a chunk of what was written to a tablet since its last flush, if anything was."""
    last_write, flushed, total = connection.execute(
        "SELECT last_write_ts, flushed_ts, total_rows FROM tablets"
        " WHERE node_id = ? AND tablet_index = ?",
        (layout.node_id, tablet.index),
    ).fetchone()
    if last_write > flushed:
        connection.execute(
            "INSERT OR IGNORE INTO tablet_chunks VALUES (?, ?, ?, ?, ?)",
            (layout.node_id, tablet.tablet_id, make_id("chunk"), last_write, total),
        )


def chunk_ids(
    connection: sqlite3.Connection, layout: TableLayout, tablet: Tablet | None = None
) -> list[str]:
    """Return the chunks of a table, or of one of its tablets, in the order of their flushes."""
    found = connection.execute(
        "SELECT c.tablet_id, c.chunk_id FROM tablet_chunks AS c LEFT JOIN tablets AS t"
        " USING (node_id, tablet_id) WHERE c.node_id = ?"
        " AND (? OR c.last_row > coalesce(t.trimmed_rows, 0)) ORDER BY c.ts, c.chunk_id",
        (layout.node_id, layout.sorted),
    ).fetchall()
    return [chunk for owner, chunk in found if tablet is None or owner == tablet.tablet_id]


def copy_chunks(
    connection: sqlite3.Connection, source: TableLayout, new_node_id: str, new_ids: dict[str, str]
) -> None:
    """Let a copy of a table share the chunks; `new_ids` leads from old tablets to new ones."""
    for tablet_id, *chunk in connection.execute(
        "SELECT tablet_id, chunk_id, ts, last_row FROM tablet_chunks WHERE node_id = ?",
        (source.node_id,),
    ).fetchall():
        # Tablets that were resharded away have left their chunks to the table.
        owner = new_ids.get(tablet_id, tablet_id)
        connection.execute(
            "INSERT INTO tablet_chunks VALUES (?, ?, ?, ?, ?)", (new_node_id, owner, *chunk)
        )
