"""The functions: conditions, nulls, conversions between types, strings, hashes, and aggregates.

Entries follow `yt/yt/library/query/base/builtin_function_types.cpp`.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import farmhash

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import wrap
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type

_INT64_END = 1 << 63
_UINT64_END = 1 << 64
_MASK = _UINT64_END - 1
_MULTIPLIER = 0x9DDFEA08EB382D69
_SEED = 0xDEADC0DE


def _cast(target: Type, value: Any) -> float:
    if target is Type.DOUBLE:
        return float(value)
    if not isinstance(value, float):
        return wrap(target, value)
    low, high = (-_INT64_END, _INT64_END) if target is Type.INT64 else (0, _UINT64_END)
    if math.isnan(value):
        raise YtError("NaN is not convertible to integer")
    if not low <= value < high:
        raise YtError("Floating point value out of integer range")
    return int(value)


def _if(condition: Callable[[], Any], then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    chosen = condition()
    return None if chosen is None else then() if chosen else otherwise()


def _coalesce(*arguments: Callable[[], Any]) -> Any:
    return next((value for each in arguments if (value := each()) is not None), None)


def _lower(data: bytes) -> bytes:
    return data.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")


def _sleep(milliseconds: int) -> int:
    time.sleep(max(milliseconds, 0) / 1000)
    return milliseconds


def _sum(kind: Type, given: list[Any]) -> Any:
    total = sum(given)
    return total if kind is Type.DOUBLE else wrap(kind, total)


def fingerprint_of_values(*values: Any) -> int:
    """Combine the fingerprints of values, as the function `farm_hash` does."""
    result = _SEED
    for value in values:
        result = _combine(result, fingerprint_of_value(value))
    return result ^ len(values)


def fingerprint_of_value(value: Any) -> int:
    """Return the fingerprint of an integer, a boolean or a string; null hashes like zero."""
    if isinstance(value, bytes):
        return int(farmhash.Fingerprint64(value))
    mixed = int(value or 0) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 44) * _MULTIPLIER & _MASK
    return (mixed ^ mixed >> 41) * _MULTIPLIER & _MASK


def _combine(first: int, second: int) -> int:
    low = (first ^ second) * _MULTIPLIER & _MASK
    low ^= low >> 47
    high = (second ^ low) * _MULTIPLIER & _MASK
    high = (high ^ high >> 44) * _MULTIPLIER & _MASK
    return (high ^ high >> 41) * _MULTIPLIER & _MASK


_S = Type.STRING
_TRUTH = frozenset((Type.NULL, Type.INT64, Type.UINT64, Type.BOOLEAN))
_HASHED = frozenset((Type.INT64, Type.UINT64, Type.BOOLEAN, _S))
_LISTED = (
    *(
        Function(
            target.title, ("value",), target, partial(_cast, target), among=NUMERIC | {Type.NULL}
        )
        for target in (Type.INT64, Type.UINT64, Type.DOUBLE)
    ),
    Function("boolean", ("value",), Type.BOOLEAN, bool, among=_TRUTH),
    Function("string", (_S,), _S, bytes),
    Function("if", (Type.BOOLEAN, "value", "value"), "value", _if, lazy=True),
    Function("is_null", ("value",), Type.BOOLEAN, lambda value: value is None, takes_null=True),
    Function("if_null", ("value", "value"), "value", _coalesce, lazy=True),
    Function(
        "coalesce", (), "value", _coalesce, repeated="value", among=SCALAR | {Type.ANY}, lazy=True
    ),
    Function(
        "is_nan",
        (Type.DOUBLE,),
        Type.BOOLEAN,
        lambda value: value is not None and math.isnan(value),
        takes_null=True,
    ),
    Function("length", (_S,), Type.INT64, len),
    Function("concat", (_S, _S), _S, operator.add),
    Function("lower", (_S,), _S, _lower),
    Function("sleep", (Type.INT64,), Type.INT64, _sleep),
    Function("is_substr", (_S, _S), Type.BOOLEAN, lambda part, whole: part in whole),
    Function("is_prefix", (_S, _S), Type.BOOLEAN, lambda prefix, whole: whole.startswith(prefix)),
    Function(
        "farm_hash", (), Type.UINT64, fingerprint_of_values, repeated=_HASHED, takes_null=True
    ),
)
SCALARS = {function.name: function for function in _LISTED}
"""By name."""

_OF_GROUPS = (
    Function("sum", ("value",), "value", _sum, among=NUMERIC),
    Function(
        "avg",
        ("value",),
        Type.DOUBLE,
        lambda kind, given: _sum(kind, given) / len(given),
        among=NUMERIC,
    ),
    Function("min", ("value",), "value", lambda _, given: min(given), among=SCALAR),
    Function("max", ("value",), "value", lambda _, given: max(given), among=SCALAR),
)
AGGREGATES = {function.name: function for function in _OF_GROUPS}
"""By name; they get the values that are not null, and the result of none is null."""
