"""Appends to ordered tables: row indexes, system columns, and rows that appear later than committed.

Owns the counters of tablets. Row indexes are given when rows are applied, contiguous per tablet in the
order of the batches. It never checks anything: what arrives here is part of a successful commit.
"""

from __future__ import annotations

import time
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import quote
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN
from yt_exactly_once.local.tablets.catalog import find_layout

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from yt_exactly_once.local.store import Store
    from yt_exactly_once.local.tables.layout import TableLayout
    from yt_exactly_once.local.tablets.modifications import Batch

_ROWS_PER_STATEMENT = 25
_PARAMETERS_PER_STATEMENT = 999
"""As many as every SQLite takes (`SQLITE_MAX_VARIABLE_NUMBER`)."""

Part = tuple[int, list[str], "list[list[Any]]", "list[int] | int", int]
"""Rows for one tablet: its index, column names, columns, weights, row count."""


def append(
    connection: sqlite3.Connection,
    layout: TableLayout,
    batches: Sequence[tuple[Batch, list[int] | None]],
    timestamp: int,
    delay: float,
) -> None:
    """Append the batches of one commit; with a delay the rows only appear after it."""
    parts = [part for batch, tablets in batches for part in _split(batch, tablets or [])]
    if not delay:
        _apply(connection, layout, parts, timestamp)
        return
    connection.execute(
        "INSERT INTO pending_appends (due, node_id, ts, body) VALUES (?, ?, ?, ?)",
        (time.time() + delay, layout.node_id, timestamp, values.dump_yson(parts)),
    )


def apply_due(store: Store, now: float | None = None) -> None:
    """Let rows appear whose delay is over; every read of an ordered table calls this first."""
    moment = time.time() if now is None else now
    with store.read() as connection:
        if not _due(connection, moment):
            return
    with store.write() as connection:
        for number, node_id, timestamp, body in _due(connection, moment):
            layout = find_layout(connection, node_id, node_id)
            if layout is not None:
                _apply(connection, layout, _load_parts(body), timestamp)
            connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def apply_pending(connection: sqlite3.Connection, layout: TableLayout) -> None:
    """Let all rows of a table appear; a tablet is only unmounted when its transactions are through."""
    pending = connection.execute(
        "SELECT id, ts, body FROM pending_appends WHERE node_id = ? ORDER BY id", (layout.node_id,)
    ).fetchall()
    for number, timestamp, body in pending:
        _apply(connection, layout, _load_parts(body), timestamp)
        connection.execute("DELETE FROM pending_appends WHERE id = ?", (number,))


def forget_pending(connection: sqlite3.Connection, layout: TableLayout, index: int) -> None:
    """Drop the rows of a tablet that have been committed and have not appeared."""
    pending = connection.execute(
        "SELECT id, body FROM pending_appends WHERE node_id = ?", (layout.node_id,)
    ).fetchall()
    for number, body in pending:
        parts = [part for part in _load_parts(body) if part[0] != index]
        connection.execute(
            "UPDATE pending_appends SET body = ? WHERE id = ?", (values.dump_yson(parts), number)
        )


def _due(connection: sqlite3.Connection, moment: float) -> list[tuple[int, str, int, bytes]]:
    return connection.execute(
        "SELECT id, node_id, ts, body FROM pending_appends WHERE due <= ? ORDER BY id", (moment,)
    ).fetchall()


def _load_parts(body: bytes) -> list[Part]:
    return [
        (index, [name.decode() for name in names], columns, weights, count)
        for index, names, columns, weights, count in values.load_yson(body)
    ]


def _split(batch: Batch, tablets: list[int]) -> list[Part]:
    """Part the rows of a batch by tablet, keeping their order."""
    rows = batch.rows
    names = [column.name for column in rows.columns]
    distinct = set(tablets)
    if len(distinct) == 1:
        return [(distinct.pop(), names, rows.data, batch.weights, rows.count)]
    parts: list[Part] = []
    for index in sorted(distinct):
        chosen = [position for position, tablet in enumerate(tablets) if tablet == index]
        weights = batch.weights
        if not isinstance(weights, int):
            weights = [weights[position] for position in chosen]
        columns = [[column[position] for position in chosen] for column in rows.data]
        parts.append((index, names, columns, weights, len(chosen)))
    return parts


def _apply(
    connection: sqlite3.Connection, layout: TableLayout, parts: Sequence[Part], timestamp: int
) -> None:
    for index, names, columns, weights, count in parts:
        total, weight = connection.execute(
            "SELECT total_rows, total_weight FROM tablets WHERE node_id = ? AND tablet_index = ?",
            (layout.node_id, index),
        ).fetchone()
        each = [weights] * count if isinstance(weights, int) else weights
        sums = list(accumulate(each, initial=weight))
        given = [range(total, total + count), *columns]
        sql_names = ['"$row_index"', *map(layout.sql_column, names)]
        literals = ["?"] * len(sql_names)
        if layout.column(CUMULATIVE_WEIGHT_COLUMN) is not None:
            given.append(sums[1:])
            sql_names.append(layout.sql_column(CUMULATIVE_WEIGHT_COLUMN))
            literals.append("?")
        if layout.column(TIMESTAMP_COLUMN) is not None:
            sql_names.append(layout.sql_column(TIMESTAMP_COLUMN))
            literals.append(str(values.encode_uint64(timestamp)))
        _insert(
            connection,
            f'INSERT INTO {quote(layout.sql_table)} ("$tablet_index", "$ts",'
            f" {', '.join(sql_names)})",
            f"({index}, {timestamp}, {', '.join(literals)})",
            list(chain.from_iterable(zip(*given, strict=True))),
            len(given),
        )
        connection.execute(
            "UPDATE tablets SET total_rows = ?, total_weight = ?, last_write_ts = ?"
            " WHERE node_id = ? AND tablet_index = ?",
            (total + count, sums[-1], timestamp, layout.node_id, index),
        )


def _insert(
    connection: sqlite3.Connection, insert: str, row: str, parameters: list[Any], width: int
) -> None:
    """Insert rows, many per statement: a statement costs as much as a row.

    Args:
        connection: from `Store.write`.
        insert: the statement up to its values.
        row: the values of one row.
        parameters: those of all rows, one row after the other.
        width: parameters of one row.
    """
    rows = max(1, min(_ROWS_PER_STATEMENT, _PARAMETERS_PER_STATEMENT // width))
    step = rows * width
    whole = len(parameters) // step * step
    for many, start, end, size in ((rows, 0, whole, step), (1, whole, len(parameters), width)):
        if start == end:
            continue  # a statement costs also when it is only prepared
        connection.executemany(
            f"{insert} VALUES {', '.join([row] * many)}",
            (parameters[place : place + size] for place in range(start, end, size)),
        )
