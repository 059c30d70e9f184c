"""The rows that a query reads, as the query language takes them: stored values in the order of the table.

SQLite seeks the rows of sorted tables by their keys. Those of ordered tables come from the blocks in the
ranges of tablets and rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import repeat
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.ql.binding.binder import POSITION_COLUMNS
from yt_exactly_once.local.ql.coverage import KeyRange, Reading, tablets_in
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.keys import AFTER, encode_prefix
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import reads

_BIAS = 1 << 63
_ENCODED_INT64 = 9
_LAST = _BIAS - 1


def read(connection: Connection, reading: Reading) -> Generator[tuple[Any, ...], None, None]:
    """Yield the values of the columns that a query names, for each row in its key ranges."""
    return (_sorted if reading.layout.sorted else _ordered)(connection, reading)


def _sorted(connection: Connection, reading: Reading) -> Generator[tuple[Any, ...], None, None]:
    layout = reading.layout
    names = ", ".join(map(layout.sql_column, reading.columns)) or "NULL"
    for bounds in reading.ranges:
        yield from connection.execute(
            f"SELECT {names} FROM {layout.sql_source}"
            ' WHERE "$key" >= ? AND "$key" < ? ORDER BY "$key"',
            bounds,
        )


def _ordered(connection: Connection, reading: Reading) -> Generator[tuple[Any, ...], None, None]:
    layout = reading.layout
    for index, first, past in spans(layout, reading.ranges):
        for rows in reads.ordered_rows(connection, layout, index, first, past):
            found = reads.stored_rows(layout, index, [rows])
            named = dict(zip((column.name for column in found.columns), found.arrays, strict=True))
            cells = [vectors.to_stored(named[name]) for name in reading.columns]
            yield from zip(*cells, strict=True) if cells else repeat((), len(found))


def spans(layout: TableLayout, ranges: Iterable[KeyRange]) -> Iterator[tuple[int, int, int]]:
    """Yield tablet, first row and the row after the last one; ranges in order do not overlap."""
    for wanted in ranges:
        for tablet in tablets_in(layout, [wanted]):
            start = encode_prefix(POSITION_COLUMNS[:1], (tablet.index,))
            first, past = _row(start, wanted.low, 0), _row(start, wanted.high, _LAST)
            if first < past:
                yield tablet.index, first, past


def _row(start: bytes, bound: bytes, otherwise: int) -> int:
    """Return the first row of a tablet that is not before a bound, if the bound is in the tablet."""
    if not bound.startswith(start):
        return otherwise
    within = bound[len(start) :]
    if within == AFTER:
        return _LAST
    # A bound shorter than a number is null, which is below all: a position is never null.
    index = int.from_bytes(within[1:_ENCODED_INT64], "big") - _BIAS
    return min(max(index + within.endswith(AFTER, _ENCODED_INT64), 0), _LAST)
