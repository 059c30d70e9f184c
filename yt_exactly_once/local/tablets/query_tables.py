"""Rows of ordered tables as SQL tables, for as long as a query over them runs.

The query language reads SQL tables, and rows of ordered tables lie in blocks. What a query reads of them goes
into temporary tables: the columns that it names, from the blocks in its ranges of tablets and rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from yt_exactly_once.local.ql.coverage import Reading, tablets_in
from yt_exactly_once.local.ql.key_sql import position_range
from yt_exactly_once.local.ql.ranges import KeyRange
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets import reads
from yt_exactly_once.local.tablets.block_bodies import Rows

_LAST = (1 << 63) - 1
_ROWS_PER_STATEMENT = 25
_PARAMETERS_PER_STATEMENT = 999
"""As many as every SQLite takes (`SQLITE_MAX_VARIABLE_NUMBER`)."""

_POSITION = '"$tablet_index", "$row_index"'


class QueryTables:
    """The temporary tables of one query.

    Args:
        connection: where the query runs; `drop` must be called on it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables: dict[str, TableLayout] = {}

    def fill(self, reading: Reading) -> None:
        """Make the rows readable that a query reads of an ordered table."""
        layout, most, columns = reading.layout, reading.most, reading.columns
        ranges: Iterable[KeyRange] | None = None
        if layout.sql_table in self._tables:
            # Joined with itself: whatever each part reads, all of it is there.
            most, columns = None, frozenset(column.name for column in layout.columns)
            self._remove(layout.sql_table)
        else:
            ranges = reading.ranges
        self._tables[layout.sql_table] = layout
        names = ", ".join(map(quote, layout.sql_names))
        table = f"temp.{quote(layout.sql_table)}"
        self._connection.execute(
            f"CREATE TABLE {table} ({_POSITION}, {names}, PRIMARY KEY ({_POSITION})) WITHOUT ROWID"
        )
        chosen = [
            (column, place, name)
            for place, (column, name) in enumerate(
                zip(layout.columns, layout.sql_names, strict=True)
            )
            if column.name in columns
        ]
        listed = ", ".join([_POSITION, *(quote(name) for *_, name in chosen)])
        stored = [(column, place) for column, place, _ in chosen]
        for index, rows in self._pieces(layout, ranges, most):
            self._insert(f"INSERT INTO {table} ({listed})", _tuples(index, rows, stored))

    def _insert(self, insert: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Insert rows, many per statement: a statement costs as much as a row."""
        listed = list(rows)
        if not listed:
            return
        width = len(listed[0])
        many = max(1, min(_ROWS_PER_STATEMENT, _PARAMETERS_PER_STATEMENT // width))
        row = f"({', '.join('?' * width)})"
        whole = len(listed) // many * many
        for count, start, end in ((many, 0, whole), (1, whole, len(listed))):
            if start < end:
                self._connection.executemany(
                    f"{insert} VALUES {', '.join([row] * count)}",
                    (
                        list(chain.from_iterable(listed[place : place + count]))
                        for place in range(start, end, count)
                    ),
                )

    def drop(self) -> None:
        """Remove the tables."""
        for name in list(self._tables):
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._connection.execute(f"DROP TABLE temp.{quote(name)}")
        del self._tables[name]

    def _pieces(
        self, layout: TableLayout, ranges: Iterable[KeyRange] | None, most: int | None
    ) -> Iterator[tuple[int, Rows]]:
        """Yield rows with their tablet, in the order of the table and none twice."""
        left = most
        for index, first, past in _spans(layout, ranges):
            for rows in reads.ordered_rows(self._connection, layout, index, first, past):
                if left is None:
                    yield index, rows
                    continue
                piece = rows.between(rows.first, rows.first + left)
                yield index, piece
                left -= piece.past - piece.first
                if not left:
                    return


def _spans(
    layout: TableLayout, ranges: Iterable[KeyRange] | None
) -> Sequence[tuple[int, int, int]]:
    """Return tablet, first row and the row after the last one, in order and without overlap."""
    if ranges is None:
        return [(tablet.index, 0, _LAST) for tablet in layout.tablets]
    spans = []
    for wanted in ranges:
        position = position_range(wanted)
        if position is None:
            spans += [(tablet.index, 0, _LAST) for tablet in tablets_in(layout, [wanted])]
        elif 0 <= position[0] < layout.tablet_count:
            index, first, last = position
            spans.append((index, first, min(last + 1, _LAST)))
    merged: list[tuple[int, int, int]] = []
    for index, first, past in sorted(spans):
        if merged and merged[-1][0] == index and first <= merged[-1][2]:
            merged[-1] = (index, merged[-1][1], max(past, merged[-1][2]))
        else:
            merged.append((index, first, past))
    return merged


def _tuples(
    index: int, rows: Rows, chosen: Sequence[tuple[Column, int]]
) -> Iterator[tuple[Any, ...]]:
    count = rows.past - rows.first
    stored = [vectors.to_stored(column, rows.arrays[place]) for column, place in chosen]
    return zip([index] * count, range(rows.first, rows.past), *stored, strict=True)
