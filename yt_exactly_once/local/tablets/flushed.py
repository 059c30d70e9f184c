"""What tablets have flushed: the chunks that a freeze or an unmount leaves, and when it was.

Rows stay where they are. Only the bounds of chunks are kept here, and the moment up to which all rows are
flushed. Resharding and the counters of a table depend on them. A chunk of an ordered tablet ends at a row
index, one of a sorted tablet at the timestamp of its last write. Chunks are dropped whole, and only while
their tablet is mounted.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import NamedTuple

from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.store import scalar
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import counters


class Chunk(NamedTuple):
    """One chunk: its id, where it begins, and where the next one does."""

    chunk_id: str
    first: int
    past: int


def flush(connection: Connection, layout: TableLayout, tablet: Tablet) -> None:
    """Write what a tablet got since its last flush into a chunk; without rows there is none."""
    counter = "last_write_ts" if layout.sorted else "total_rows"
    past = counters.of(connection, layout, tablet.index, counter)
    first = until(connection, tablet.tablet_id)
    if past > first:
        add(connection, tablet.tablet_id, Chunk(make_id("chunk"), first, past))


def drop_trimmed(connection: Connection, tablet_id: str, trimmed_rows: int) -> None:
    """Drop the chunks whose rows are all trimmed."""
    connection.execute(
        "UPDATE chunk_lists SET dropped = 1 WHERE tablet_id = ? AND past <= ?",
        (tablet_id, trimmed_rows),
    )


def until(connection: Connection, tablet_id: str) -> int:
    """Return where the next chunk of a tablet begins, dropped chunks included."""
    query = "SELECT coalesce(max(past), 0) FROM chunk_lists WHERE tablet_id = ?"
    return int(scalar(connection, query, tablet_id))


def end_of_chunk(connection: Connection, tablet_id: str, row_index: int) -> int | None:
    """Return where the chunk ends that holds a row of an ordered tablet; None if it is not flushed."""
    query = "SELECT min(past) FROM chunk_lists WHERE tablet_id = ? AND past > ?"
    past: int | None = scalar(connection, query, tablet_id, row_index)
    return past


def chunks(connection: Connection, tablet_id: str, *, trimmed: bool = False) -> list[Chunk]:
    """Return the chunks that a tablet holds, in order; with those that are trimmed, whose indexes stay."""
    wanted = "chunk_id != ''" if trimmed else "dropped = 0"
    found = connection.execute(
        "SELECT chunk_id, first, past FROM chunk_lists"
        f" WHERE tablet_id = ? AND {wanted} ORDER BY position",
        (tablet_id,),
    )
    return [Chunk(*each) for each in found]


def first_kept(connection: Connection, tablet_id: str) -> int:
    """Return where the first chunk begins that is not dropped, or else where the next one will."""
    held = chunks(connection, tablet_id)
    return held[0].first if held else until(connection, tablet_id)


def rename(connection: Connection, old_id: str, new_id: str) -> None:
    """Give the chunks of a tablet to its successor."""
    connection.execute("UPDATE chunk_lists SET tablet_id = ? WHERE tablet_id = ?", (new_id, old_id))


def copy(connection: Connection, source_id: str, target_id: str) -> None:
    """Let a copied tablet share the chunks of its source."""
    connection.execute(
        "INSERT INTO chunk_lists SELECT ?, position, chunk_id, first, past, dropped"
        " FROM chunk_lists WHERE tablet_id = ?",
        (target_id, source_id),
    )


def join(connection: Connection, source_id: str, target_id: str, shift: int) -> None:
    """Append the chunks of one tablet to those of another, `shift` further on."""
    for chunk in chunks(connection, source_id):
        moved = chunk._replace(first=chunk.first + shift, past=chunk.past + shift)
        add(connection, target_id, moved)
    connection.execute("DELETE FROM chunk_lists WHERE tablet_id = ?", (source_id,))


def add(connection: Connection, tablet_id: str, chunk: Chunk, *, dropped: bool = False) -> None:
    """Put a chunk behind those that a tablet has."""
    connection.execute(
        "INSERT INTO chunk_lists SELECT ?, coalesce(max(position), -1) + 1, ?, ?, ?, ?"
        " FROM chunk_lists WHERE tablet_id = ?",
        (tablet_id, *chunk, int(dropped), tablet_id),
    )
