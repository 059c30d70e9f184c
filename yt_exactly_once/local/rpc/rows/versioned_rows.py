"""Rows with all their versions, for the wire.

A row is a header, the timestamps of its writes and deletes, its keys, and each value with the timestamp it
was written at, the newest first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from yt_exactly_once.local.rpc.rows import rowset_writer
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables.schema import Column

Writers = Sequence[tuple[Column, Callable[[Any], bytes]]]

_HEADER = struct.Struct("<4I")


def encode(rows: Sequence[Any], columns: Sequence[Column]) -> bytes:
    """Write rows as `lookup_rows` returns them with `versioned`; a value column has a list of versions."""
    writers = [(each, rowset_writer.writer_of(number, each)) for number, each in enumerate(columns)]
    pieces = [struct.pack("<Q", len(rows))]
    pieces += [rowset_writer.MISSING_ROW if row is None else _row(row, writers) for row in rows]
    return b"".join(pieces)


def _row(row: Any, writers: Writers) -> bytes:
    written = [int(stamp) for stamp in row.attributes["write_timestamps"]]
    deleted = [int(stamp) for stamp in row.attributes["delete_timestamps"]]
    keys = [(column, write) for column, write in writers if column.is_key]
    values = [
        write(_plain(version)) + struct.pack("<Q", int(version.attributes["timestamp"]))
        for column, write in writers
        if not column.is_key
        for version in row.get(column.name, ())
    ]
    head = _HEADER.pack(len(values), len(keys), len(written), len(deleted))
    stamps = struct.pack(f"<{len(written) + len(deleted)}Q", *written, *deleted)
    return b"".join([head, stamps, _keys(row, keys), *values])


def _keys(row: Any, keys: Writers) -> bytes:
    """Write which keys are null, and the others, of which only strings have a length in front."""
    nulls, pieces = 0, []
    for position, (column, write) in enumerate(keys):
        if row[column.name] is None:
            nulls |= 1 << position
            continue
        whole = write(row[column.name])
        if kinds.of_column(column) in kinds.STRING_LIKE:
            pieces.append(whole[4:8] + bytes(4))
        pieces.append(whole[8:])
    return nulls.to_bytes(-(-len(keys) // 64) * 8, "little") + b"".join(pieces)


def _plain(version: Any) -> Any:
    """Return a value without the attributes that say when it was written."""
    return None if type(version).__name__ == "YsonEntity" else version
