"""Reads of dynamic tables by key and by row index.

Owns lookups and range reads of ordered tables. The caller chooses the connection and so the moment: the
snapshot of a transaction, or the newest state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import values, vectors
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import blocks, counters, retention, row_images, row_results
from yt_exactly_once.local.tablets.block_bodies import Rows, joined
from yt_exactly_once.local.tablets.catalog import find_layout

Row = dict[str, Any]

LATEST_TIMESTAMPS_FROM = 0x3FFFFFFFFFFFFF00
"""From here on timestamps are names: newest, synchronously or asynchronously committed."""

INDEX_COLUMNS = tuple(
    Column(name, "int64", "int64", required=True) for name in ("$tablet_index", "$row_index")
)


def layout_at(
    connection: Connection,
    layout: TableLayout,
    timestamp: int | None = None,
    retention_timestamp: int | None = None,
) -> TableLayout | None:
    """Return a table as a connection sees it, or as it was; None when it is too young to be seen.

    Args:
        timestamp: the moment to look at, if not the newest.
        retention_timestamp: rows last written before it are hidden.

    Raises:
        YtError: the history of that moment is gone.
    """
    seen = find_layout(connection, layout.node_id, layout.path)
    if seen is not None and retention_timestamp is not None:
        seen = seen.since(retention_timestamp)
    if seen is None or timestamp is None or timestamp >= LATEST_TIMESTAMPS_FROM:
        return seen
    retained = retention.retained_from(connection, layout.node_id)
    if timestamp < retained:
        raise YtError(
            f"Timestamp {timestamp} is less than the retained timestamp {retained} of table "
            f"{layout.path}"
        )
    return seen.at(timestamp)


def lookup_stored(
    connection: Connection, layout: TableLayout, keys: Sequence[bytes], columns: Sequence[Column]
) -> StoredRows:
    """Return the rows that exist in the order of the keys, for formats that write by vector."""
    # SQLite would not look keys up in rows of two tables.
    wanted = [] if layout.read_timestamp is not None or not columns else keys
    image = row_images.image_of([pa.array(wanted, pa.binary())])
    if image is not None:
        with row_images.opened(connection, image):
            selected = ", ".join(layout.sql_column(column.name) for column in columns)
            arrays = row_results.fetch(
                connection,
                f"SELECT {selected} FROM {row_images.TABLE}"
                f' CROSS JOIN {layout.sql_source} ON "$key" = {row_images.column(0)}',
                columns,
            )
            return StoredRows(columns, arrays, len(arrays[0]))
    by_key = fetch(connection, layout, keys, columns)
    rows = [by_key[key] for key in keys if key in by_key]
    arrays = row_results.of_rows(columns, rows)
    return StoredRows(columns, arrays, len(rows))


def lookup(
    connection: Connection, layout: TableLayout, keys: Sequence[bytes], columns: Sequence[Column]
) -> list[Row | None]:
    """Return one row per key in the order of the keys, None where there is none."""
    found = fetch(connection, layout, keys, columns)
    stored = [key for key in keys if key in found]
    rows = iter(values.decode_rows(columns, [found[key] for key in stored]))
    return [next(rows) if key in found else None for key in keys]


def fetch(
    connection: Connection, layout: TableLayout, keys: Sequence[bytes], columns: Sequence[Column]
) -> dict[bytes, tuple[Any, ...]]:
    """Return stored values of the existing rows by key."""
    found: dict[bytes, tuple[Any, ...]] = {}
    selected = ", ".join([*(layout.sql_column(column.name) for column in columns), '"$key"'])
    for marks, portion in row_images.portions(keys):
        rows = connection.execute(
            f'SELECT {selected} FROM {layout.sql_source} WHERE "$key" IN ({marks})', portion
        )
        found |= {row[-1]: row[:-1] for row in rows.fetchall()}
    return found


def read_range(
    connection: Connection,
    layout: TableLayout,
    tablet_index: int,
    offset: int,
    *,
    max_rows: int,
    max_weight: int,
) -> StoredRows:
    """Return rows of an ordered table from an index on, up to the limits, at least one if any."""
    found: list[Rows] = []
    weight = 0
    for rows in ordered_rows(connection, layout, tablet_index, offset, offset + max(max_rows, 0)):
        if weight >= max_weight:
            break
        sums = np.cumsum(vectors.weigh(layout.columns, rows.arrays, len(rows.timestamps))) + weight
        # The row that reaches the weight is included.
        fitting = min(int(np.searchsorted(sums, max_weight)) + 1, len(sums))
        found.append(rows.between(rows.first, rows.first + fitting))
        weight = int(sums[fitting - 1])
    return stored_rows(layout, tablet_index, found)


def ordered_rows(
    connection: Connection, layout: TableLayout, tablet_index: int, first: int, past: int
) -> Iterator[Rows]:
    """Yield the rows of a tablet of an ordered table in a range of indexes, piece by piece."""
    trimmed, total = bounds(connection, layout, tablet_index)
    tablet_id = layout.tablets[tablet_index].tablet_id
    first, past = max(first, trimmed), min(past, total)
    return blocks.read(connection, layout, tablet_id, first, past)


def bounds(connection: Connection, layout: TableLayout, tablet_index: int) -> tuple[int, int]:
    """Return the indexes of the first row of an ordered tablet and of the next one to come."""
    trimmed, total = counters.of(connection, layout, tablet_index, "trimmed_rows", "total_rows")
    return int(trimmed), int(total)


def stored_rows(layout: TableLayout, tablet_index: int, parts: Sequence[Rows]) -> StoredRows:
    """Return consecutive rows of an ordered tablet with their position in front."""
    nothing = [pa.nulls(0, vectors.arrow_type(column)) for column in layout.columns]
    first, moments, arrays = joined(parts) if parts else (0, (), nothing)
    count = len(moments)
    position = np.full(count, tablet_index, np.int64), np.arange(first, first + count)
    columns = (*INDEX_COLUMNS, *layout.columns)
    return StoredRows(columns, [*map(pa.array, position), *arrays], count)


def cell(
    connection: Connection, layout: TableLayout, index: int, row_index: int, name: str
) -> int | None:
    """Return a number of a row of an ordered table; None without the column, the row or the number."""
    place = layout.places.get(name)
    if place is None or not 0 <= index < layout.tablet_count:
        return None
    for rows in ordered_rows(connection, layout, index, row_index, row_index + 1):
        found: int | None = rows.arrays[place][0].as_py()
        return found
    return None
