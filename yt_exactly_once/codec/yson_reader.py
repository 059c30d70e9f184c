"""Pulled rows as plain Arrow arrays, by way of the C parser and Python objects.

It handles every type; most rows take the faster way of `yson_scan`. Plain arrays
hold numbers and bytes as the cluster counts them: `reading` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec.arrow_types import NESTED_VALUE, parsed_type_of, variant_field
from yt_exactly_once.codec.types import (
    DecimalType,
    DictType,
    ListType,
    LogicalType,
    Member,
    OptionalType,
    SimpleType,
    StructType,
    TupleType,
    VariantType,
    is_nested_optional,
    is_nullable,
    untagged,
)
from yt_exactly_once.codec.values import UnfitValueError

Shaper = Callable[[Any], Any]


class ParsedRows:
    """Rows parsed into Python objects.

    Raises:
        ValueError: this is not a list fragment of maps.
    """

    def __init__(self, rows: bytes) -> None:
        self._rows: list[dict[bytes, Any]] = bindings.parse_rows(rows)
        if not all(isinstance(row, dict) for row in self._rows):
            raise ValueError("a row is not a map")

    def column(self, name: str, logical: LogicalType) -> pa.Array:
        """Collect one column; a row without it counts as null.

        Raises:
            UnfitValueError: some value has another type.
        """
        key, shape = name.encode(), _or_null(logical)
        values = [row.get(key) for row in self._rows]
        target = parsed_type_of(logical)
        try:
            return pa.array(values if shape is _same else map(shape, values), target)
        except _MISFITS:
            # Not chained: Arrow's messages quote the value.
            raise UnfitValueError(
                _first_misfit(values, shape, target), "it has another type"
            ) from None

    def value(self, row: int, name: str) -> Any:
        """Return one value as it was parsed, or None."""
        return self._rows[row].get(name.encode())


_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError, LookupError, AttributeError)


def _first_misfit(values: Sequence[Any], shape: Shaper, target: pa.DataType) -> int:
    for row, value in enumerate(values):
        try:
            pa.array([shape(value)], target)
        except _MISFITS:
            return row
    raise AssertionError("each value fits, and together they do not")


def _shaper(logical: LogicalType) -> Shaper | None:  # noqa: PLR0911 - a case per kind
    """Return what turns a parsed value into one Arrow takes, or None where it is one already."""
    match untagged(logical):
        case SimpleType() | DecimalType() as bare:
            return bare.scalar.from_parsed
        case OptionalType(item) as optional if is_nested_optional(optional):
            return _nested(_or_null(item))
        case OptionalType(item):
            return _shaper(item)
        case ListType(item):
            return _list(_or_null(item))
        case DictType(key, value):
            return _pairs(_or_null(key), _or_null(value))
        case StructType(members):
            return _struct({one.name.encode(): (one.name, _or_null(one.type)) for one in members})
        case TupleType(elements):
            return _tuple([(f"_{n}", _or_null(one)) for n, one in enumerate(elements, 1)])
        case VariantType(alternatives):
            return _variant(alternatives)
        case other:
            raise AssertionError(f"{other} is not a logical type")


def _or_null(logical: LogicalType) -> Shaper:
    shape = _shaper(logical)
    if shape is None:
        return _same
    return lambda value: None if value is None else shape(value)


def _same(value: Any) -> Any:
    return value


def _nested(inner: Shaper) -> Shaper:
    return lambda value: {NESTED_VALUE: inner(value[0])}


def _list(inner: Shaper) -> Shaper:
    return lambda value: [inner(item) for item in value]


def _pairs(key: Shaper, inner: Shaper) -> Shaper:
    return lambda value: [(key(one[0]), inner(one[1])) for one in value]


def _struct(members: dict[bytes, tuple[str, Shaper]]) -> Shaper:
    def shape(value: dict[bytes, Any]) -> dict[str, Any]:
        return {name: inner(value.get(key)) for key, (name, inner) in members.items()}

    return shape


def _tuple(elements: list[tuple[str, Shaper]]) -> Shaper:
    def shape(value: list[Any]) -> dict[str, Any]:
        pairs = zip(elements, value, strict=True)
        return {name: inner(item) for (name, inner), item in pairs}

    return shape


def _variant(alternatives: Sequence[Member]) -> Shaper:
    by_tag: dict[Any, tuple[str, Shaper]] = {}
    for index, one in enumerate(alternatives):
        inner = _or_null(one.type)
        if is_nullable(one.type):
            inner = _chosen(inner)
        by_tag[index] = by_tag[one.name.encode()] = (variant_field(one), inner)

    def shape(value: list[Any]) -> dict[str, Any]:
        name, inner = by_tag[value[0]]
        return {name: inner(value[1])}

    return shape


def _chosen(inner: Shaper) -> Shaper:
    """Mark an alternative that may be null as chosen."""
    return lambda value: {NESTED_VALUE: inner(value)}
