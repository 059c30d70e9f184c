"""Aggregate columns: how a written value combines with the one that is there.

Owns the functions `sum`, `min`, `max` and `first` on stored values; a null on either side leaves the other.
Functions on documents and on states of their own (`dict_sum`, `xdelta`, nested ones) are refused at creation.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.schema import Column

_SQL_FUNCTION = "yt_aggregate"


def expression(column: Column, name: str) -> str:
    """Return the SQL expression for the new value in an upsert."""
    return f"{_SQL_FUNCTION}('{column.aggregate}', '{column.kind}', {name}, excluded.{name})"


def register(connection: Connection) -> None:
    """Make the function of `expression` known to a connection."""
    connection.create_function(_SQL_FUNCTION, 4, combine, deterministic=True)


def combine(function: str, kind: str, current: Any, given: Any) -> Any:
    """Combine two stored values, as in `udf/*.c` of the server's query engine: NaN spreads in a sum only."""
    if current is None or given is None:
        return given if current is None else current
    if function == "first":
        return current
    if function == "sum" and kind != "double":
        # Integers wrap around as they do on the server.
        return values.encode_uint64((current + given) % (1 << 64))
    decode = values.DECODERS.get(kind)
    left, right = (decode(each) if decode else each for each in (current, given))
    if function == "sum":
        return values.encode_double(left + right)
    return given if (left >= right if function == "min" else left <= right) else current
