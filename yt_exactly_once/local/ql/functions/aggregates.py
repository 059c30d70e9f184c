"""Aggregate functions: signatures, and the SQL that computes them.

One entry per aggregate. Sums are split into halves of 32 bits, so SQLite's own `sum` cannot overflow.
Aggregates that depend on the order of rows get the position of each row, because SQLite does not promise an
order inside a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yt_exactly_once.local.ql.arithmetic import wrap
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type
from yt_exactly_once.local.tables import values

AggregateSql = Callable[[Sequence[str], Sequence[Type], str], str]


def _halves(argument: str) -> str:
    return f"sum({argument} >> 32), sum({argument} & 4294967295)"


def _double_parts(argument: str) -> str:
    return f"sum({argument}), count({argument}), sum(typeof({argument}) = 'text')"


def _sum(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    if types[0] is Type.DOUBLE:
        return f"yt_sum_double({_double_parts(arguments[0])})"
    return f"yt_sum_integer({_halves(arguments[0])})"


def _avg(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    (argument,) = arguments
    if types[0] is Type.DOUBLE:
        return f"yt_average_double({_double_parts(argument)})"
    unsigned = int(types[0] is Type.UINT64)
    return f"yt_average_integer({_halves(argument)}, count({argument}), {unsigned})"


def _extreme(name: str) -> AggregateSql:
    def build(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
        (argument,) = arguments
        if types[0] is Type.UINT64:
            return f"yt_flip({name}(yt_flip({argument})))"
        return f"{name}({argument})"

    return build


def _first(arguments: Sequence[str], _types: Sequence[Type], position: str) -> str:
    return f"yt_first({position}, {arguments[0]})"


def _cardinality(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    (argument,) = arguments
    # The server hashes null like zero, so null counts as a value.
    if types[0] is Type.STRING:
        return f"(count(DISTINCT {argument}) + max({argument} IS NULL))"
    return f"count(DISTINCT ifnull({argument}, 0))"


AGGREGATES: dict[str, tuple[Function, AggregateSql]] = {
    function.name: (function, sql)
    for function, sql in (
        (Function("sum", ("value",), "value", among=NUMERIC), _sum),
        (Function("avg", ("value",), Type.DOUBLE, among=NUMERIC), _avg),
        (Function("min", ("value",), "value", among=SCALAR), _extreme("min")),
        (Function("max", ("value",), "value", among=SCALAR), _extreme("max")),
        (Function("first", ("value",), "value", among=SCALAR | {Type.ANY}), _first),
        (Function("cardinality", (SCALAR,), Type.UINT64, takes_null=True), _cardinality),
    )
}
"""By name: signature, and what builds SQL from the arguments, their types and the position of the row."""


def sum_integer(high: int | None, low: int | None) -> int | None:
    """Put the halves of a sum together, modulo 2**64, in the form of the store."""
    if high is None or low is None:
        return None
    return wrap(Type.INT64, (high << 32) + low)


def average_integer(high: int | None, low: int | None, count: int, unsigned: int) -> float | None:
    """Divide the sum of integers by their number."""
    total = sum_integer(high, low)
    if total is None:
        return None
    return float(wrap(Type.UINT64, total) if unsigned else total) / count


def sum_double(total: float | None, count: int, nan_count: int | None) -> float | str | None:
    """Correct SQLite's sum of doubles, which takes NaN for zero or null."""
    if not count:
        return None
    return values.NAN if nan_count or total is None else float(total)


def average_double(total: float | None, count: int, nan_count: int | None) -> float | str | None:
    """Divide the sum of doubles by their number."""
    corrected = sum_double(total, count, nan_count)
    return corrected if corrected is None else values.encode_double(float(corrected) / count)


class First:
    """The first value that is not null."""

    def __init__(self) -> None:
        self._best: tuple[Any, Any] | None = None

    def step(self, position: Any, value: Any) -> None:
        """Take a row."""
        if value is not None and (self._best is None or position < self._best[0]):
            self._best = (position, value)

    def finalize(self) -> Any:
        """Return the value."""
        return None if self._best is None else self._best[1]
