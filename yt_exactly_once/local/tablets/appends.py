"""Appends to ordered tables: row indexes, system columns, and rows that appear later than committed.

Owns the counters of tablets. Row indexes are contiguous per tablet in the order of the commits. It never
checks anything: what arrives here is part of a successful commit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, groupby
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.store import Store
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.packed import unpacked
from yt_exactly_once.local.tablets import blocks, counters, flushed
from yt_exactly_once.local.tablets.block_bodies import Page
from yt_exactly_once.local.tablets.modifications import Part


def append(
    connection: Connection,
    layout: TableLayout,
    index: int,
    pages: Sequence[Page],
    timestamp: int,
    delay: float = 0.0,
) -> None:
    """Give rows their indexes and system columns, and write those of one commit for one tablet together.

    With a delay in seconds nobody sees them before it is over: tablets count them then.
    """
    tablet_id = layout.tablets[index].tablet_id
    counted = (
        delay
        and connection.execute(
            "SELECT total_rows, total_weight, due FROM pending_appends"
            " WHERE node_id = ? AND tablet_index = ? ORDER BY id DESC LIMIT 1",
            (layout.node_id, index),
        ).fetchone()
    )
    total, weight, *due = counted or counters.of(
        connection, layout, index, "total_rows", "total_weight"
    )
    total, weight = blocks.append(connection, layout, tablet_id, pages, total, weight, timestamp)
    now = time.time()
    # Rows never appear before those in front of them, whose delay or clock may have been another.
    seen = max([now + delay, *due])
    soon = flushed.due(layout, layout.tablets[index], seen)
    counters.put(connection, layout, index, **soon)
    if not delay:
        counters.put(
            connection,
            layout,
            index,
            total_rows=total,
            total_weight=weight,
            last_write_ts=timestamp,
            written_at=now,
        )
        return
    connection.execute(
        "INSERT INTO pending_appends (due, node_id, tablet_index, total_rows, total_weight, ts)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (seen, layout.node_id, index, total, weight, timestamp),
    )


def apply_due(store: Store) -> None:
    """Let rows appear whose delay is over; every read of an ordered table calls this first."""
    is_due = "due <= ?", time.time()
    with store.read() as connection:
        if not _pending(connection, *is_due):
            return
    with store.write() as connection:
        apply_pending(connection, *is_due)


def apply_pending(connection: Connection, condition: str = "true", *values: Any) -> None:
    """Let rows appear before their time, all or those that a condition names."""
    for number, *counted in _pending(connection, condition, *values):
        connection.execute(
            "UPDATE tablets SET total_rows = ?, total_weight = ?, last_write_ts = ?, written_at = ?"
            " WHERE node_id = ? AND tablet_index = ?",
            counted,
        )
        connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def forget_pending(connection: Connection, layout: TableLayout, index: int) -> None:
    """Drop the rows of a tablet that have been committed and have not appeared."""
    connection.execute(
        "DELETE FROM pending_appends WHERE node_id = ? AND tablet_index = ?",
        (layout.node_id, index),
    )


def _pending(connection: Connection, condition: str, *values: Any) -> list[Any]:
    """Return what appends that have not appeared will be counted as."""
    return connection.execute(
        "SELECT id, total_rows, total_weight, ts, due, node_id, tablet_index FROM pending_appends"
        f" WHERE {condition} ORDER BY id",
        values,
    ).fetchall()


def pack(layout: TableLayout, parts: Sequence[Part]) -> list[Page]:
    """Pack what is not packed yet; rows that follow each other share blocks."""
    passed = 0

    def run_of(part: Part) -> tuple[bool, tuple[str, ...], int]:
        nonlocal passed
        passed += int(part.weights.sum())
        return bool(part.pages), tuple(part.columns), passed // blocks.MAX_WEIGHT

    pages: list[Page] = []
    for (is_packed, names, _), run in groupby(parts, run_of):
        several = list(run)
        if is_packed:
            pages += chain.from_iterable(part.pages for part in several)
            continue
        columns = {
            name: vectors.concatenated([unpacked(part.columns[name]) for part in several])
            for name in names
        }
        weights = vectors.joined_weights([part.weights for part in several])
        pages += blocks.pack(layout, columns, weights)
    return pages
