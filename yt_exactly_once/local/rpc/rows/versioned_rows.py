"""Rows with all their versions, for the wire.

A row is a header, the timestamps of its writes and deletes, its keys, and each value with the timestamp it
was written at, the newest first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from yt_exactly_once.local.rpc.rows import rowset_writer
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables.schema import Column

_MISSING_ROW = struct.pack("<Q", (1 << 64) - 1)
_HEADER = struct.Struct("<4I")
_BITS = 64


def encode(rows: Sequence[Any], columns: Sequence[Column]) -> bytes:
    """Write rows as `lookup_rows` returns them with `versioned`; a value column has a list of versions."""
    pieces = [struct.pack("<Q", len(rows))]
    pieces += [_MISSING_ROW if row is None else _row(row, columns) for row in rows]
    return b"".join(pieces)


def _row(row: Any, columns: Sequence[Column]) -> bytes:
    written = [int(stamp) for stamp in row.attributes["write_timestamps"]]
    deleted = [int(stamp) for stamp in row.attributes["delete_timestamps"]]
    keys = [(number, column) for number, column in enumerate(columns) if column.is_key]
    values = [
        rowset_writer.encode_cell(number, column, _plain(version))
        + struct.pack("<Q", int(version.attributes["timestamp"]))
        for number, column in enumerate(columns)
        if not column.is_key
        for version in row.get(column.name, ())
    ]
    head = _HEADER.pack(len(values), len(keys), len(written), len(deleted))
    stamps = struct.pack(f"<{len(written) + len(deleted)}Q", *written, *deleted)
    return b"".join([head, stamps, _keys(row, keys), *values])


def _keys(row: Any, keys: list[tuple[int, Column]]) -> bytes:
    words = [0] * -(-len(keys) // _BITS)
    pieces = []
    for position, (number, column) in enumerate(keys):
        kind, value = kinds.of_column(column), row[column.name]
        if value is None:
            words[position // _BITS] |= 1 << position % _BITS
            continue
        whole = rowset_writer.encode_cell(number, column, value)
        if kind in kinds.STRING_LIKE:
            # Keys have the length alone in front.
            length = int.from_bytes(whole[4:8], "little")
            pieces.append(struct.pack("<Q", length) + whole[8:])
        else:
            pieces.append(whole[8:])
    return struct.pack(f"<{len(words)}Q", *words) + b"".join(pieces)


def _plain(version: Any) -> Any:
    """Return a value without the attributes that say when it was written."""
    return None if type(version).__name__ == "YsonEntity" else version
