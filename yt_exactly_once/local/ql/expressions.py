"""Single expressions outside of a query: their type and the columns that they read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql import syntax
from yt_exactly_once.local.ql.parser import parse
from yt_exactly_once.local.ql.query import bind_query
from yt_exactly_once.local.ql.value_types import of_column

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.layout import TableLayout
    from yt_exactly_once.local.tables.schema import Column


def describe(expression: str, table: TableLayout) -> tuple[str, frozenset[str]]:
    """Return the type of an expression over a table and the names that occur in it.

    Raises:
        YtError: it does not parse, or does not fit the table.
    """
    query = parse(_as_query(expression))
    bound = bind_query(query, lambda _path: table, canonical_nulls=False)
    (output,) = bound.outputs
    return output.bound.type.title, references(expression)


def wire_type(column: Column) -> str:
    """Return the type that values of a column have in expressions."""
    return of_column(column.wire_type).title


@cache
def references(expression: str) -> frozenset[str]:
    """Return the names that occur in an expression."""
    pending = list(parse(_as_query(expression)).select or ())
    names = set()
    while pending:
        found = pending.pop()
        pending.extend(syntax.children(found))
        if isinstance(found, syntax.Reference):
            names.add(found.name)
    return frozenset(names)


def _as_query(expression: str) -> str:
    return f"({expression}) from [t]"
