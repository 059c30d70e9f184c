"""Appends to ordered tables: row indexes, system columns, and rows that appear later than committed.

Owns the counters of tablets. Row indexes are given when rows are applied, contiguous per tablet in the
order of the batches. It never checks anything: what arrives here is part of a successful commit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from sqlite3 import Connection

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.store import Store
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.packed import unpacked
from yt_exactly_once.local.tablets import blocks, counters
from yt_exactly_once.local.tablets.block_bodies import Page
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.modifications import Part


def append(
    connection: Connection,
    layout: TableLayout,
    parts: Mapping[int, Sequence[Part]],
    timestamp: int,
    delay: float,
) -> None:
    """Append the rows of one commit, given by tablet; with a delay in seconds they only appear after it."""
    pages = {index: pack(layout, several) for index, several in parts.items()}
    if not delay:
        apply(connection, layout, pages, timestamp)
        return
    connection.execute(
        "INSERT INTO pending_appends (due, node_id, ts, body) VALUES (?, ?, ?, ?)",
        (time.time() + delay, layout.node_id, timestamp, _dump(pages)),
    )


def apply_due(store: Store, now: float | None = None) -> None:
    """Let rows appear whose delay is over; every read of an ordered table calls this first."""
    moment = time.time() if now is None else now
    with store.read() as connection:
        if not _due(connection, moment):
            return
    with store.write() as connection:
        _apply_pending(connection, _due(connection, moment))


def apply_pending(connection: Connection, layout: TableLayout) -> None:
    """Let all rows of a table appear; a tablet is only unmounted when its transactions are through."""
    pending = connection.execute(
        "SELECT id, node_id, ts, body FROM pending_appends WHERE node_id = ? ORDER BY id",
        (layout.node_id,),
    )
    _apply_pending(connection, pending.fetchall())


def _apply_pending(connection: Connection, pending: Sequence[tuple[int, str, int, bytes]]) -> None:
    for number, node_id, timestamp, body in pending:
        layout = find_layout(connection, node_id, node_id)
        if layout is not None:
            apply(connection, layout, _load(body), timestamp)
        connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def _due(connection: Connection, moment: float) -> list[tuple[int, str, int, bytes]]:
    return connection.execute(
        "SELECT id, node_id, ts, body FROM pending_appends WHERE due <= ? ORDER BY id", (moment,)
    ).fetchall()


def _dump(pages: Mapping[int, Sequence[Page]]) -> bytes:
    return values.dump_yson(
        [
            [index, [[*page[:-1], memoryview(page.body).tobytes()] for page in listed]]
            for index, listed in pages.items()
        ]
    )


def _load(body: bytes) -> dict[int, list[Page]]:
    return {index: [Page(*page) for page in listed] for index, listed in values.load_yson(body)}


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
            name: pa.concat_arrays([unpacked(part.columns[name]) for part in several])
            for name in names
        }
        weights = np.concatenate([part.weights for part in several])
        pages += blocks.pack(layout, columns, weights)
    return pages


def apply(
    connection: Connection, layout: TableLayout, pages: Mapping[int, Sequence[Page]], timestamp: int
) -> None:
    """Give rows their indexes and system columns, and write those of each tablet together."""
    for index, listed in pages.items():
        total, weight = counters.of(connection, layout, index, "total_rows", "total_weight")
        tablet_id = layout.tablets[index].tablet_id
        total, weight = blocks.append(
            connection, layout, tablet_id, listed, total, weight, timestamp
        )
        counters.put(
            connection,
            layout,
            index,
            total_rows=total,
            total_weight=weight,
            last_write_ts=timestamp,
            written_at=time.time(),
        )
