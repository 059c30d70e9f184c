"""Stored rows as binary YSON, written column by column, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from yt_exactly_once.local.formats.yson_lines import NULL, Lines
from yt_exactly_once.local.tables.values import dump_yson

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.schema import Column
    from yt_exactly_once.local.tables.vectors import StoredRows

_ROWS_PER_PIECE = 8192
"""So that a matrix fits into the caches of a processor."""


def dump(rows: StoredRows) -> Iterator[bytes]:
    """Yield rows as a list fragment, piece by piece."""
    names = [dump_yson(column.name) + b"=" for column in rows.columns]
    for start in range(0, len(rows), _ROWS_PER_PIECE):
        part = rows[start : start + _ROWS_PER_PIECE]
        layout = Lines(len(part))
        layout.put(b"{")
        for name, column, array in zip(names, part.columns, part.arrays, strict=True):
            layout.put(name)
            _put_column(layout, column, array)
            layout.put(b";")
        layout.put(b"};")
        yield layout.joined()


def _put_column(lines: Lines, column: Column, array: Any) -> None:
    if column.wire_type != "any" or array.null_count == len(array):
        lines.put_values(array)
    else:
        # These are stored as YSON.
        lines.put_strings(pc.fill_null(array, NULL) if array.null_count else array)
