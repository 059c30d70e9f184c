"""Small dynamic tables of a proxy in this process, for tests of the query language."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.in_process import Commands
from yt_exactly_once.local.errors import YtError


class Tables:
    """A few tables, and queries over them."""

    def __init__(self, folder: Path) -> None:
        self.run = Commands(folder)

    def create(
        self,
        path: str,
        schema: Iterable[Mapping[str, Any]],
        rows: Iterable[Mapping[str, Any]] = (),
        **attributes: Any,
    ) -> None:
        """Create a table; rows of an ordered one may name their tablet in `$tablet_index`."""
        given, rows = [dict(column) for column in schema], list(rows)
        placed = [row if "sort_order" in given[0] else {"$tablet_index": 0, **row} for row in rows]
        tablets = 1 + max((row.get("$tablet_index", 0) for row in placed), default=0)
        if tablets > 1:
            attributes["tablet_count"] = tablets
        self.run.table(path, given, **attributes)
        self.insert(path, *placed)

    def insert(self, path: str, *rows: Mapping[str, Any]) -> None:
        self.run("insert_rows", rows, path=path)

    def select(self, query: str, **options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.run("select_rows", query=query, **options)
        return rows

    def column(self, query: str, **options: Any) -> list[Any]:
        """Run a query with one output column and return its values."""
        return [value for row in self.select(query, **options) for value in row.values()]

    def value(self, expression: str) -> Any:
        """Evaluate an expression on the only row of a table."""
        (found,) = self.column(f"({expression}) as x from [//one]")
        return found

    def refusal(self, query: str, **options: Any) -> YtError:
        """Run a query that must fail."""
        with pytest.raises(YtError) as caught:
            self.select(query, **options)
        return caught.value

    def scans(self, run: Callable[[], object]) -> bool:
        """Tell whether SQLite reads the whole of a sorted table in what a piece of code runs."""
        seen: list[str] = []
        with self.run.proxy.store.read() as connection:
            connection.set_trace_callback(seen.append)
            run()
            connection.set_trace_callback(None)
            queries = [statement for statement in seen if statement.startswith("SELECT")]
            assert queries
            plans = [connection.execute(f"EXPLAIN QUERY PLAN {one}").fetchall() for one in queries]
        return any("SCAN s_" in str(step[-1]) for plan in plans for step in plan)

    def close(self) -> None:
        self.run.close()


@contextmanager
def opened() -> Iterator[Tables]:
    """Open tables that are gone with the block."""
    with TemporaryDirectory() as folder:
        found = Tables(Path(folder))
        yield found
        found.close()
