"""Computed key columns in key ranges: where a condition fixes what they are computed from, they are fixed.

Owns that inference for points. Ranges of an argument say nothing here, although the server follows some of
them through division and modulo: such a query reads more than it has to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.expressions import references
from yt_exactly_once.local.tables.keys import decode_first, encode_prefix
from yt_exactly_once.local.tablets.computed import fill

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from yt_exactly_once.local.ql.scope import Source


def infer(source: Source, points: Sequence[dict[int, bytes]]) -> list[dict[int, bytes]]:
    """Return the encoded values of computed key columns by column number, one map per given map.

    Args:
        source: the table.
        points: encoded values that are known, by number of the key column.
    """
    columns = source.key_columns
    numbers = {column.name: number for number, column in enumerate(columns)}
    wanted = {
        number: {numbers[name] for name in references(column.expression)}
        for number, column in enumerate(columns)
        if column.expression is not None
    }
    known = [[number for number in wanted if wanted[number] <= box.keys()] for box in points]
    if not any(known):
        return [{} for _ in points]
    given: dict[str, list[Any]] = {
        column.name: [decode_first(box[number]) if number in box else None for box in points]
        for number, column in enumerate(columns)
        if column.expression is None
    }
    try:
        filled = fill(source.layout, given, len(points))
    except YtError:
        # What cannot be computed excludes no row.
        return [{} for _ in points]
    return [
        {
            number: encode_prefix((columns[number],), (filled[columns[number].name][index],))
            for number in determined
        }
        for index, determined in enumerate(known)
    ]
