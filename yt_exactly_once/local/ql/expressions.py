"""Single expressions outside of a query: their type, the columns that they read, and their values.

Owns a connection without tables: the expressions are run on one row at a time, by the same SQL functions
that a query has.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.binding.query import bind_query
from yt_exactly_once.local.ql.binding.source import SQL_ALIAS
from yt_exactly_once.local.ql.expression_sql import ExpressionSql
from yt_exactly_once.local.ql.functions import udf
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.parser import parse
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tables.schema import Column, TableSchema

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.query import BoundQuery

_connection = sqlite3.connect(":memory:", check_same_thread=False)
_turn = threading.Lock()


def type_of(expression: str, columns: tuple[Column, ...]) -> str:
    """Return the type of an expression over some columns.

    Raises:
        YtError: it does not parse, or does not fit the columns.
    """
    (output,) = _bind((expression,), columns).outputs
    return output.bound.type.title


@cache
def references(expression: str) -> frozenset[str]:
    """Return the names that occur in an expression."""
    pending = list(parse(_as_query((expression,))).select or ())
    names = set()
    while pending:
        found = pending.pop()
        pending.extend(syntax.children(found))
        if isinstance(found, syntax.Reference):
            names.add(found.name)
    return frozenset(names)


def evaluate(
    expressions: tuple[str, ...], columns: tuple[Column, ...], rows: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Return the values of expressions in every row, in stored form.

    Raises:
        YtError: an expression does not fit the columns, or fails on a row.
    """
    statement = _statement(expressions, columns)
    with _turn:
        return [udf.execute(_connection, statement, row)[0] for row in rows]


@lru_cache(maxsize=256)
def _statement(expressions: tuple[str, ...], columns: tuple[Column, ...]) -> str:
    query = _bind(expressions, columns)
    sql = ExpressionSql(query.main)
    outputs = ", ".join(sql.write(output.bound) for output in query.outputs)
    given = ", ".join(
        f"?{number} AS {quote(name)}"
        for number, name in enumerate(query.main.layout.sql_names, start=1)
    )
    source = f" FROM (SELECT {given}) AS {SQL_ALIAS}" if given else ""
    return f"SELECT {outputs}{source}"


def _bind(expressions: tuple[str, ...], columns: tuple[Column, ...]) -> BoundQuery:
    # A sorted table has no columns but these.
    keys = tuple(replace(column, sort_order="ascending") for column in columns)
    names = tuple(f"c{index}" for index in range(len(columns)))
    table = TableLayout("", "", TableSchema(keys), names, ())
    return bind_query(parse(_as_query(expressions)), lambda _path: table)


def _as_query(expressions: tuple[str, ...]) -> str:
    return ", ".join(f"({expression})" for expression in expressions) + " from [t]"
