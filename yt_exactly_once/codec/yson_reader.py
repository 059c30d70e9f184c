"""Pulled rows as plain Arrow arrays, by way of the C parser and Python objects.

It handles every type; most rows take the faster way of `yson_scan`. Plain arrays
hold numbers and bytes as the cluster counts them: `reading` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec.arrow_types import NESTED_VALUE, parsed_type_of, variant_field
from yt_exactly_once.codec.buffers import concatenated
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


def parse_rows(
    rows: bytes, wanted: Mapping[str, LogicalType]
) -> dict[str, pa.Array | UnfitValueError]:
    """Parse rows into plain arrays, or into what is wrong with a value of the column.

    Args:
        wanted: types of the columns; a row without one of them counts as null.

    Raises:
        ValueError: this is not a list fragment of maps.
    """
    found: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    unfit: dict[str, UnfitValueError] = {}
    shapes = {
        name: (name.encode(), _or_null(logical), parsed_type_of(logical))
        for name, logical in wanted.items()
    }
    count = 0
    for part in bindings.parse_rows(rows):
        if not all(isinstance(row, dict) for row in part):
            raise ValueError("a row is not a map")
        for name, arrays in found.items():
            try:
                arrays.append(_collected(part, *shapes[name]))
            except UnfitValueError as error:
                unfit.setdefault(name, error.within(count + error.row, ""))
        count += len(part)
    return {name: unfit.get(name) or concatenated(found.pop(name)) for name in wanted}


def parsed_values(rows: bytes, row: int, names: Iterable[str]) -> list[Any]:
    """Return values of one row as they are parsed, None where it has none."""
    found = next(islice(chain.from_iterable(bindings.parse_rows(rows)), row, None))
    return [found.get(name.encode()) for name in names]


def _collected(rows: list[Any], key: bytes, shape: Shaper, target: pa.DataType) -> pa.Array:
    values = [row.get(key) for row in rows]
    try:
        return pa.array(values if shape is _same else map(shape, values), target)
    except _MISFITS:
        # Not chained: Arrow's messages quote the value.
        raise UnfitValueError(_first_misfit(values, shape, target), "it has another type") from None


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
            # Arrow takes lists as they are, and items that need no shape with them.
            return None if _shaper(item) is None else _list(_or_null(item))
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
