"""Small dynamic tables in memory for tests of the query language, laid out as the store does it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from yt_exactly_once.local import ql
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema

TIMESTAMP = 100


class Tables:
    """A few tables on one connection, and queries over them."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.layouts: dict[str, TableLayout] = {}

    def create(
        self, path: str, schema: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]] = ()
    ) -> TableLayout:
        """Create a table; rows of an ordered one may name their tablet in `$tablet_index`."""
        parsed = parse_schema([dict(column) for column in schema])
        names = tuple(f"c{index}" for index in range(len(parsed.columns)))
        layout = TableLayout(path.strip("/").replace("/", "_"), path, parsed, names, ())
        self.layouts[path] = layout
        columns = ", ".join(map(quote, names))
        if layout.sorted:
            position, key = '"$key", "$ts", "$deleted"', '"$key"'
        else:
            position = '"$tablet_index", "$row_index", "$ts"'
            key = '"$tablet_index", "$row_index"'
        self.connection.execute(
            f"CREATE TABLE {quote(layout.sql_table)} ({position}, {columns}, PRIMARY KEY ({key}))"
            " WITHOUT ROWID"
        )
        fill = self._put_sorted if layout.sorted else self._append
        fill(layout, rows)
        return layout

    def _put_sorted(self, layout: TableLayout, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            stored = _stored(layout.schema, row)
            key = keys.encode_prefix(layout.key_columns, stored)
            self._insert(layout, [key, TIMESTAMP, 0, *stored])

    def _append(self, layout: TableLayout, rows: Iterable[Mapping[str, Any]]) -> None:
        ends: dict[int, int] = {}
        for row in rows:
            tablet = row.get("$tablet_index", 0)
            index = ends.get(tablet, 0)
            ends[tablet] = index + 1
            self._insert(layout, [tablet, index, TIMESTAMP, *_stored(layout.schema, row)])

    def _insert(self, layout: TableLayout, stored: Sequence[Any]) -> None:
        marks = ", ".join("?" * len(stored))
        self.connection.execute(f"INSERT INTO {quote(layout.sql_table)} VALUES ({marks})", stored)

    def select(self, query: str, **options: Any) -> list[dict[str, Any]]:
        found = ql.execute(self.connection, query, self._find, **options)
        return [row for row in found.rows if row is not None]

    def column(self, query: str, **options: Any) -> list[Any]:
        """Run a query with one output column and return its values."""
        return [value for row in self.select(query, **options) for value in row.values()]

    def value(self, expression: str, path: str = "//one", **options: Any) -> Any:
        """Evaluate an expression on the only row of a table."""
        (found,) = self.column(f"({expression}) as x from [{path}]", **options)
        return found

    def refusal(self, query: str, **options: Any) -> YtError:
        """Run a query that must fail."""
        with pytest.raises(YtError) as caught:
            self.select(query, **options)
        return caught.value

    def plans(self, run: Callable[[], object]) -> Iterator[str]:
        """Yield the plan of every statement that a piece of code runs."""
        seen: list[str] = []
        self.connection.set_trace_callback(seen.append)
        run()
        self.connection.set_trace_callback(None)
        for statement in seen:
            plan = self.connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            yield "\n".join(str(step[-1]) for step in plan)

    def close(self) -> None:
        """Forget everything."""
        self.connection.close()

    def _find(self, path: str) -> TableLayout:
        if path not in self.layouts:
            raise YtError(f"Error getting mount info for {path}")
        return self.layouts[path]


def columns(**types: str) -> list[dict[str, Any]]:
    """Describe columns: `name="int64"`, with `!` behind the type when it is required."""
    return [
        {"name": name, "type": kind.rstrip("!"), "required": kind.endswith("!")}
        for name, kind in types.items()
    ]


def key_columns(**types: str) -> list[dict[str, Any]]:
    return [{**column, "sort_order": "ascending"} for column in columns(**types)]


def _stored(schema: TableSchema, row: Mapping[str, Any]) -> list[Any]:
    return [values.encode_value(column, row.get(column.name)) for column in schema.columns]
