"""Functions on scalar values: conditions, nulls, conversions between types, strings.

Entries follow `yt/yt/library/query/base/builtin_function_types.cpp`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.farm_hash import fingerprint_of_values
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type

_INT64_END = 1 << 63
_UINT64_END = 1 << 64
_SCALARS_IN_ANY: dict[str, tuple[Type, Callable[[Any], Any]]] = {
    "YsonInt64": (Type.INT64, int),
    "YsonUint64": (Type.UINT64, int),
    "YsonDouble": (Type.DOUBLE, float),
    "YsonBoolean": (Type.BOOLEAN, bool),
    "YsonString": (Type.STRING, bytes),
    "YsonEntity": (Type.NULL, lambda _entity: None),
}


def runtime_error(message: str) -> YtError:
    """Return the error of a query that fails on a row."""
    return YtError("Error while executing query", inner=[YtError(message)])


def scalar_in_any(blob: bytes) -> tuple[Type | None, Any]:
    """Return type and value of a scalar of type `any`; no type when it is something else."""
    value = yson.loads(blob, encoding=None)
    known = _SCALARS_IN_ANY.get(type(value).__name__)
    return (None, value) if known is None else (known[0], known[1](value))


def converted_number(value: Any, target: Type) -> Any:
    """Convert a number between types as C does: a fraction is cut, and the bits of an integer stay."""
    if target is Type.DOUBLE:
        return float(value)
    if isinstance(value, float):
        value = math.trunc(value) if math.isfinite(value) else 0
    bits = value & (_UINT64_END - 1)
    return bits - _UINT64_END if target is Type.INT64 and bits >= _INT64_END else bits


def _any_to(blob: bytes, target: Type) -> Any:
    kind, value = scalar_in_any(blob)
    if kind is target:
        return value
    if target not in NUMERIC or kind not in NUMERIC:
        text = yson.dumps(yson.loads(blob, encoding=None), yson_format="text")
        raise YtError(
            f'Cannot convert value "{text.decode(errors="backslashreplace")}" of type "any" '
            f'to "{target.title}"'
        )
    return converted_number(value, target)


def _cast(target: Type, types: Sequence[Type], value: Any) -> Any:
    if types[0] is Type.ANY:
        return _any_to(value, target)
    if target is Type.DOUBLE:
        return float(value)
    low, high = (-_INT64_END, _INT64_END) if target is Type.INT64 else (0, _UINT64_END)
    if math.isnan(value):
        raise runtime_error("NaN is not convertible to integer")
    if not low <= value < high:
        raise runtime_error("Floating point value out of integer range")
    return int(value)


_SAME_BITS = dict.fromkeys((Type.NULL, Type.INT64, Type.UINT64), "{0}")
_IS_NOT_ZERO = dict.fromkeys((Type.INT64, Type.UINT64), "({0} <> 0)")
_AS_REAL = {Type.NULL: "{0}", Type.DOUBLE: "{0}", Type.INT64: "CAST({0} AS REAL)"}
_CASTABLE = NUMERIC | {Type.NULL, Type.ANY}

for _target, _sources, _sql in (
    (Type.INT64, _CASTABLE, _SAME_BITS),
    (Type.UINT64, _CASTABLE, _SAME_BITS),
    (Type.DOUBLE, _CASTABLE, _AS_REAL),
    (
        Type.BOOLEAN,
        frozenset((Type.NULL, Type.INT64, Type.UINT64, Type.BOOLEAN, Type.ANY)),
        {Type.NULL: "{0}", Type.BOOLEAN: "{0}", **_IS_NOT_ZERO},
    ),
    (Type.STRING, frozenset((Type.STRING, Type.ANY)), {Type.STRING: "{0}"}),
):
    declare(
        _target.title,
        ("value",),
        _target,
        among=_sources,
        sql=_sql,
        python=partial(_cast, _target),
        typed=True,
    )


def _coalesce(arguments: Sequence[str], _types: Sequence[Type]) -> str:
    # SQLite wants two arguments at least.
    if len(arguments) < 2:  # noqa: PLR2004
        return arguments[0] if arguments else "NULL"
    return f"coalesce({', '.join(arguments)})"


declare(
    "if",
    (Type.BOOLEAN, "value", "value"),
    "value",
    sql="CASE {0} WHEN 1 THEN {1} WHEN 0 THEN {2} END",
)
declare("is_null", ("value",), Type.BOOLEAN, sql="({0} IS NULL)", takes_null=True)
declare("if_null", ("value", "value"), "value", sql="ifnull({0}, {1})")
declare("coalesce", (), "value", repeated="value", among=SCALAR | {Type.ANY}, sql=_coalesce)


_S = Type.STRING
declare("is_nan", (Type.DOUBLE,), Type.BOOLEAN, sql="(typeof({0}) = 'text')", takes_null=True)
declare("length", (_S,), Type.INT64, sql="length({0})")
declare("concat", (_S, _S), _S, sql="CAST(({0} || {1}) AS BLOB)")
declare("is_substr", (_S, _S), Type.BOOLEAN, python=lambda part, whole: part in whole)
declare("is_prefix", (_S, _S), Type.BOOLEAN, python=lambda prefix, whole: whole.startswith(prefix))


@function("lower", (_S,), _S)
def _lower(data: bytes) -> bytes:
    return data.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")


@function("sleep", (Type.INT64,), Type.INT64)
def _sleep(milliseconds: int) -> int:
    time.sleep(max(milliseconds, 0) / 1000)
    return milliseconds


_HASHED = frozenset((Type.INT64, Type.UINT64, Type.BOOLEAN, Type.STRING))


@function("farm_hash", (), Type.UINT64, repeated=_HASHED, typed=True, takes_null=True)
def _farm_hash(types: Sequence[Type], *values: Any) -> int:
    return fingerprint_of_values(types, values)
