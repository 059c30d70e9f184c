"""The scalar functions: conditions, nulls, conversions between types, strings, and hashes.

Entries follow `yt/yt/library/query/base/builtin_function_types.cpp`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.farm_hash import fingerprint_of_values
from yt_exactly_once.local.ql.functions.signatures import Function, Parameter
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type

_INT64_END = 1 << 63
_UINT64_END = 1 << 64

SCALARS: dict[str, Function] = {}
"""By name."""

_LACKING = """
    abs acos asin atan2 bit_count cbrt ceil cos cot degrees even exp factorial floor gamma gcd
    is_finite is_inf lcm lgamma ln log log10 log2 pow radians round sign signbit sin sqrt tan trunc xor
    format_guid format_timestamp format_timestamp_tz is_valid_utf8 numeric_to_string parse_double parse_int64
    parse_uint64 regex_escape regex_extract regex_full_match regex_partial_match regex_replace_all
    regex_replace_first to_valid_utf8 yson_string_to_any any_to_yson_string to_any
    get_any get_boolean get_double get_int64 get_string get_uint64
    try_get_any try_get_boolean try_get_double try_get_int64 try_get_string try_get_uint64
    timestamp_floor_day timestamp_floor_day_tz timestamp_floor_hour timestamp_floor_hour_tz
    timestamp_floor_month timestamp_floor_month_tz timestamp_floor_quarter timestamp_floor_quarter_tz
    timestamp_floor_week timestamp_floor_week_tz timestamp_floor_year timestamp_floor_year_tz
    argmax argmin array_agg cardinality first greatest
    hll_7 hll_8 hll_9 hll_10 hll_11 hll_12 hll_13 hll_14
    list_contains list_has_intersection make_entity make_list make_map yson_length
"""
LACKING = frozenset(_LACKING.split())
"""Functions and aggregates that a server has."""


def runtime_error(message: str) -> YtError:
    """Return the error of a query that fails on a row."""
    return YtError("Error while executing query", inner=[YtError(message)])


def _declare(name: str, parameters: tuple[Parameter, ...], result: Parameter, **more: Any) -> None:
    SCALARS[name] = Function(name, parameters, result, **more)


def _cast(target: Type, value: float) -> float:
    """Convert a double, which `sql` leaves to Python."""
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

for _target, _sources, _sql in (
    (Type.INT64, NUMERIC | {Type.NULL}, _SAME_BITS),
    (Type.UINT64, NUMERIC | {Type.NULL}, _SAME_BITS),
    (Type.DOUBLE, NUMERIC | {Type.NULL}, _AS_REAL),
    (
        Type.BOOLEAN,
        frozenset((Type.NULL, Type.INT64, Type.UINT64, Type.BOOLEAN)),
        {Type.NULL: "{0}", Type.BOOLEAN: "{0}", **_IS_NOT_ZERO},
    ),
    (Type.STRING, frozenset((Type.STRING,)), {Type.STRING: "{0}"}),
):
    _declare(
        _target.title, ("value",), _target, among=_sources, sql=_sql, python=partial(_cast, _target)
    )


def _coalesce(arguments: Sequence[str], _types: Sequence[Type]) -> str:
    # SQLite wants two arguments at least.
    if len(arguments) < 2:  # noqa: PLR2004
        return arguments[0] if arguments else "NULL"
    return f"coalesce({', '.join(arguments)})"


def _lower(data: bytes) -> bytes:
    return data.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")


def _sleep(milliseconds: int) -> int:
    time.sleep(max(milliseconds, 0) / 1000)
    return milliseconds


_S = Type.STRING
_HASHED = frozenset((Type.INT64, Type.UINT64, Type.BOOLEAN, Type.STRING))

_declare(
    "if",
    (Type.BOOLEAN, "value", "value"),
    "value",
    sql="CASE {0} WHEN 1 THEN {1} WHEN 0 THEN {2} END",
)
_declare("is_null", ("value",), Type.BOOLEAN, sql="({0} IS NULL)", takes_null=True)
_declare("if_null", ("value", "value"), "value", sql="ifnull({0}, {1})")
_declare("coalesce", (), "value", repeated="value", among=SCALAR | {Type.ANY}, sql=_coalesce)
_declare("is_nan", (Type.DOUBLE,), Type.BOOLEAN, sql="(typeof({0}) = 'text')", takes_null=True)
_declare("length", (_S,), Type.INT64, sql="length({0})")
_declare("concat", (_S, _S), _S, sql="CAST(({0} || {1}) AS BLOB)")
_declare("lower", (_S,), _S, python=_lower)
_declare("sleep", (Type.INT64,), Type.INT64, python=_sleep)
_declare("is_substr", (_S, _S), Type.BOOLEAN, python=lambda part, whole: part in whole)
_declare("is_prefix", (_S, _S), Type.BOOLEAN, python=lambda prefix, whole: whole.startswith(prefix))
_declare(
    "farm_hash", (), Type.UINT64, repeated=_HASHED, takes_null=True, python=fingerprint_of_values
)
