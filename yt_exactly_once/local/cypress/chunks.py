"""The content of files and static tables: immutable chunks and the lists that refer to them.

A transaction that overwrites has a list of its own. One that appends has what it added, and how long
the lists below were then: it does not see what others append and commit later. A chunk lives as long
as a list refers to it; a trigger of SQLite sees to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress.ids import CELL_TAG, TYPES
from yt_exactly_once.local.cypress.layout import TRUNK
from yt_exactly_once.local.cypress.view import APPEND, OVERWRITE, View
from yt_exactly_once.local.formats.row_formats import load_stored
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.store import next_timestamp, scalar

_ENDLESS = 2**62


@dataclass(frozen=True)
class Chunk:
    """What is known about a chunk without reading it."""

    id: int
    size: int
    row_count: int
    written: int
    """When, as a timestamp."""

    @property
    def object_id(self) -> str:
        """Its id as an object of the cluster."""
        return f"0-{self.id:x}-{CELL_TAG << 16 | TYPES['chunk']:x}-0"


def chunks(view: View, node_id: str) -> list[Chunk]:
    """Return the chunks of a node in order, as a view sees them."""
    lists: list[list[Chunk]] = []
    lengths: dict[str, int] = {}
    for tx in view.chain:
        row = view.connection.execute(
            "SELECT mode, value FROM cypress_contents WHERE node_id = ? AND tx = ?", (node_id, tx)
        ).fetchone()
        if row is None:
            continue
        found = view.connection.execute(
            "SELECT chunks.id, size, row_count, written FROM chunk_refs JOIN chunks"
            " ON chunks.id = chunk_id WHERE node_id = ? AND tx = ? AND position < ?"
            " ORDER BY position",
            (node_id, tx, lengths.get(tx, _ENDLESS)),
        )
        lists.append([Chunk(*values) for values in found])
        if row[0] == OVERWRITE:
            break
        # The innermost append began last, and knows most.
        lengths = {**load_yson(row[1], "lengths"), **lengths}
    return [chunk for listed in reversed(lists) for chunk in listed]


def describe(view: View, object_id: str) -> dict[str, Any] | None:
    """Return the attributes of a chunk object; its codecs are those of a node that it is in."""
    number = int(object_id.split("-")[1], 16)
    found = view.connection.execute(
        "SELECT size, row_count, node_id FROM chunks JOIN chunk_refs ON id = chunk_id WHERE id = ?",
        (number,),
    ).fetchone()
    if found is None:
        return None
    size, row_count, node_id = found
    codecs = ("compression_codec", "erasure_codec")
    return {
        "id": object_id,
        "type": "chunk",
        "row_count": row_count,
        "uncompressed_data_size": size,
        "compressed_data_size": size,
        **{name: view.attribute(node_id, name) or "none" for name in codecs},
    }


def read(connection: Connection, chunk: Chunk) -> bytes:
    """Return the data of a chunk."""
    return bytes(scalar(connection, "SELECT data FROM chunks WHERE id = ?", chunk.id))


def edge_rows(view: View, listed: Iterable[Chunk]) -> list[dict[str, Any]]:
    """Return the first and the last row of chunks of a table, if there is any row."""
    filled = [chunk for chunk in listed if chunk.row_count]
    return [load_stored(read(view.connection, filled[place]))[place] for place in (0, -1) if filled]


def write(view: View, node_id: str, pieces: Iterable[tuple[bytes, int]], *, append: bool) -> None:
    """Replace or extend the content of a file or a static table by pieces with their row counts."""
    connection = view.connection
    if append:
        begin_append(view, node_id)
    else:
        replace(view, node_id, ())
    written = next_timestamp(connection)
    statement = "INSERT INTO chunks (size, row_count, written, data) VALUES (?, ?, ?, ?)"
    made = [
        connection.execute(statement, (len(data), row_count, written, data)).lastrowid
        for data, row_count in pieces
    ]
    add_refs(view, node_id, made)


def begin_append(view: View, node_id: str) -> None:
    """Let a transaction have a list of what it appends to a node."""
    query = "SELECT 1 FROM cypress_contents WHERE node_id = ? AND tx = ?"
    known = scalar(view.connection, query, node_id, view.tx)
    if known is None and view.tx == TRUNK:
        view.put_content(node_id, OVERWRITE, None)
    elif known is None:
        below = {tx: _next_position(view.connection, node_id, tx) for tx in view.chain[1:]}
        view.put_content(node_id, APPEND, dump_yson(below))


def replace(view: View, node_id: str, listed: Iterable[Chunk]) -> None:
    """Make existing chunks the content of a node."""
    # The old list goes last: chunks that are on both lists must not be forgotten in between.
    key = (node_id, view.tx)
    first = _next_position(view.connection, *key)
    view.put_content(node_id, OVERWRITE, None)
    add_refs(view, node_id, [chunk.id for chunk in listed])
    view.connection.execute(
        "DELETE FROM chunk_refs WHERE node_id = ? AND tx = ? AND position < ?", (*key, first)
    )


def add_refs(view: View, node_id: str, ids: Iterable[int | None]) -> None:
    """Append existing chunks to the list that a node has in this transaction."""
    key = (node_id, view.tx)
    view.connection.executemany(
        "INSERT INTO chunk_refs VALUES (?, ?, ?, ?)",
        [(*key, *each) for each in enumerate(ids, _next_position(view.connection, *key))],
    )


def merge(connection: Connection, node_id: str, tx: str, parent_tx: str) -> None:
    """Move the content that a node has in a transaction into the parent transaction."""
    of_node = "WHERE node_id = ? AND tx = ?"
    mode = scalar(connection, f"SELECT mode FROM cypress_contents {of_node}", node_id, tx)
    if mode == OVERWRITE:
        connection.execute(f"DELETE FROM chunk_refs {of_node}", (node_id, parent_tx))
    connection.execute(
        f"UPDATE OR {'REPLACE' if mode == OVERWRITE else 'IGNORE'} cypress_contents SET tx = ? {of_node}",
        (parent_tx, node_id, tx),
    )
    connection.execute(f"DELETE FROM cypress_contents {of_node}", (node_id, tx))
    connection.execute(
        "UPDATE chunk_refs SET tx = ?, position = position + ? WHERE node_id = ? AND tx = ?",
        (parent_tx, _next_position(connection, node_id, parent_tx), node_id, tx),
    )


def iterate(
    view: View, node_id: str, offset: int = 0, length: int | None = None
) -> Iterator[bytes]:
    """Return bytes of a file from an offset on, chunk by chunk; which chunks is settled at once."""
    parts: list[tuple[Chunk, slice]] = []
    passed = 0
    for chunk in chunks(view, node_id):
        end = chunk.size if length is None else min(offset + length - passed, chunk.size)
        part = slice(max(offset - passed, 0), end)
        if part.start < part.stop:
            parts.append((chunk, part))
        passed += chunk.size
    return (read(view.connection, chunk)[part] for chunk, part in parts)


def _next_position(connection: Connection, node_id: str, tx: str) -> int:
    query = "SELECT COALESCE(MAX(position), -1) + 1 FROM chunk_refs WHERE node_id = ? AND tx = ?"
    return int(scalar(connection, query, node_id, tx))
