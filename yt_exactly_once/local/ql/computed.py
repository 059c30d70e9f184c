"""Computed key columns: the values that the cluster fills in itself.

It checks them, computes their values, and derives key ranges from conditions on their arguments: if a
condition fixes the arguments of a column, the column is fixed. A range of an argument has no effect here. The
server follows some ranges through division and modulo, so here such a query reads more rows than needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.bound import Compute, failing_on_a_row, stored
from yt_exactly_once.local.ql.binding.query import bind_query
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.parser import parse
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column, TableSchema
from yt_exactly_once.local.tables.values import decode_value

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.query import BoundQuery


def check(schema: TableSchema, *, dynamic: bool = True) -> None:
    """Check the expressions of computed columns; those of static tables need not be of the key.

    Raises:
        YtError: an expression does not parse, has another type than its column, or needs a column that
            is not known before the row is written.
    """
    plain = tuple(map(_as_argument, schema.columns))
    for column in schema.columns:
        if column.expression is None:
            continue
        ((_, bound),) = _bind((column.expression,), plain).outputs
        actual = bound.type.title
        declared = column.wire_type
        if actual != declared:
            raise YtError(
                f'Computed column "{column.name}" type mismatch: declared type is "{declared}" '
                f'but expression type is "{actual}"'
            )
        if dynamic and not column.is_key:
            raise YtError("Non-key column cannot be computed in materializable way")
        references = _references(column.expression)
        for other in schema.columns:
            if dynamic and other.name in references and not other.is_key:
                raise YtError(
                    f'Computed column "{column.name}" depends on a non-key column "{other.name}"'
                )
            if other.name in references and other.expression is not None:
                raise YtError(
                    f'Computed column "{column.name}" depends on computed column "{other.name}"'
                )


def fill(
    key_columns: Sequence[Column], given: dict[str, list[Any]], count: int
) -> dict[str, list[Any]]:
    """Return the given stored columns and the computed ones.

    Args:
        given: stored values by the name of the column; every key column that is not computed is there.

    Raises:
        YtError: an expression fails on a row, or gives what its column does not take.
    """
    wanted = [column for column in key_columns if column.expression is not None]
    sources = [column for column in key_columns if column.expression is None]
    computes = _computes(
        tuple(str(column.expression) for column in wanted), tuple(map(_as_argument, sources))
    )
    cells = (given[column.name] for column in sources)
    rows = list(zip(*cells, strict=True)) if sources else [()] * count
    filled = dict(given)
    for column, compute in zip(wanted, computes, strict=True):
        with failing_on_a_row():
            computed = [decode_value(column, compute(row)) for row in rows]
        filled[column.name], error = encode_column(column, computed)
        if error is not None:
            raise error
    return filled


def infer(key_columns: Sequence[Column], points: Sequence[dict[int, Any]]) -> list[dict[int, Any]]:
    """Return the stored values of computed key columns by column number, one map per given map.

    Args:
        points: values that are known, by number of the key column.
    """
    numbers = {column.name: number for number, column in enumerate(key_columns)}
    wanted = {
        number: {numbers[name] for name in _references(column.expression)}
        for number, column in enumerate(key_columns)
        if column.expression is not None
    }
    known = [[number for number in wanted if wanted[number] <= box.keys()] for box in points]
    if not any(known):
        return [{} for _ in points]
    given: dict[str, list[Any]] = {
        column.name: [box.get(number) for box in points]
        for number, column in enumerate(key_columns)
        if column.expression is None
    }
    try:
        filled = fill(key_columns, given, len(points))
    except YtError:
        # What cannot be computed excludes no row.
        return [{} for _ in points]
    return [
        {number: filled[key_columns[number].name][index] for number in determined}
        for index, determined in enumerate(known)
    ]


def _as_argument(column: Column) -> Column:
    """Return a column as an expression sees it."""
    return Column(column.name, column.wire_type, column.type_v3, column.required)


@cache
def _references(expression: str) -> frozenset[str]:
    """Return the names that occur in an expression."""
    found = syntax.walk(parse(_as_query((expression,))).select or ())
    return frozenset(each.name for each in found if isinstance(each, syntax.Reference))


@lru_cache(maxsize=256)
def _computes(expressions: tuple[str, ...], columns: tuple[Column, ...]) -> list[Compute]:
    places = {column.name: place for place, column in enumerate(columns)}
    return [stored(bound, places) for _, bound in _bind(expressions, columns).outputs]


def _bind(expressions: tuple[str, ...], columns: tuple[Column, ...]) -> BoundQuery:
    """Bind expressions as the outputs of a query over columns."""
    # A sorted table has no columns but these.
    keys = tuple(replace(column, sort_order="ascending") for column in columns)
    table = TableLayout("", "", TableSchema(keys), (), ())
    return bind_query(parse(_as_query(expressions)), lambda _path: table)


def _as_query(expressions: tuple[str, ...]) -> str:
    return ", ".join(f"({expression})" for expression in expressions) + " from [t]"
