"""Computed key columns: the values that the cluster fills in itself.

Owns nothing but the way to the query language: the given key columns become a small table in memory and
the expressions a query over it, so that `farm_hash` and the rest mean the same everywhere.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables.columns import encode_column
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tables.schema import TableSchema

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.schema import Column

_PATH = "//computed"


def check(schema: TableSchema) -> None:
    """Check the expressions of computed columns.

    Raises:
        YtError: an expression does not parse, has another type than its column, or needs a column that
            is not known before the row is written.
    """
    wanted = [column for column in schema.columns if column.expression is not None]
    if not wanted:
        return
    from yt_exactly_once.local.ql import expressions  # noqa: PLC0415

    names = tuple(f"c{index}" for index in range(len(schema.columns)))
    plain = TableSchema(tuple(map(_as_value, schema.columns)))
    table = TableLayout("computed", _PATH, plain, names, ())
    for column in wanted:
        actual, references = expressions.describe(str(column.expression), table)
        declared = expressions.wire_type(column)
        if actual != declared:
            raise YtError(
                f'Computed column "{column.name}" type mismatch: declared type is "{declared}" '
                f'but expression type is "{actual}"'
            )
        for other in schema.columns:
            if other.name in references and not other.is_key:
                raise YtError(
                    f'Computed column "{column.name}" depends on a non-key column "{other.name}"'
                )
            if other.name in references and other.expression is not None:
                raise YtError(
                    f'Computed column "{column.name}" depends on computed column "{other.name}"'
                )


def fill(layout: TableLayout, given: dict[str, list[Any]], count: int) -> dict[str, list[Any]]:
    """Return the given stored columns and the computed ones."""
    # The query language needs a parser generator that not every cluster has loaded yet.
    from yt_exactly_once.local import ql  # noqa: PLC0415

    wanted = [column for column in layout.key_columns if column.expression is not None]
    sources = tuple(_as_value(column) for column in layout.key_columns if column.expression is None)
    names = tuple(f"c{index}" for index in range(len(sources)))
    table = TableLayout("computed", _PATH, TableSchema(sources), names, ())
    connection = sqlite3.connect(":memory:")
    try:
        columns = ", ".join(['"$tablet_index"', '"$row_index"', '"$ts"', *map(quote, names)])
        connection.execute(f"CREATE TABLE {quote(table.sql_table)} ({columns})")
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO {quote(table.sql_table)} VALUES (0, ?, 0, {marks})",
            zip(range(count), *(given[column.name] for column in sources), strict=True),
        )
        expressions = ", ".join(f"({column.expression}) as [{column.name}]" for column in wanted)
        query = f"{expressions} from [{_PATH}] order by [$row_index] limit {max(count, 1)}"
        rows = list(ql.execute(connection, query, lambda _path: table).rows)
    finally:
        connection.close()
    filled = dict(given)
    for column in wanted:
        stored, error = encode_column(column, [(row or {})[column.name] for row in rows])
        if error is not None:
            raise error
        filled[column.name] = stored
    return filled


def _as_value(column: Column) -> Column:
    return type(column)(column.name, column.wire_type, column.type_v3, column.required)
