"""Aggregate columns: how a written value combines with the one that is there.

Owns the functions `sum`, `min`, `max` and `first` on stored values; a null on either side leaves the other.
Functions on documents and on states of their own (`dict_sum`, `xdelta`, nested ones) are refused at creation.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.schema import Column

_SQL_FUNCTION = "yt_aggregate"
_TWO_63 = 1 << 63
_TWO_64 = 1 << 64


def expression(column: Column, name: str) -> str:
    """Return the SQL expression for the new value in an upsert."""
    return f"{_SQL_FUNCTION}('{column.aggregate}', '{column.kind}', {name}, excluded.{name})"


def register(connection: Connection) -> None:
    """Make the function of `expression` known to a connection."""
    connection.create_function(_SQL_FUNCTION, 4, combine, deterministic=True)


def combine(function: str, kind: str, current: Any, given: Any) -> Any:
    """Combine two stored values."""
    if current is None or given is None:
        return given if current is None else current
    if kind == "double":
        numbers = values.decode_double(current), values.decode_double(given)
        return values.encode_double(_FUNCTIONS[function](kind, *numbers))
    combined = _FUNCTIONS[function](kind, current, given)
    if isinstance(combined, int):
        # Integers wrap around as they do on the server.
        return (combined + _TWO_63) % _TWO_64 - _TWO_63
    return combined


def _order(kind: str, value: Any) -> Any:
    if kind == "uint64" and value < 0:
        return value + _TWO_64
    return value


def _least(kind: str, current: Any, given: Any) -> Any:
    return given if _order(kind, current) >= _order(kind, given) else current


def _greatest(kind: str, current: Any, given: Any) -> Any:
    return given if _order(kind, current) <= _order(kind, given) else current


_FUNCTIONS: dict[str, Callable[[str, Any, Any], Any]] = {
    "sum": lambda _kind, current, given: current + given,
    "min": _least,
    "max": _greatest,
    "first": lambda _kind, current, _given: current,
}
"""As in `udf/*.c` of the server's query engine: NaN spreads in a sum, and replaces nothing otherwise."""
