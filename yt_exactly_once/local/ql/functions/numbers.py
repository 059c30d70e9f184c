"""Mathematical functions, after `yt/yt/library/query/engine/udf/math.cpp`.

Results that C++ leaves undefined (a double that fits no integer) are errors here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.general import runtime_error
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import NUMERIC, Type

_INT64_MIN = -(1 << 63)
_INT64_END = 1 << 63
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_MAX_FACTORIAL = 20


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    """Give NaN or infinity where Python raises, as the C library does."""

    def call(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def _logarithm(base: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: -math.inf if value == 0 else base(value)


def _to_integer(rounding: Callable[[float], float]) -> Callable[[float], int]:
    def call(value: float) -> int:
        if not math.isfinite(value) or not _INT64_MIN <= value < _INT64_END:
            raise runtime_error("Floating point value out of integer range")
        return int(rounding(value))

    return call


def _round(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _even(value: float) -> float:
    rounded = math.ceil(abs(value))
    return math.copysign(rounded + rounded % 2, value)


def _cube_root(value: float) -> float:
    return math.copysign(math.cbrt(abs(value)), value)


@function("abs", ("value",), "value", among=NUMERIC, typed=True)
def _abs(types: Sequence[Type], value: Any) -> Any:
    return value if types[0] is Type.INT64 and value == _INT64_MIN else abs(value)


@function("factorial", (Type.UINT64,), Type.UINT64)
def _factorial(value: int) -> int:
    if value > _MAX_FACTORIAL:
        raise YtError("Error while executing UDF", inner=[YtError("Factorial argument is too big")])
    return math.factorial(value)


_DOUBLE_TO_DOUBLE: dict[str, Callable[[float], float]] = {
    "acos": math.acos,
    "asin": math.asin,
    "cbrt": _cube_root,
    "cos": math.cos,
    "cot": lambda value: _guarded(lambda tangent: 1.0 / tangent)(math.tan(value)),
    "degrees": math.degrees,
    "exp": math.exp,
    "gamma": math.gamma,
    "lgamma": math.lgamma,
    "ln": _logarithm(math.log),
    "log": _logarithm(math.log10),
    "log10": _logarithm(math.log10),
    "log2": _logarithm(math.log2),
    "radians": math.radians,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_DOUBLE_TO_INT: dict[str, Callable[[float], float]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": _round,
    "even": _even,
    "sign": lambda value: (value > 0) - (value < 0),
}
_UINT_PAIRS: dict[str, Callable[[int, int], int]] = {
    "gcd": math.gcd,
    "lcm": lambda left, right: math.lcm(left, right) & _MASK,
    "xor": lambda left, right: left ^ right,
}


_DOUBLE, _TWO_DOUBLES = (Type.DOUBLE,), (Type.DOUBLE, Type.DOUBLE)
for _name, _double in _DOUBLE_TO_DOUBLE.items():
    declare(_name, _DOUBLE, Type.DOUBLE, python=_guarded(_double))
for _name, _rounding in _DOUBLE_TO_INT.items():
    declare(_name, _DOUBLE, Type.INT64, python=_to_integer(_rounding))
for _name, _pair in _UINT_PAIRS.items():
    declare(_name, (Type.UINT64, Type.UINT64), Type.UINT64, python=_pair)
declare("atan2", _TWO_DOUBLES, Type.DOUBLE, python=math.atan2)
declare("pow", _TWO_DOUBLES, Type.DOUBLE, python=_guarded(math.pow))
declare("is_inf", _DOUBLE, Type.BOOLEAN, python=math.isinf)
declare("is_finite", _DOUBLE, Type.BOOLEAN, python=math.isfinite)
declare("signbit", _DOUBLE, Type.BOOLEAN, python=lambda value: math.copysign(1.0, value) < 0)
declare("is_nan", _DOUBLE, Type.BOOLEAN, sql="(typeof({0}) = 'text')", nulls="never")
declare("bit_count", (Type.UINT64,), Type.INT64, python=int.bit_count)
