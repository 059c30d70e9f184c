"""Rows of chunks that become rows of a dynamic table; no transaction wrote them."""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress.chunks import Chunk
from yt_exactly_once.local.tables import keys, vectors
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tablets import appends, blocks, flushed


def load(
    connection: Connection,
    layout: TableLayout,
    columns: list[list[Any]],
    chunk: Chunk,
    timestamp: int,
) -> None:
    """Put the rows of a chunk, by column, behind those of a table with one unmounted tablet.

    Keys come in order. A read before the chunk was written does not see its rows in a sorted table.
    """
    tablet = layout.tablets[0]
    count = len(columns[0])
    if not layout.sorted:
        arrays = {
            column.name: vectors.of_stored(column, stored)
            for column, stored in zip(layout.columns, columns, strict=True)
        }
        weights = vectors.weigh(layout.columns, list(arrays.values()), count)
        pages = blocks.pack(layout, arrays, weights)
        first = flushed.until(connection, tablet.tablet_id)
        appends.append(connection, layout, tablet.index, pages, timestamp)
        flushed.add(
            connection, tablet.tablet_id, flushed.Chunk(chunk.object_id, first, first + count)
        )
        return
    encoded = keys.key_encoder(layout.key_columns)(columns[: len(layout.key_columns)])
    names = ['"$key"', '"$ts"', '"$deleted"', *map(quote, layout.sql_names)]
    marks = ", ".join(["?", str(chunk.written), "0", *"?" * len(columns)])
    connection.executemany(
        f"INSERT INTO {layout.sql_table} ({', '.join(names)}) VALUES ({marks})",
        zip(encoded, *columns, strict=True),
    )
    connection.execute(
        "UPDATE tablets SET last_write_ts = ? WHERE tablet_id = ?", (timestamp, tablet.tablet_id)
    )
    flushed.add(connection, tablet.tablet_id, flushed.Chunk(chunk.object_id, 0, timestamp))
