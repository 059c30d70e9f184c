"""Reads of dynamic tables by key and by row index.

Owns lookups and range reads of ordered tables. The caller chooses the connection and so the moment: the
snapshot of a transaction, or the newest state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt.yson import YsonUint64

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tablets import retention, types, values
from yt_exactly_once.local.tablets.layout import find_layout, quote
from yt_exactly_once.local.tablets.schema import Column

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from yt_exactly_once.local.tablets.layout import TableLayout

Row = dict[str, Any]

LATEST_TIMESTAMPS_FROM = 0x3FFFFFFFFFFFFF00
"""From here on timestamps are names: newest, synchronously or asynchronously committed."""

_KEYS_PER_SELECT = 500
_ROWS_PER_FETCH = 10_000

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


def versioned_lookup(
    connection: sqlite3.Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
) -> list[Any]:
    """Return the newest version of each row with the timestamp of its last write.

    Values carry the attributes `timestamp` and `aggregate`; the row carries `write_timestamps` and
    `delete_timestamps`. Older versions are left out.
    """
    names = ['"$key"', '"$ts"', '"$deleted"']
    selected = ", ".join([*names, *(layout.sql_column(column.name) for column in columns)])
    found: dict[bytes, tuple[Any, ...]] = {}
    for key in keys:
        for row in connection.execute(
            f'SELECT {selected} FROM {quote(layout.sql_table)} WHERE "$key" = ?', (key,)
        ):
            found[key] = row[1:]
    return [_versioned(columns, found.get(key)) for key in keys]


def _versioned(columns: Sequence[Column], stored: tuple[Any, ...] | None) -> Any:
    if stored is None:
        return None
    moment, deleted, *cells = stored
    row: dict[str, Any] = {}
    for column, cell in zip(columns, cells, strict=True):
        value = values.decode_value(column, cell)
        if column.is_key:
            row[column.name] = value
        elif not deleted:
            row[column.name] = [
                _with_attributes(value, {"timestamp": YsonUint64(moment), "aggregate": False})
            ]
    written = [] if deleted else [YsonUint64(moment)]
    removed = [YsonUint64(moment)] if deleted else []
    return _with_attributes(row, {"write_timestamps": written, "delete_timestamps": removed})


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
    terms = ["1"]
    for column, name in zip(layout.columns, map(quote, layout.sql_names), strict=True):
        # Strings and composites lie as blobs and weigh their length, the rest has a fixed weight.
        if column.wire_type in types.STRING_LIKE or column.wire_type == "any":
            terms.append(f"coalesce(length({name}), 0)")
        else:
            weight = 1 if column.wire_type == "boolean" else 8
            terms.append(str(weight) if column.required else f"({name} IS NOT NULL) * {weight}")
    return " + ".join(terms)
