"""Large bodies of rows, parsed some rows at a time: as many as take little memory as Python objects.

What is in a piece is not decided here; the parsers of the formats do that. A row that is large by itself is
taken apart by columns, and its large values stay bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_checks
from yt_exactly_once.local.tables import large_values, yson_cells
from yt_exactly_once.local.tables.columnar import PiecewiseRows
from yt_exactly_once.local.tables.large_values import LARGE, LargeValue

Row = dict[str, Any]
MOST_COLUMNS = 32 * 1024 - 1
"""Of a row of a static table; those of dynamic tables have less."""


def of_yson(data: bytes, parse: Callable[[bytes, int], Sequence[Row]]) -> Sequence[Row]:
    """Parse rows of YSON.

    Args:
        parse: parses some rows, and is told how many others come before them.
    """
    if len(data) <= LARGE:
        rows = parse(data, 0)
        if b"\0" in data:
            # The parser takes a zero byte between rows for the end of all.
            sum(1 for _ in large_values.items(data))
        return rows

    def pieces() -> Iterator[Sequence[Row]]:
        passed = 0
        for piece in large_values.joined(large_values.items(data), LARGE):
            large = len(piece) > LARGE
            rows = [_large_row(piece, passed)] if large else parse(piece, passed)
            yield rows
            passed += len(rows)

    return PiecewiseRows(pieces)


def of_rows(size: int, parse: Callable[[], Iterator[tuple[Row, int]]]) -> Sequence[Row]:
    """Take rows one by one.

    Args:
        size: bytes of the body.
        parse: yields rows from the first one on, each with the bytes that it is parsed from.
    """
    if size <= LARGE:
        return [row for row, _ in parse()]

    def pieces() -> Iterator[Sequence[Row]]:
        held: list[Row] = []
        room = LARGE
        for row, taken in parse():
            held.append(row)
            room -= taken
            if room < 0:
                yield held
                held, room = [], LARGE
        if held:
            yield held

    return PiecewiseRows(pieces)


def _large_row(data: bytes, index: int) -> Row:
    """Parse a row whose large values stay YSON."""
    if data.lstrip()[:1] != b"{":
        raise row_checks.no_row(None, index)
    row: Row = {}
    for cell in yson_cells.cells(data):
        name = row_checks.column_name(cell.key)
        if name in row:
            raise row_checks.duplicate_column(name)
        if len(row) >= MOST_COLUMNS:
            raise YtError("Too many columns in row", limit=MOST_COLUMNS)
        value = large_values.parsed(data[cell.begin : cell.end])
        if isinstance(value, LargeValue) and value.opening == b"<":
            # A value without attributes in its brackets is rare enough to take the same way.
            value = value.loaded()
        row_checks.check_value(value)
        row[name] = value
    return row
