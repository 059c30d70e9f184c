"""Appends to ordered tables: row indexes, system columns, and rows that appear later than committed.

Owns the counters of tablets. Row indexes are given when rows are applied, contiguous per tablet in the
order of the batches. It never checks anything: what arrives here is part of a successful commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.store import Store
from yt_exactly_once.local.tables import values, vectors
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN, Column
from yt_exactly_once.local.tablets import blocks, counters
from yt_exactly_once.local.tablets.block_bodies import Rows
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.modifications import Batch


class Part(NamedTuple):
    """Rows for one tablet: the index of it, names of columns, the columns, and weights of rows."""

    tablet: int
    names: list[str]
    arrays: list[Any]
    weights: Any


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
    parts = [part for batch, places in batches for part in _split(batch, places)]
    if not delay:
        apply(connection, layout, parts, timestamp)
        return
    connection.execute(
        "INSERT INTO pending_appends (due, node_id, ts, body) VALUES (?, ?, ?, ?)",
        (time.time() + delay, layout.node_id, timestamp, _dump_parts(parts)),
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
            apply(connection, layout, _load_parts(body), timestamp)
        connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def forget_pending(connection: sqlite3.Connection, layout: TableLayout, index: int) -> None:
    """Drop the rows of a tablet that have been committed and have not appeared."""
    pending = connection.execute(
        "SELECT id, body FROM pending_appends WHERE node_id = ?", (layout.node_id,)
    ).fetchall()
    for number, body in pending:
        parts = [part for part in _load_parts(body) if part.tablet != index]
        connection.execute(
            "UPDATE pending_appends SET body = ? WHERE id = ?", (_dump_parts(parts), number)
        )


def _due(connection: sqlite3.Connection, moment: float) -> list[tuple[int, str, int, bytes]]:
    return connection.execute(
        "SELECT id, node_id, ts, body FROM pending_appends WHERE due <= ? ORDER BY id", (moment,)
    ).fetchall()


def _dump_parts(parts: Sequence[Part]) -> bytes:
    return values.dump_yson([[part.tablet, _dump_rows(part)] for part in parts])


def _dump_rows(part: Part) -> bytes:
    arrays = [*part.arrays, pa.array(part.weights, pa.int64())]
    batch = pa.RecordBatch.from_arrays(arrays, [*part.names, ""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    dumped: bytes = sink.getvalue().to_pybytes()
    return dumped


def _load_parts(body: bytes) -> list[Part]:
    parts = []
    for index, rows in values.load_yson(body):
        batch = pa.ipc.open_stream(rows).read_next_batch()
        *names, _ = batch.schema.names
        *arrays, weights = batch.columns
        parts.append(Part(index, names, arrays, weights.to_numpy()))
    return parts


def _split(batch: Batch, places: Mapping[int, Any]) -> list[Part]:
    """Part the rows of a batch by tablet, keeping their order."""
    names = [column.name for column in batch.rows.columns]
    arrays, weights = batch.rows.data, batch.weights
    return [
        Part(index, names, arrays, weights)
        if positions is None
        else Part(
            index, names, [array.take(pa.array(positions)) for array in arrays], weights[positions]
        )
        for index, positions in sorted(places.items())
    ]


def apply(
    connection: sqlite3.Connection, layout: TableLayout, parts: Sequence[Part], timestamp: int
) -> None:
    """Give rows their indexes and system columns, and write those of each tablet together."""
    grouped: dict[int, list[Part]] = {}
    for part in parts:
        grouped.setdefault(part.tablet, []).append(part)
    for index, members in grouped.items():
        total, weight = counters.of(connection, layout, index, "total_rows", "total_weight")
        weights = np.concatenate([part.weights for part in members])
        count = len(weights)
        sums = np.cumsum(weights) + weight
        given = {
            TIMESTAMP_COLUMN: pa.array(np.full(count, timestamp, np.uint64)),
            CUMULATIVE_WEIGHT_COLUMN: pa.array(sums),
        }
        arrays = [
            given[column.name] if column.name in given else _column(members, column, count)
            for column in layout.columns
        ]
        rows = Rows(total, pa.array(np.full(count, timestamp, np.int64)), arrays)
        if count:
            blocks.append(connection, layout, layout.tablets[index].tablet_id, rows, weights)
        counters.put(
            connection,
            layout,
            index,
            total_rows=total + count,
            total_weight=weight + int(weights.sum()),
            last_write_ts=timestamp,
            written_at=time.time(),
        )


def _column(parts: Sequence[Part], column: Column, count: int) -> Any:
    """Return what all parts hold in a column; they lack those that are younger than they are."""
    if any(column.name not in part.names for part in parts):
        return pa.nulls(count, vectors.arrow_type(column))
    pieces = [part.arrays[part.names.index(column.name)] for part in parts]
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
