"""Operators the way the server's generated code does them: on plain values, `None` for null.

Owns 64-bit wraparound, C division, checked conversions of literals, logic with three values, and the order of
values with null below everything.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.value_types import Type

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_NUMERIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_INT64_MIN = -(1 << 63)
_INT64_END = 1 << 63
_UINT64_END = 1 << 64


def wrap(kind: Type, value: int) -> int:
    """Reduce an integer to the range of a type, keeping its lowest 64 bits."""
    bits = value % _UINT64_END
    return bits - _UINT64_END if kind is Type.INT64 and bits >= _INT64_END else bits


def negate(kind: Type, value: Any) -> Any:
    """Unary minus."""
    return -value if kind is Type.DOUBLE else wrap(kind, -value)


def calculate(symbol: str, kind: Type, left: Any, right: Any) -> Any:
    """Apply an arithmetic operator to two values of one type.

    Raises:
        YtError: an integer division that has no result.
    """
    if symbol in _NUMERIC:
        result = _NUMERIC[symbol](left, right)
        return result if kind is Type.DOUBLE else wrap(kind, result)
    return (_divide_double if kind is Type.DOUBLE else _divide)(symbol, left, right)


def _divide_double(_symbol: str, left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _divide(symbol: str, left: int, right: int) -> int:
    if right == 0:
        raise YtError("Division by zero")
    if left == _INT64_MIN and right == -1:
        raise YtError("Division of INT_MIN by -1")
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return quotient if symbol == "/" else left - quotient * right


def relate(symbol: str, left: Any, right: Any) -> bool:
    """Apply a relational operator to values of one type, null being an ordinary value below all others.

    Raises:
        YtError: one of them is NaN.
    """
    if left is None or right is None:
        return RELATIONS[symbol](left is not None, right is not None)
    if left != left or right != right:  # noqa: PLR0124 - NaN is the value that differs from itself
        raise YtError("Comparison with NaN")
    return RELATIONS[symbol](left, right)


def logical(absorbing: bool, left: Callable[[], Any], right: Callable[[], Any]) -> bool | None:
    """Apply AND or OR to what computes its operands; one of them may be enough."""
    first: bool | None = left()
    if first is absorbing:
        return first
    second: bool | None = right()
    return second if second is absorbing or first is not None else None


def convert_constant(kind: Type, value: Any, target: Type) -> Any:
    """Convert the value of a constant without losing anything.

    A negative number becomes unsigned by keeping its bits, like on the server.

    Raises:
        YtError: the conversion would not be exact.
    """
    if value is None or kind is target:
        return value
    if target is Type.DOUBLE:
        if int(float(value)) != value:
            suffix = "u" if kind is Type.UINT64 else ""
            raise YtError(f"Failed to cast {value}{suffix} to double: inaccurate conversion")
        return float(value)
    if kind is Type.DOUBLE:
        low, high = (_INT64_MIN, _INT64_END) if target is Type.INT64 else (0, _UINT64_END)
        if not low <= value < high or int(value) != value:
            raise YtError(f"Failed to cast {value} to {target.title}: inaccurate conversion")
        return int(value)
    if kind is Type.UINT64 and value >= _INT64_END:
        raise YtError(f"Failed to cast {value}u to int64: value is greater than maximum")
    return wrap(target, value)
