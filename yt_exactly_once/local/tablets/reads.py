"""Reads of dynamic tables by key and by row index.

Owns lookups and range reads of ordered tables. The caller chooses the connection and so the moment: the
snapshot of a transaction, or the newest state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yt.yson import YsonUint64

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import types, values
from yt_exactly_once.local.tables.layout import quote
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets import retention
from yt_exactly_once.local.tablets.catalog import find_layout

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from yt_exactly_once.local.tables.layout import TableLayout

Row = dict[str, Any]

LATEST_TIMESTAMPS_FROM = 0x3FFFFFFFFFFFFF00
"""From here on timestamps are names: newest, synchronously or asynchronously committed."""

_KEYS_PER_SELECT = 500
_ROWS_PER_FETCH = 10_000
_TERMS_PER_GROUP = 50

_TIMESTAMP = Column("$ts", "uint64", "uint64", required=True)

INDEX_COLUMNS = tuple(
    Column(name, "int64", "int64", required=True) for name in ("$tablet_index", "$row_index")
)


def layout_at(
    connection: sqlite3.Connection,
    layout: TableLayout,
    timestamp: int | None = None,
    retention_timestamp: int | None = None,
) -> TableLayout | None:
    """Return a table as a connection sees it, or as it was; None when it is too young to be seen.

    Args:
        connection: what is seen.
        layout: the table now.
        timestamp: the moment to look at, if not the newest.
        retention_timestamp: rows last written before it are hidden.

    Raises:
        YtError: the history of that moment is gone.
    """
    seen = find_layout(connection, layout.node_id, layout.path)
    if seen is not None and retention_timestamp is not None:
        seen = seen.since(retention_timestamp)
    if seen is None or timestamp is None or timestamp >= LATEST_TIMESTAMPS_FROM:
        return seen
    retained = retention.retained_from(connection, layout.node_id)
    if timestamp < retained:
        raise YtError(
            f"Timestamp {timestamp} is less than the retained timestamp {retained} of table "
            f"{layout.path}"
        )
    return seen.at(timestamp)


def lookup(
    connection: sqlite3.Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
) -> list[Row | None]:
    """Return one row per key in the order of the keys, None where there is none."""
    found = fetch(connection, layout, keys, columns)
    stored = [key for key in keys if key in found]
    rows = iter(values.decode_rows(columns, [found[key] for key in stored]))
    return [next(rows) if key in found else None for key in keys]


def fetch(
    connection: sqlite3.Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
) -> dict[bytes, tuple[Any, ...]]:
    """Return stored values of the existing rows by key."""
    selected = ", ".join(['"$key"', *(layout.sql_column(column.name) for column in columns)])
    found: dict[bytes, tuple[Any, ...]] = {}
    for start in range(0, len(keys), _KEYS_PER_SELECT):
        chunk = keys[start : start + _KEYS_PER_SELECT]
        marks = ", ".join("?" * len(chunk))
        for key, *stored in connection.execute(
            f'SELECT {selected} FROM {layout.sql_source} WHERE "$key" IN ({marks})', chunk
        ):
            found[key] = tuple(stored)
    return found


def timestamped_lookup(
    connection: sqlite3.Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
) -> list[Row | None]:
    """Return rows as `lookup` does, with a column `$timestamp:x` for every value column `x`."""
    stamps = [
        replace(_TIMESTAMP, name=f"$timestamp:{column.name}")
        for column in columns
        if not column.is_key
    ]
    found = fetch(connection, layout, keys, (*columns, _TIMESTAMP))
    stored = [found[key] for key in keys if key in found]
    stamped = [row[:-1] + row[-1:] * len(stamps) for row in stored]
    rows = iter(values.decode_rows((*columns, *stamps), stamped))
    return [next(rows) if key in found else None for key in keys]


def versioned_lookup(
    connection: sqlite3.Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
) -> list[Any]:
    """Return every version of each row that is kept, the newest first.

    A value column holds a list of values, each with the attributes `timestamp` and `aggregate`; the row
    has the attributes `write_timestamps` and `delete_timestamps`. Every write counts as a write of all
    value columns.
    """
    names = ['"$ts"', '"$deleted"', *(layout.sql_column(column.name) for column in columns)]
    selected = ", ".join(names)
    until = LATEST_TIMESTAMPS_FROM if layout.read_timestamp is None else layout.read_timestamp
    moments = (layout.retention_timestamp, until)
    query = " UNION ALL ".join(
        f'SELECT {selected} FROM {quote(table)} WHERE "$key" = ?1 AND "$ts" BETWEEN ?2 AND ?3'
        for table in (layout.sql_table, layout.history_table)
    )
    return [
        _versioned(
            columns,
            connection.execute(f"{query} ORDER BY 1 DESC", (key, *moments)).fetchall(),
        )
        for key in keys
    ]


def _versioned(columns: Sequence[Column], versions: Sequence[tuple[Any, ...]]) -> Any:
    if not versions:
        return None
    written = [version for version in versions if not version[1]]
    row: dict[str, Any] = {}
    for position, column in enumerate(columns, 2):
        if column.is_key:
            row[column.name] = values.decode_value(column, versions[0][position])
        elif written:
            row[column.name] = [
                _with_attributes(
                    values.decode_value(column, version[position]),
                    {"timestamp": YsonUint64(version[0]), "aggregate": False},
                )
                for version in written
            ]
    stamps = {
        "write_timestamps": [YsonUint64(version[0]) for version in written],
        "delete_timestamps": [YsonUint64(version[0]) for version in versions if version[1]],
    }
    return _with_attributes(row, stamps)


def _with_attributes(value: Any, attributes: dict[str, Any]) -> Any:
    wrapped = values.to_yson_type(value)
    wrapped.attributes = attributes
    return wrapped


def read_range(
    connection: sqlite3.Connection,
    layout: TableLayout,
    tablet_index: int,
    offset: int,
    *,
    max_rows: int,
    max_weight: int,
) -> list[Row]:
    """Return rows of an ordered table from an index on, up to the limits, at least one if any."""
    columns = (*INDEX_COLUMNS, *layout.columns)
    selected = ", ".join(['"$tablet_index"', '"$row_index"', *map(quote, layout.sql_names)])
    rows: list[Row] = []
    weight = 0
    while len(rows) < max_rows and weight < max_weight:
        limit = min(max_rows - len(rows), _ROWS_PER_FETCH)
        count, total = _fitting(
            connection, layout, tablet_index, offset, limit, max_weight - weight
        )
        if not count:
            break
        stored = connection.execute(
            f"SELECT {selected} FROM {quote(layout.sql_table)}"
            ' WHERE "$tablet_index" = ? AND "$row_index" >= ? ORDER BY "$row_index" LIMIT ?',
            (tablet_index, offset, count),
        ).fetchall()
        rows += values.decode_rows(columns, stored)
        weight += total
        offset = stored[-1][1] + 1
    return rows


def _fitting(
    connection: sqlite3.Connection,
    layout: TableLayout,
    index: int,
    offset: int,
    limit: int,
    max_weight: int,
) -> tuple[int, int]:
    """Count the rows that come before a weight is reached, the one that reaches it included."""
    weighed = (
        f'SELECT "$row_index", {weight_sql(layout)} AS weight FROM {quote(layout.sql_table)}'
        ' WHERE "$tablet_index" = ? AND "$row_index" >= ? ORDER BY "$row_index" LIMIT ?'
    )
    arguments = (index, offset, limit)
    count, total = connection.execute(
        f"SELECT count(*), coalesce(sum(weight), 0) FROM ({weighed})", arguments
    ).fetchone()
    if total < max_weight:
        return count, total
    (below,) = connection.execute(
        f'SELECT count(*) FROM (SELECT sum(weight) OVER (ORDER BY "$row_index") AS total'
        f" FROM ({weighed})) WHERE total < ?",
        (*arguments, max_weight),
    ).fetchone()
    return below + 1, max_weight


def weight_sql(layout: TableLayout) -> str:
    """Return the SQL expression for the data weight of a stored row."""
    fixed, terms = 1, []
    for column, name in zip(layout.columns, map(quote, layout.sql_names), strict=True):
        # Strings and composites lie as blobs and weigh their length, the rest has a fixed weight.
        if column.wire_type in types.STRING_LIKE or column.wire_type == "any":
            terms.append(f"coalesce(length({name}), 0)")
        else:
            weight = 1 if column.wire_type == "boolean" else 8
            if column.required:
                fixed += weight
            else:
                terms.append(f"({name} IS NOT NULL) * {weight}")
    return " + ".join([str(fixed), *_grouped(terms)])


def _grouped(terms: Sequence[str]) -> list[str]:
    """Put terms of a sum into brackets, group by group: SQLite limits the depth of an expression."""
    starts = range(0, len(terms), _TERMS_PER_GROUP)
    return [f"({' + '.join(terms[start : start + _TERMS_PER_GROUP])})" for start in starts]
