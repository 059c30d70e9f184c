"""Functions on values of any type: conditions, nulls, conversions between scalar types.

One entry per function: name, signature, and SQL or Python. Entries follow
`yt/yt/library/query/base/builtin_function_types.cpp`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.farm_hash import fingerprint_of_values
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CASTABLE = NUMERIC | {Type.NULL, Type.ANY}
_INT64_END = 1 << 63
_UINT64_END = 1 << 64


def runtime_error(message: str) -> YtError:
    """Return the error of a query that fails on a row."""
    return YtError("Error while executing query", inner=[YtError(message)])


def _if(arguments: Sequence[str], _types: Sequence[Type]) -> str:
    condition, positive, negative = arguments
    return f"CASE {condition} WHEN 1 THEN {positive} WHEN 0 THEN {negative} END"


def _coalesce(arguments: Sequence[str], _types: Sequence[Type]) -> str:
    match len(arguments):
        case 0:
            return "NULL"
        case 1:
            return arguments[0]
    return f"coalesce({', '.join(arguments)})"


def _same_bits(arguments: Sequence[str], types: Sequence[Type]) -> str | None:
    return arguments[0] if types[0] in (Type.NULL, Type.INT64, Type.UINT64) else None


def _to_double(arguments: Sequence[str], types: Sequence[Type]) -> str | None:
    match types[0]:
        case Type.NULL | Type.DOUBLE:
            return arguments[0]
        case Type.INT64:
            return f"CAST({arguments[0]} AS REAL)"
    return None


def _to_boolean(arguments: Sequence[str], types: Sequence[Type]) -> str | None:
    match types[0]:
        case Type.NULL | Type.BOOLEAN:
            return arguments[0]
        case Type.INT64 | Type.UINT64:
            return f"({arguments[0]} <> 0)"
    return None


def _to_string(arguments: Sequence[str], types: Sequence[Type]) -> str | None:
    return arguments[0] if types[0] in (Type.NULL, Type.STRING) else None


_SCALARS_IN_ANY: dict[str, tuple[Type, Callable[[Any], Any]]] = {
    "YsonInt64": (Type.INT64, int),
    "YsonUint64": (Type.UINT64, int),
    "YsonDouble": (Type.DOUBLE, float),
    "YsonBoolean": (Type.BOOLEAN, bool),
    "YsonString": (Type.STRING, bytes),
    "YsonEntity": (Type.NULL, lambda _entity: None),
}


def scalar_in_any(blob: bytes) -> tuple[Type | None, Any]:
    """Return type and value of a scalar of type `any`; no type when it is something else."""
    value = yson.loads(blob, encoding=None)
    known = _SCALARS_IN_ANY.get(type(value).__name__)
    return (None, value) if known is None else (known[0], known[1](value))


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
    if target is Type.DOUBLE:
        return float(value)
    if isinstance(value, float):
        value = math.trunc(value) if math.isfinite(value) else 0
    bits: int = int(value) & (_UINT64_END - 1)
    return bits - _UINT64_END if target is Type.INT64 and bits >= _INT64_END else bits


def _integer_from(types: Sequence[Type], value: Any, target: Type) -> int:
    if types[0] is Type.ANY:
        return int(_any_to(value, target))
    low, high = (-_INT64_END, _INT64_END) if target is Type.INT64 else (0, _UINT64_END)
    if math.isnan(value):
        raise runtime_error("NaN is not convertible to integer")
    if not low <= value < high:
        raise runtime_error("Floating point value out of integer range")
    return int(value)


def _int64(types: Sequence[Type], value: Any) -> int:
    return _integer_from(types, value, Type.INT64)


def _uint64(types: Sequence[Type], value: Any) -> int:
    return _integer_from(types, value, Type.UINT64)


def _double(types: Sequence[Type], value: Any) -> float:
    return float(_any_to(value, Type.DOUBLE) if types[0] is Type.ANY else value)


def _boolean(_types: Sequence[Type], value: Any) -> bool:
    return bool(_any_to(value, Type.BOOLEAN))


def _string(_types: Sequence[Type], value: Any) -> bytes:
    return bytes(_any_to(value, Type.STRING))


def _greatest(_types: Sequence[Type], *values: Any) -> Any:
    if None in values:
        raise YtError("Error while executing UDF", inner=[YtError("Found null argument")])
    return max(values)


def _sleep(_types: Sequence[Type], milliseconds: int) -> int:
    time.sleep(max(milliseconds, 0) / 1000)
    return milliseconds


FUNCTIONS = (
    Function("if", (Type.BOOLEAN, "value", "value"), "value", sql=_if),
    Function(
        "is_null",
        ("value",),
        Type.BOOLEAN,
        sql=lambda arguments, _types: f"({arguments[0]} IS NULL)",
        never_null=True,
    ),
    Function(
        "if_null",
        ("value", "value"),
        "value",
        sql=lambda arguments, _types: f"ifnull({arguments[0]}, {arguments[1]})",
    ),
    Function(
        "coalesce",
        (),
        "value",
        repeated="value",
        variables={"value": SCALAR | {Type.ANY}},
        sql=_coalesce,
    ),
    Function(
        "int64",
        ("value",),
        Type.INT64,
        variables={"value": _CASTABLE},
        sql=_same_bits,
        python=_int64,
    ),
    Function(
        "uint64",
        ("value",),
        Type.UINT64,
        variables={"value": _CASTABLE},
        sql=_same_bits,
        python=_uint64,
    ),
    Function(
        "double",
        ("value",),
        Type.DOUBLE,
        variables={"value": _CASTABLE},
        sql=_to_double,
        python=_double,
    ),
    Function(
        "boolean",
        ("value",),
        Type.BOOLEAN,
        variables={
            "value": frozenset((Type.NULL, Type.INT64, Type.UINT64, Type.BOOLEAN, Type.ANY))
        },
        sql=_to_boolean,
        python=_boolean,
    ),
    Function(
        "string",
        ("value",),
        Type.STRING,
        variables={"value": frozenset((Type.STRING, Type.ANY))},
        sql=_to_string,
        python=_string,
    ),
    Function(
        "greatest",
        ("value",),
        "value",
        repeated="value",
        variables={"value": SCALAR},
        python=_greatest,
        null_if_any_null=False,
        never_null=True,
    ),
    Function("sleep", (Type.INT64,), Type.INT64, python=_sleep),
    Function(
        "farm_hash",
        (),
        Type.UINT64,
        repeated=frozenset((Type.INT64, Type.UINT64, Type.BOOLEAN, Type.STRING)),
        python=lambda types, *values: fingerprint_of_values(types, values),
        null_if_any_null=False,
        never_null=True,
    ),
)
