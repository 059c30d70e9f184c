"""Arrow columns as binary YSON, whatever their logical type, without a Python object per value.

`fragments` walks the logical type, not the rows: each node is a few passes over whole arrays. Composite
values have two shapes: by name in rows of YSON, by position inside the binary columns of an Arrow request.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import types, yson_parts
from yt_exactly_once.codec.arrow_types import NESTED_VALUE, struct_fields, variant_field
from yt_exactly_once.codec.scalars import Scalar
from yt_exactly_once.codec.values import UnfitValueError, check_nulls


class Shape(Enum):
    """How structs and named variants are written."""

    NAMED = auto()
    """As maps and by name: rows of YSON."""
    POSITIONAL = auto()
    """As lists and by index: values the cluster stores as they are."""
    KEY = auto()
    """By name, with equal bytes for what the cluster takes for one key: one zero, and one NaN."""


def fragments(array: pa.Array, logical: types.LogicalType, shape: Shape) -> pa.Array:
    """Encode a column, null as entity; raise `UnfitValueError` for a value that its type has not."""
    check_nulls(array, nullable=types.is_nullable(logical))
    if pa.types.is_null(array.type):
        return yson_parts.nothing(array)
    bare = _unwrapped(logical)
    if array.null_count == 0:
        return _present(array, bare, shape)
    if isinstance(bare, types.SimpleType | types.DecimalType) and not bare.scalar.holds_yson:
        return yson_parts.or_entity(_scalar(array, bare.scalar, shape), array)
    return yson_parts.around_nulls(array, lambda present: _present(present, bare, shape))


def _unwrapped(logical: types.LogicalType) -> types.LogicalType:
    """Peel off what does not show in a present value; an optional that does show is kept."""
    bare = types.untagged(logical)
    while isinstance(bare, types.OptionalType) and not types.is_nested_optional(bare):
        bare = types.untagged(bare.item)
    return bare


def _present(array: pa.Array, bare: types.LogicalType, shape: Shape) -> pa.Array:
    """Encode an array without nulls."""
    match bare:
        case types.SimpleType() | types.DecimalType():
            return _scalar(array, bare.scalar, shape)
        case types.OptionalType(item):
            return yson_parts.join(
                b"[", _part(array.field(0), item, shape, f".{NESTED_VALUE}"), b";]"
            )
        case types.ListType(item):
            return _list(array, item, shape)
        case types.DictType(key, value):
            return _dict(array, key, value, shape)
        case types.VariantType():
            return _variant(array, bare, shape)
        case types.StructType() | types.TupleType():
            return _struct(array, bare, shape)
        case other:
            raise AssertionError(f"{other} is not a logical type")


def _scalar(array: pa.Array, scalar: Scalar, shape: Shape) -> pa.Array:
    plain = scalar.to_plain(array)
    as_key = scalar.to_key if shape is Shape.KEY else None
    return (as_key or scalar.to_yson)(plain)


def _list(array: pa.Array, item: types.LogicalType, shape: Shape) -> pa.Array:
    offsets, items = yson_parts.contents(array)
    try:
        encoded = fragments(items, item, shape)
    except UnfitValueError as error:
        raise error.within(_row_of(error.row, offsets), "[]") from error
    return yson_parts.join(b"[", yson_parts.spans(yson_parts.join(encoded, b";"), offsets), b"]")


def _dict(
    array: pa.Array, key: types.LogicalType, value: types.LogicalType, shape: Shape
) -> pa.Array:
    offsets, keys, values = yson_parts.entries(array)
    try:
        pairs = yson_parts.join(
            b"[",
            _part(keys, key, shape, "[key]"),
            b";",
            _part(values, value, shape, "[value]"),
            b";];",
        )
    except UnfitValueError as error:
        raise error.within(_row_of(error.row, offsets), "") from error
    return yson_parts.join(b"[", yson_parts.spans(pairs, offsets), b"]")


def _row_of(item: int, offsets: yson_parts.Offsets) -> int:
    return int(np.searchsorted(offsets, item, side="right")) - 1


def _part(array: pa.Array, logical: types.LogicalType, shape: Shape, step: str) -> pa.Array:
    try:
        return fragments(array, logical, shape)
    except UnfitValueError as error:
        raise error.within(error.row, step) from error


def _struct(array: pa.Array, bare: types.StructType | types.TupleType, shape: Shape) -> pa.Array:
    named = isinstance(bare, types.StructType) and shape is not Shape.POSITIONAL
    parts: list[pa.Array | bytes] = [b"{" if named else b"["]
    for name, logical in struct_fields(bare).items():
        place = array.type.get_field_index(name)
        if named:
            parts.append(yson_parts.string_literal(name.encode()) + b"=")
        if place < 0:
            parts.append(b"#")
        else:
            parts.append(_part(array.field(place), logical, shape, f".{name}"))
        parts.append(b";")
    parts.append(b"}" if named else b"]")
    # Also the struct without members has as many rows as the array.
    return yson_parts.join(yson_parts.constant(b"", len(array)), *parts)


def _variant(array: pa.Array, bare: types.VariantType, shape: Shape) -> pa.Array:
    chosen: list[pa.Array] = []
    count = np.zeros(len(array), np.int64)
    for index, one in enumerate(bare.alternatives):
        name = variant_field(one)
        place = array.type.get_field_index(name)
        if place < 0:
            continue
        field = array.field(place)
        valid = field.is_valid()
        if types.is_nullable(one.type):
            field = field.flatten()[0]
        logical = one.type if types.is_nullable(one.type) else types.OptionalType(one.type)
        value = _part(field, logical, shape, f".{name}")
        by_name = bare.named and shape is not Shape.POSITIONAL
        tag = (
            yson_parts.string_literal(one.name.encode())
            if by_name
            else yson_parts.integer_literal(index)
        )
        count += np.asarray(valid)
        body = yson_parts.join(b"[" + tag + b";", value, b";]")
        chosen.append(pc.if_else(valid, body, pa.scalar(None, yson_parts.BYTES)))
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        raise UnfitValueError(int(wrong[0]), "exactly one alternative of a variant must be given")
    return pc.coalesce(*chosen) if chosen else yson_parts.constant(b"", 0)
