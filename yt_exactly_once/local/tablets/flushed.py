"""What tablets have flushed: the chunks that a flush leaves, and when it was.

Rows stay where they are. Only the bounds of chunks are kept here. Resharding, the counters of a table and the
check for conflicts depend on them. A chunk of an ordered tablet ends at a row index, one of a sorted tablet
at the timestamp of its last write. Chunks are dropped whole, and only while their tablet is mounted.

A freeze and an unmount flush, and so does the end of each `dynamic_store_auto_flush_period` since the mount.
The periodic flush is made up for before anybody can see that it has not happened yet. After it the rows stay
in memory for `backing_store_retention_time`, and conflicts with them are found.
"""

from __future__ import annotations

import time
from sqlite3 import Connection
from typing import Any, NamedTuple

from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, scalar, scalars
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import counters
from yt_exactly_once.local.tablets.catalog import load_layout

_DUE = "flush_due <= ?"
PERIOD = "dynamic_store_auto_flush_period"


class Chunk(NamedTuple):
    """One chunk: its id, where it begins, and where the next one does."""

    chunk_id: str
    first: int
    past: int


def flush(connection: Connection, layout: TableLayout, tablet: Tablet, released: float = 0) -> None:
    """Write what a tablet got since its last flush into a chunk; without rows there is none.

    Args:
        released: until when the rows stay in memory besides.
    """
    first, past = _unflushed(connection, layout, tablet)
    if past > first:
        add(connection, tablet.tablet_id, Chunk(make_id("chunk"), first, past), released=released)
    counters.put(connection, layout, tablet.index, flush_due=None)


def due(layout: TableLayout, tablet: Tablet, now: float) -> dict[str, Any]:
    """Return when the periodic flush will write what a tablet gets now; a counter to put."""
    period = layout.options[PERIOD]
    if period is None or tablet.state != "mounted":
        return {"flush_due": None}
    mounted, seconds = tablet.mount_revision >> TIMESTAMP_COUNTER_BITS, max(period, 1) / 1000
    return {"flush_due": mounted + ((now - mounted) // seconds + 1) * seconds}


def plan(connection: Connection, layout: TableLayout) -> None:
    """Let a new period hold for what is not flushed."""
    for tablet in layout.tablets:
        first, past = _unflushed(connection, layout, tablet)
        if past > first:
            counters.put(connection, layout, tablet.index, **due(layout, tablet, time.time()))


def is_due(connection: Connection) -> bool:
    """Return whether a periodic flush is to be made up for."""
    return bool(scalars(connection, f"SELECT 1 FROM tablets WHERE {_DUE} LIMIT 1", time.time()))


def flush_due(connection: Connection) -> None:
    """Make up for the periodic flushes of all tables."""
    query = f"SELECT DISTINCT node_id FROM tablets WHERE {_DUE}"
    for node_id in scalars(connection, query, time.time()):
        flush_table(connection, load_layout(connection, node_id, node_id))


def flush_table(connection: Connection, layout: TableLayout) -> None:
    """Make up for the periodic flushes of one table."""
    found = connection.execute(
        f"SELECT tablet_index, flush_due FROM tablets WHERE {_DUE} AND node_id = ?",
        (time.time(), layout.node_id),
    )
    kept = layout.options["backing_store_retention_time"] / 1000
    for index, moment in found.fetchall():
        written = counters.of(connection, layout, index, "last_write_ts")
        flush(connection, layout, layout.tablets[index], moment + kept)
        counters.put(connection, layout, index, flushed_ts=written)


def released(connection: Connection, layout: TableLayout) -> dict[str, int]:
    """Return the last write, by tablet, of a sorted table's chunks whose rows are in memory no more."""
    found = connection.execute(
        "SELECT tablet_id, max(past) FROM tablets JOIN chunk_lists USING (tablet_id)"
        " WHERE node_id = ? AND dropped = 0 AND released <= ? GROUP BY tablet_id",
        (layout.node_id, time.time()),
    )
    return dict(found.fetchall())


def _unflushed(connection: Connection, layout: TableLayout, tablet: Tablet) -> tuple[int, int]:
    """Return where the next chunk of a tablet begins and ends."""
    counter = "last_write_ts" if layout.sorted else "total_rows"
    past: int = counters.of(connection, layout, tablet.index, counter)
    return until(connection, tablet.tablet_id), past


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
        "INSERT INTO chunk_lists SELECT ?, position, chunk_id, first, past, dropped, 0"
        " FROM chunk_lists WHERE tablet_id = ?",
        (target_id, source_id),
    )


def join(connection: Connection, source_id: str, target_id: str, shift: int) -> None:
    """Append the chunks of one tablet to those of another, `shift` further on."""
    for chunk in chunks(connection, source_id):
        moved = chunk._replace(first=chunk.first + shift, past=chunk.past + shift)
        add(connection, target_id, moved)
    connection.execute("DELETE FROM chunk_lists WHERE tablet_id = ?", (source_id,))


def add(
    connection: Connection,
    tablet_id: str,
    chunk: Chunk,
    *,
    dropped: bool = False,
    released: float = 0,
) -> None:
    """Put a chunk behind those that a tablet has."""
    connection.execute(
        "INSERT INTO chunk_lists SELECT ?, coalesce(max(position), -1) + 1, ?, ?, ?, ?, ?"
        " FROM chunk_lists WHERE tablet_id = ?",
        (tablet_id, *chunk, int(dropped), released, tablet_id),
    )
