"""Columns of a large request, compressed until their commit.

A null takes the width of its column, and a composite value the names of its members. So the columns of few
bytes may be large. Of rows that come in pieces some are columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from yt_exactly_once.local.tables import vectors, written
from yt_exactly_once.local.tables.compression import compress, decompress
from yt_exactly_once.local.tables.schema import Column


class PackedColumn:
    """Stored values of one column.

    Args:
        parts: one behind the other: messages of Arrow with their sizes, or lists with values in pieces.
    """

    def __init__(self, column: Column, parts: list[Any]) -> None:
        self.column = column
        self.parts = parts

    @classmethod
    def of(cls, column: Column, stored: Any) -> PackedColumn:
        """Pack an array; a list has values in pieces already."""
        if isinstance(stored, PackedColumn):
            return stored
        if isinstance(stored, list):
            return cls(column, [stored])
        message = pa.record_batch([stored], names=[""]).serialize()
        return cls(column, [(compress(message), message.size)])

    @classmethod
    def joined(cls, columns: Sequence[PackedColumn]) -> PackedColumn:
        """Put columns behind each other."""
        return cls(columns[0].column, [part for column in columns for part in column.parts])

    def unpacked(self) -> Any:
        """Return an array."""
        return pa.concat_arrays(map(self.group, range(len(self.parts))))

    def group(self, number: int) -> Any:
        """Return a part as an array."""
        part = self.parts[number]
        if isinstance(part, list):
            return vectors.of_stored(self.column, written.whole(part))
        message, size = part
        schema = pa.schema([("", vectors.arrow_type(self.column))])
        return pa.ipc.read_record_batch(decompress(message, size), schema).column(0)


def packed(columns: Sequence[Column], data: Sequence[Any], *, everything: bool) -> list[Any]:
    """Pack columns: those with values in pieces, or all of them."""
    return [
        PackedColumn.of(column, stored) if everything or isinstance(stored, list) else stored
        for column, stored in zip(columns, data, strict=True)
    ]


def unpacked(stored: Any) -> Any:
    """Return a column as an array."""
    return stored.unpacked() if isinstance(stored, PackedColumn) else stored


def groups(data: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield columns as arrays, some rows at a time where they were packed so."""
    count = max((len(each.parts) for each in data if isinstance(each, PackedColumn)), default=1)
    if count == 1:
        yield list(map(unpacked, data))
        return
    # Groups that follow each other are packed as a whole.
    yield from ([column.group(number) for column in data] for number in range(count))
