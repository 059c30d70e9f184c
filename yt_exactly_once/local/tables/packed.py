"""Columns of a large request, compressed until their commit.

A null takes the width of its column, and a composite value the names of its members. So the columns of few
bytes may be large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from yt_exactly_once.local.tables import vectors, written
from yt_exactly_once.local.tables.compression import compress, decompress
from yt_exactly_once.local.tables.schema import Column


class PackedColumn:
    """Stored values of one column: an array, or a list with values in pieces, which stays as it is."""

    def __init__(self, column: Column, stored: Any) -> None:
        self._column = column
        self._held = stored
        self._size = 0
        if not isinstance(stored, list):
            message = pa.record_batch([stored], names=[""]).serialize()
            self._held, self._size = compress(message), message.size

    def unpacked(self) -> Any:
        """Return an array."""
        if isinstance(self._held, list):
            return vectors.of_stored(self._column, written.whole(self._held))
        schema = pa.schema([("", vectors.arrow_type(self._column))])
        return pa.ipc.read_record_batch(decompress(self._held, self._size), schema).column(0)


def packed(columns: Sequence[Column], data: Sequence[Any], *, everything: bool) -> list[Any]:
    """Pack columns: those with values in pieces, or all of them."""
    return [
        PackedColumn(column, stored) if everything or isinstance(stored, list) else stored
        for column, stored in zip(columns, data, strict=True)
    ]


def unpacked(stored: Any) -> Any:
    """Return a column as an array."""
    return stored.unpacked() if isinstance(stored, PackedColumn) else stored
