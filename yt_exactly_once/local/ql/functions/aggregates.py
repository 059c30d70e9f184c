"""Aggregate functions: signatures, and the SQL that computes them.

One entry per aggregate. Sums are split into halves of 32 bits, so SQLite's own `sum` cannot overflow.
"""

from __future__ import annotations

from collections.abc import Callable

from yt_exactly_once.local.ql.arithmetic import wrap
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type
from yt_exactly_once.local.tables import values

AggregateSql = Callable[[str, Type], str]


def _halves(argument: str) -> str:
    return f"sum({argument} >> 32), sum({argument} & 4294967295)"


def _double_parts(argument: str) -> str:
    return f"sum({argument}), count({argument}), sum(typeof({argument}) = 'text')"


def _sum(argument: str, kind: Type) -> str:
    if kind is Type.DOUBLE:
        return f"yt_sum_double({_double_parts(argument)})"
    return f"yt_sum_integer({_halves(argument)})"


def _avg(argument: str, kind: Type) -> str:
    if kind is Type.DOUBLE:
        return f"yt_average_double({_double_parts(argument)})"
    unsigned = int(kind is Type.UINT64)
    return f"yt_average_integer({_halves(argument)}, count({argument}), {unsigned})"


def _extreme(name: str) -> AggregateSql:
    def build(argument: str, kind: Type) -> str:
        if kind is Type.UINT64:
            return f"yt_flip({name}(yt_flip({argument})))"
        return f"{name}({argument})"

    return build


AGGREGATES: dict[str, tuple[Function, AggregateSql]] = {
    function.name: (function, sql)
    for function, sql in (
        (Function("sum", ("value",), "value", among=NUMERIC), _sum),
        (Function("avg", ("value",), Type.DOUBLE, among=NUMERIC), _avg),
        (Function("min", ("value",), "value", among=SCALAR), _extreme("min")),
        (Function("max", ("value",), "value", among=SCALAR), _extreme("max")),
    )
}
"""By name: signature, and what builds SQL from the argument and its type."""


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
