"""Computed key columns: the values that the cluster fills in itself.

It checks them, computes their values, and derives key ranges from conditions on their arguments: if a
condition fixes the arguments of a column, the column is fixed. A range of an argument has no effect here. The
server follows some ranges through division and modulo, so here such a query reads more rows than needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import expressions
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.keys import decode_first, encode_prefix
from yt_exactly_once.local.tables.schema import Column, TableSchema
from yt_exactly_once.local.tables.values import decode_value


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
        actual = expressions.type_of(column.expression, plain)
        declared = column.wire_type
        if actual != declared:
            raise YtError(
                f'Computed column "{column.name}" type mismatch: declared type is "{declared}" '
                f'but expression type is "{actual}"'
            )
        if dynamic and not column.is_key:
            raise YtError("Non-key column cannot be computed in materializable way")
        references = expressions.references(column.expression)
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
    rows = expressions.evaluate(
        tuple(str(column.expression) for column in wanted),
        tuple(map(_as_argument, sources)),
        zip(*(given[column.name] for column in sources), strict=True) if sources else [()] * count,
    )
    filled = dict(given)
    for index, column in enumerate(wanted):
        stored, error = encode_column(column, [decode_value(column, row[index]) for row in rows])
        if error is not None:
            raise error
        filled[column.name] = stored
    return filled


def infer(
    key_columns: Sequence[Column], points: Sequence[dict[int, bytes]]
) -> list[dict[int, bytes]]:
    """Return the encoded values of computed key columns by column number, one map per given map.

    Args:
        points: encoded values that are known, by number of the key column.
    """
    numbers = {column.name: number for number, column in enumerate(key_columns)}
    wanted = {
        number: {numbers[name] for name in expressions.references(column.expression)}
        for number, column in enumerate(key_columns)
        if column.expression is not None
    }
    known = [[number for number in wanted if wanted[number] <= box.keys()] for box in points]
    if not any(known):
        return [{} for _ in points]
    given: dict[str, list[Any]] = {
        column.name: [decode_first(box[number]) if number in box else None for box in points]
        for number, column in enumerate(key_columns)
        if column.expression is None
    }
    try:
        filled = fill(key_columns, given, len(points))
    except YtError:
        # What cannot be computed excludes no row.
        return [{} for _ in points]
    return [
        {
            number: encode_prefix(
                (key_columns[number],), (filled[key_columns[number].name][index],)
            )
            for number in determined
        }
        for index, determined in enumerate(known)
    ]


def _as_argument(column: Column) -> Column:
    """Return a column as an expression sees it."""
    return Column(column.name, column.wire_type, column.type_v3, column.required)
