"""Aggregate columns: how a written value combines with the one that is there.

Owns the functions `sum`, `min`, `max`, `first` and `dict_sum` on stored values; a null on either side
leaves the other. Functions with a state of their own (`xdelta`, nested ones) are refused at creation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import types, values
from yt_exactly_once.local.tables.schema import Column

_SQL_FUNCTION = "yt_aggregate"
_TWO_63 = 1 << 63
_TWO_64 = 1 << 64


def expression(column: Column, name: str) -> str:
    """Return the SQL expression for the new value in an upsert."""
    kind = "uint64" if column.wire_type in types.UNSIGNED else "other"
    return f"{_SQL_FUNCTION}('{column.aggregate}', '{kind}', {name}, excluded.{name})"


@contextmanager
def known(connection: sqlite3.Connection) -> Iterator[None]:
    """Make the functions known to a connection, and name what they cannot combine.

    Raises:
        YtError: a value of `dict_sum` is no number and no dictionary of numbers.
    """
    connection.create_function(_SQL_FUNCTION, 4, combine, deterministic=True)
    try:
        yield
    except sqlite3.OperationalError as error:
        # All that SQLite says of an exception.
        if "user-defined function" not in str(error):
            raise
        raise YtError(
            'Values of an aggregate column "dict_sum" are numbers, or dictionaries of the same shape'
        ) from error


def combine(function: str, kind: str, current: Any, given: Any) -> Any:
    """Combine two stored values."""
    if current is None or given is None:
        return given if current is None else current
    combined = _FUNCTIONS[function](kind, current, given)
    if isinstance(combined, int):
        # Integers wrap around as they do on the server.
        return (combined + _TWO_63) % _TWO_64 - _TWO_63
    return combined


def _order(kind: str, value: Any) -> Any:
    if kind == "uint64" and value < 0:
        return value + _TWO_64
    return value


def _dict_sum(_kind: str, current: bytes, given: bytes) -> Any:
    total = _add(values.load_yson(current) or {}, values.load_yson(given) or {})
    return values.dump_yson(total) if total else None


def _add(current: Any, given: Any) -> Any:
    """Add numbers, and dictionaries key by key; zeros and empty dictionaries vanish."""
    if not isinstance(given, dict):
        return _number(current) + _number(given)
    added = {
        key: _add(current[key], value) if key in current else value for key, value in given.items()
    }
    return {key: value for key, value in {**current, **added}.items() if value}


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


_FUNCTIONS: dict[str, Callable[[str, Any, Any], Any]] = {
    "sum": lambda _kind, current, given: current + given,
    "min": lambda kind, current, given: min(current, given, key=lambda v: _order(kind, v)),
    "max": lambda kind, current, given: max(current, given, key=lambda v: _order(kind, v)),
    "first": lambda _kind, current, _given: current,
    "dict_sum": _dict_sum,
}
