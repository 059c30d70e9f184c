"""Small dynamic tables in memory for tests of the query language, sorted ones as the store has them."""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import pytest

from yt_exactly_once.local import ql
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.coverage import Reading
from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.layout import TableLayout, Tablet, quote
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema
from yt_exactly_once.local.tablets import query_rows

TIMESTAMP = 100
MOST_TABLETS = 3


class Tables:
    """A few tables on one connection, and queries over them."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.layouts: dict[str, TableLayout] = {}
        self._ordered: dict[str, list[list[list[Any]]]] = {}

    def create(
        self, path: str, schema: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]] = ()
    ) -> TableLayout:
        """Create a table; rows of an ordered one may name their tablet in `$tablet_index`."""
        parsed = parse_schema([dict(column) for column in schema])
        names = tuple(f"c{index}" for index in range(len(parsed.columns)))
        node_id = path.strip("/").replace("/", "_")
        tablets = tuple(Tablet(index, "", "mounted", b"", (), 0) for index in range(MOST_TABLETS))
        layout = TableLayout(node_id, path, parsed, names, () if parsed.is_sorted else tablets)
        self.layouts[path] = layout
        fill = self._put_sorted if layout.sorted else self._append
        fill(layout, rows)
        return layout

    def _put_sorted(self, layout: TableLayout, rows: Iterable[Mapping[str, Any]]) -> None:
        table, columns = quote(layout.sql_table), ", ".join(map(quote, layout.sql_names))
        self.connection.execute(
            f'CREATE TABLE {table} ("$key" PRIMARY KEY, "$ts", "$deleted", {columns}) WITHOUT ROWID'
        )
        for row in rows:
            stored = _stored(layout.schema, row)
            key = keys.encode_prefix(layout.key_columns, stored)
            marks = ", ".join("?" * (3 + len(stored)))
            self.connection.execute(
                f"INSERT INTO {table} VALUES ({marks})", [key, TIMESTAMP, 0, *stored]
            )

    def _append(self, layout: TableLayout, rows: Iterable[Mapping[str, Any]]) -> None:
        tablets: list[list[list[Any]]] = [[] for _ in layout.tablets]
        for row in rows:
            tablets[row.get("$tablet_index", 0)].append(_stored(layout.schema, row))
        self._ordered[layout.path] = tablets

    def _read(self, reading: Reading) -> Generator[tuple[Any, ...], None, None]:
        layout = reading.layout
        if layout.sorted:
            yield from query_rows.read(self.connection, reading)
            return
        names = [column.name for column in layout.columns]
        for tablet, first, past in query_rows.spans(layout, reading.ranges):
            rows = self._ordered[layout.path][tablet]
            for index in range(first, min(past, len(rows))):
                cells = {"$tablet_index": tablet, "$row_index": index}
                cells |= dict(zip(names, rows[index], strict=True))
                yield tuple(cells[name] for name in reading.columns)

    def select(self, query: str, **options: Any) -> list[dict[str, Any]]:
        found = ql.execute(query, self._find, self._read, **options)
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


def _stored(schema: TableSchema, row: Mapping[str, Any]) -> list[Any]:
    return [values.encode_value(column, row.get(column.name)) for column in schema.columns]
