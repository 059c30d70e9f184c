"""Appends to ordered tables: row indexes, system columns, and rows that appear later than committed.

Owns the counters of tablets. Row indexes are given when rows are applied, contiguous per tablet in the
order of the batches. It never checks anything: what arrives here is part of a successful commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.store import Store
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.packed import groups
from yt_exactly_once.local.tablets import blocks, counters
from yt_exactly_once.local.tablets.block_bodies import Page
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.modifications import Batch


class Part(NamedTuple):
    """Rows for one tablet: names of columns, the columns, and weights of rows; or pages with all of that."""

    tablet: int
    names: list[str]
    arrays: list[Any]
    weights: Any
    pages: Sequence[Page] = ()


def append(
    connection: sqlite3.Connection,
    layout: TableLayout,
    batches: Sequence[tuple[Batch, Mapping[int, Any]]],
    timestamp: int,
    delay: float,
) -> None:
    """Append the batches of one commit; with a delay the rows only appear after it.

    Args:
        connection: from `Store.write`.
        batches: each with the positions of the rows for every tablet, `None` where all go there.
        delay: seconds.
    """
    pages = _packed(layout, (part for batch, places in batches for part in _split(batch, places)))
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


def apply_pending(connection: sqlite3.Connection, layout: TableLayout) -> None:
    """Let all rows of a table appear; a tablet is only unmounted when its transactions are through."""
    pending = connection.execute(
        "SELECT id, node_id, ts, body FROM pending_appends WHERE node_id = ? ORDER BY id",
        (layout.node_id,),
    )
    _apply_pending(connection, pending.fetchall())


def _apply_pending(
    connection: sqlite3.Connection, pending: Sequence[tuple[int, str, int, bytes]]
) -> None:
    for number, node_id, timestamp, body in pending:
        layout = find_layout(connection, node_id, node_id)
        if layout is not None:
            apply(connection, layout, _load(body), timestamp)
        connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def forget_pending(connection: sqlite3.Connection, layout: TableLayout, index: int) -> None:
    """Drop the rows of a tablet that have been committed and have not appeared."""
    pending = connection.execute(
        "SELECT id, body FROM pending_appends WHERE node_id = ?", (layout.node_id,)
    ).fetchall()
    for number, body in pending:
        others = {tablet: pages for tablet, pages in _load(body).items() if tablet != index}
        connection.execute(
            "UPDATE pending_appends SET body = ? WHERE id = ?", (_dump(others), number)
        )


def _due(connection: sqlite3.Connection, moment: float) -> list[tuple[int, str, int, bytes]]:
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


def _split(batch: Batch, places: Mapping[int, Any]) -> Iterator[Part]:
    """Part the rows of a batch by tablet, keeping their order."""
    names = [column.name for column in batch.rows.columns]
    start = 0
    for arrays in groups(batch.rows.data):
        end = start + len(arrays[0]) if arrays else batch.rows.count
        weights = batch.weights[start:end]
        for index, positions in sorted(places.items()):
            if positions is None:
                yield Part(index, names, arrays, weights, batch.pages)
                continue
            first, past = np.searchsorted(positions, (start, end))
            chosen = positions[first:past] - start
            taken = [array.take(pa.array(chosen)) for array in arrays]
            yield Part(index, names, taken, weights[chosen])
        start = end


def _packed(layout: TableLayout, parts: Iterable[Part]) -> dict[int, list[Page]]:
    """Pack what is not packed yet; rows of one tablet that follow each other share blocks."""
    pages: dict[int, list[Page]] = defaultdict(list)
    waiting: dict[int, list[Part]] = defaultdict(list)
    room: dict[int, int] = defaultdict(lambda: blocks.MAX_WEIGHT)

    def pack(index: int) -> None:
        held = waiting.pop(index, [])
        if held:
            pages[index] += blocks.pack(layout, *_joined(held))
        room.pop(index, None)

    for part in parts:
        index = part.tablet
        if part.pages:
            pack(index)
            pages[index] += part.pages
            continue
        waiting[index].append(part)
        room[index] -= int(part.weights.sum())
        # A part may be compressed until its turn comes, so they do not wait for each other.
        if room[index] <= 0:
            pack(index)
    for index in list(waiting):
        pack(index)
    return pages


def _joined(parts: Sequence[Part]) -> tuple[list[str], list[Any], Any]:
    """Return the columns that all parts have, with their names, and the weights."""
    names = [name for name in parts[0].names if all(name in part.names for part in parts)]
    columns = [[part.arrays[part.names.index(name)] for part in parts] for name in names]
    return (
        names,
        list(map(pa.concat_arrays, columns)),
        np.concatenate([part.weights for part in parts]),
    )


def apply(
    connection: sqlite3.Connection,
    layout: TableLayout,
    pages: Mapping[int, Sequence[Page]],
    timestamp: int,
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
