"""Rows of an ordered table as an SQL table, for as long as a query over them runs.

The query language reads SQL tables, and rows of ordered tables lie in blocks. What a query reads of them goes
into a temporary table: the columns that it names, from the blocks in its ranges of tablets and rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from yt_exactly_once.local.ql.coverage import Reading, tablets_in
from yt_exactly_once.local.ql.key_sql import position_range
from yt_exactly_once.local.ql.ranges import KeyRange
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tablets import reads, row_images
from yt_exactly_once.local.tablets.block_bodies import Rows

_LAST = (1 << 63) - 1
_ROWS_PER_STATEMENT = 25
_POSITION = '"$tablet_index", "$row_index"'


def fill(connection: sqlite3.Connection, reading: Reading) -> None:
    """Make the rows readable that a query reads of an ordered table; `drop` must be called after it."""
    layout = reading.layout
    names = ", ".join(map(quote, layout.sql_names))
    connection.execute(
        f"CREATE TABLE {_table(layout)} ({_POSITION}, {names}, PRIMARY KEY ({_POSITION})) WITHOUT ROWID"
    )
    chosen = [place for place, each in enumerate(layout.columns) if each.name in reading.columns]
    listed = ", ".join([_POSITION, *(quote(layout.sql_names[place]) for place in chosen)])
    row = f"({', '.join('?' * (2 + len(chosen)))})"
    most = min(row_images.MOST_PARAMETERS, _ROWS_PER_STATEMENT * (2 + len(chosen)))
    for index, rows in _pieces(connection, reading):
        position = [index] * (rows.past - rows.first), list(range(rows.first, rows.past))
        stored = (vectors.to_stored(rows.arrays[each]) for each in chosen)
        for count, parameters in row_images.parameters([*position, *stored], most):
            connection.executemany(
                f"INSERT INTO {_table(layout)} ({listed}) VALUES {', '.join([row] * count)}",
                parameters,
            )


def drop(connection: sqlite3.Connection, layout: TableLayout) -> None:
    """Remove what `fill` has made, if it has."""
    connection.execute(f"DROP TABLE IF EXISTS {_table(layout)}")


def _table(layout: TableLayout) -> str:
    return f"temp.{quote(layout.sql_table)}"


def _pieces(connection: sqlite3.Connection, reading: Reading) -> Iterator[tuple[int, Rows]]:
    """Yield rows with their tablet, in the order of the table and none twice."""
    left = reading.most
    for index, first, past in _spans(reading.layout, reading.ranges):
        for rows in reads.ordered_rows(connection, reading.layout, index, first, past):
            if left is None:
                yield index, rows
                continue
            piece = rows.between(rows.first, rows.first + left)
            yield index, piece
            left -= piece.past - piece.first
            if not left:
                return


def _spans(layout: TableLayout, ranges: Iterable[KeyRange]) -> Sequence[tuple[int, int, int]]:
    """Return tablet, first row and the row after the last one, in order and without overlap."""
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
