"""Comparisons SQLite cannot make: NaN is an error, and `any` compares by what is inside.

Owns the run-time errors of comparisons; `tables.keys` has the order of documents. Numbers, strings and
booleans that cannot be NaN are compared by SQLite itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import RELATIONS, wrap
from yt_exactly_once.local.ql.functions.general import runtime_error, scalar_in_any
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.keys import encode_prefix
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.values import NAN

_WIRE_TYPES = {
    Type.NULL: "null",
    Type.INT64: "int64",
    Type.UINT64: "uint64",
    Type.DOUBLE: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.ANY: "any",
}
COLUMNS = {
    kind: Column(kind.title, wire_type, wire_type, required=False)
    for kind, wire_type in _WIRE_TYPES.items()
}
"""A column of every type, for encoders that work on columns."""


def relation(symbol: str, types: Sequence[Type]) -> Callable[[Any, Any], int]:
    """Return a relational operator on stored values of doubles or documents."""
    apply = RELATIONS[symbol]
    compare = _compare_doubles if Type.ANY not in types else _document_comparison(types)

    def relate(left: Any, right: Any) -> int:
        if left is None or right is None:
            return int(apply((right is None) - (left is None), 0))
        return int(apply(compare(left, right), 0))

    return relate


def order_double(stored: Any) -> Any:
    """Pass a double that can be ordered."""
    if stored == NAN:
        raise runtime_error("Comparison with NaN")
    return stored


def order_document(blob: bytes | None) -> bytes | None:
    """Return a blob whose byte order is the order of documents."""
    return None if blob is None else encode_prefix((COLUMNS[Type.ANY],), (blob,))


def _compare_doubles(left: Any, right: Any) -> int:
    if NAN in (left, right):
        raise runtime_error("Comparison with NaN")
    return _sign(left, right)


def _document_comparison(types: Sequence[Type]) -> Callable[[Any, Any], int]:
    left_kind, right_kind = types
    if left_kind is right_kind:
        return lambda left, right: _sign(order_document(left), order_document(right))
    if left_kind is Type.ANY:
        return lambda left, right: _compare_with_scalar(left, right_kind, right)
    return lambda left, right: -_compare_with_scalar(right, left_kind, left)


def _compare_with_scalar(blob: bytes, kind: Type, stored: Any) -> int:
    found, value = scalar_in_any(blob)
    if found is not kind:
        name = "composite" if found is None else found.title
        raise YtError(f'Cannot compare values of types "{name}" and "{kind.title}"')
    return _sign(value, wrap(kind, stored) if kind is Type.UINT64 else stored)


def _sign(left: Any, right: Any) -> int:
    return bool(left > right) - bool(left < right)
