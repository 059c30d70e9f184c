"""Rows of one request kept by columns, which is how they are checked and stored.

In most requests all rows have the same columns. One map per row would cost more than everything else that
happens to the row. A column is a list, or an Arrow array where the request had one. Python objects take far
more bytes than what they are parsed from, so the rows of a large body are objects a piece at a time.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Self, overload

Row = dict[str, Any]


class LazyRows(Sequence[Row]):
    """Rows of which a slice is of the same kind; a row becomes a map only when it is looked at."""

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Row | Self:
        if isinstance(index, slice):
            return self._slice(index)
        return next(iter(self._slice(slice(index, index + 1 or None))))

    @abstractmethod
    def _slice(self, chosen: slice) -> Self: ...


class ColumnarRows(LazyRows):
    """Rows with the same columns in the same order.

    Args:
        columns: values by column name, all of one length: lists or Arrow arrays.
    """

    def __init__(self, columns: dict[str, Any], count: int) -> None:
        self.columns = columns
        self.column = columns.get
        self._count = count

    def __len__(self) -> int:
        return self._count

    def _slice(self, chosen: slice) -> ColumnarRows:
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return ColumnarRows(columns, len(range(*chosen.indices(self._count))))

    def __iter__(self) -> Iterator[Row]:
        if not self.columns:
            return iter([{} for _ in range(self._count)])
        names = tuple(self.columns)
        values = zip(*map(listed, self.columns.values()), strict=True)
        return (dict(zip(names, row, strict=True)) for row in values)


class PiecewiseRows(LazyRows):
    """Rows of a large body, parsed piece by piece, each time that they are looked at or counted.

    A slice must count from the first row.

    Args:
        pieces: parses the rows from the first one on.
        column: returns all of one column without parsing the others; None where it cannot.
    """

    def __init__(
        self,
        pieces: Callable[[], Iterator[Sequence[Row]]],
        column: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.pieces = pieces
        self.column = column

    def __len__(self) -> int:
        return sum(map(len, self.pieces()))

    def __bool__(self) -> bool:
        return any(self.pieces())

    def _slice(self, chosen: slice) -> PiecewiseRows:
        start, stop = chosen.start or 0, sys.maxsize if chosen.stop is None else chosen.stop

        def pieces() -> Iterator[Sequence[Row]]:
            passed = 0
            for piece in self.pieces():
                part = piece[max(start - passed, 0) : max(stop - passed, 0)]
                if part:
                    yield part
                passed += len(piece)

        return PiecewiseRows(pieces)

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self.pieces())

    def mapped(self, change: Callable[[Sequence[Row]], Sequence[Row]]) -> PiecewiseRows:
        """Return the rows as a function leaves them, which takes some of them and returns as many."""
        return PiecewiseRows(lambda: map(change, self.pieces()))


def pieces_of(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows as many at a time as may be objects together: all of them, or at least one piece."""
    pieces = rows.pieces() if isinstance(rows, PiecewiseRows) else iter((rows,))
    yield next(pieces, [])
    yield from pieces


def listed(values: Any) -> list[Any]:
    """Return the values of a column as a list."""
    found: list[Any] = values if isinstance(values, list) else values.to_pylist()
    return found


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """Return what every row holds in a column; None where it does not mention it."""
    if isinstance(rows, PiecewiseRows):
        return [value for piece in rows.pieces() for value in values_of(piece, name)]
    if isinstance(rows, ColumnarRows):
        return listed(rows.columns[name]) if name in rows.columns else [None] * len(rows)
    return [row.get(name) for row in rows]


def without(rows: Sequence[Row], name: str) -> Sequence[Row]:
    """Return the rows without a column."""
    if isinstance(rows, PiecewiseRows):
        return rows.mapped(lambda piece: without(piece, name))
    if isinstance(rows, ColumnarRows):
        others = {other: values for other, values in rows.columns.items() if other != name}
        return ColumnarRows(others, len(rows))
    return [{other: value for other, value in row.items() if other != name} for row in rows]
