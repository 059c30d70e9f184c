"""Arrow columns as binary YSON, whatever their logical type, without a Python object per value.

`fragments` walks the logical type, not the rows: each node is a few passes over whole arrays. Composite
values have two shapes: by name in rows of YSON, by position inside the binary columns of an Arrow request.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.arrow_types import NESTED_VALUE, struct_fields, variant_field
from yt_exactly_once.codec.types import (
    DecimalType,
    DictType,
    ListType,
    LogicalType,
    OptionalType,
    SimpleType,
    StructType,
    TupleType,
    VariantType,
    is_nested_optional,
    is_nullable,
    untagged,
)
from yt_exactly_once.codec.values import UnfitValueError, check_nulls
from yt_exactly_once.codec.yson_parts import (
    BYTES,
    Offsets,
    around_nulls,
    constant,
    contents,
    entries,
    integer_literal,
    join,
    nothing,
    or_entity,
    spans,
    string_literal,
)

if TYPE_CHECKING:
    from yt_exactly_once.codec.scalars import Scalar


class Shape(Enum):
    """How structs and named variants are written."""

    NAMED = auto()
    """As maps and by name: rows of YSON."""
    POSITIONAL = auto()
    """As lists and by index: values the cluster stores as they are."""
    KEY = auto()
    """By name, with equal bytes for what the cluster takes for one key: one zero, and one NaN."""


def fragments(array: pa.Array, logical: LogicalType, shape: Shape) -> pa.Array:
    """Encode a column: one fragment of binary YSON per row, the entity for null.

    Raises:
        UnfitValueError: a value, or a null, that the logical type does not have.
    """
    check_nulls(array, nullable=is_nullable(logical))
    if pa.types.is_null(array.type):
        return nothing(array)
    bare = _unwrapped(logical)
    if array.null_count == 0:
        return _present(array, bare, shape)
    if isinstance(bare, SimpleType | DecimalType) and not bare.scalar.holds_yson:
        return or_entity(_scalar(array, bare.scalar, shape), array)
    return around_nulls(array, lambda present: _present(present, bare, shape))


def _unwrapped(logical: LogicalType) -> LogicalType:
    """Peel off what does not show in a present value; an optional that does show is kept."""
    bare = untagged(logical)
    while isinstance(bare, OptionalType) and not is_nested_optional(bare):
        bare = untagged(bare.item)
    return bare


def _present(array: pa.Array, bare: LogicalType, shape: Shape) -> pa.Array:
    """Encode an array without nulls."""
    match bare:
        case SimpleType() | DecimalType():
            return _scalar(array, bare.scalar, shape)
        case OptionalType(item):
            return join(b"[", _part(array.field(0), item, shape, f".{NESTED_VALUE}"), b";]")
        case ListType(item):
            return _list(array, item, shape)
        case DictType(key, value):
            return _dict(array, key, value, shape)
        case VariantType():
            return _variant(array, bare, shape)
        case StructType() | TupleType():
            return _struct(array, bare, shape)
        case other:
            raise AssertionError(f"{other} is not a logical type")


def _scalar(array: pa.Array, scalar: Scalar, shape: Shape) -> pa.Array:
    plain = scalar.to_plain(array)
    as_key = scalar.to_key if shape is Shape.KEY else None
    return (as_key or scalar.to_yson)(plain)


def _list(array: pa.Array, item: LogicalType, shape: Shape) -> pa.Array:
    offsets, items = contents(array)
    try:
        encoded = fragments(items, item, shape)
    except UnfitValueError as error:
        raise error.within(_row_of(error.row, offsets), "[]") from error
    return join(b"[", spans(join(encoded, b";"), offsets), b"]")


def _dict(array: pa.Array, key: LogicalType, value: LogicalType, shape: Shape) -> pa.Array:
    offsets, keys, values = entries(array)
    try:
        pairs = join(
            b"[",
            _part(keys, key, shape, "[key]"),
            b";",
            _part(values, value, shape, "[value]"),
            b";];",
        )
    except UnfitValueError as error:
        raise error.within(_row_of(error.row, offsets), "") from error
    return join(b"[", spans(pairs, offsets), b"]")


def _row_of(item: int, offsets: Offsets) -> int:
    return int(np.searchsorted(offsets, item, side="right")) - 1


def _part(array: pa.Array, logical: LogicalType, shape: Shape, step: str) -> pa.Array:
    try:
        return fragments(array, logical, shape)
    except UnfitValueError as error:
        raise error.within(error.row, step) from error


def _struct(array: pa.Array, bare: StructType | TupleType, shape: Shape) -> pa.Array:
    named = isinstance(bare, StructType) and shape is not Shape.POSITIONAL
    parts: list[pa.Array | bytes] = [b"{" if named else b"["]
    for name, logical in struct_fields(bare).items():
        place = array.type.get_field_index(name)
        if named:
            parts.append(string_literal(name.encode()) + b"=")
        if place < 0:
            parts.append(b"#")
        else:
            parts.append(_part(array.field(place), logical, shape, f".{name}"))
        parts.append(b";")
    parts.append(b"}" if named else b"]")
    # Also the struct without members has as many rows as the array.
    return join(constant(b"", len(array)), *parts)


def _variant(array: pa.Array, bare: VariantType, shape: Shape) -> pa.Array:
    chosen: list[pa.Array] = []
    count = np.zeros(len(array), np.int64)
    for index, one in enumerate(bare.alternatives):
        name = variant_field(one)
        place = array.type.get_field_index(name)
        if place < 0:
            continue
        field = array.field(place)
        valid = field.is_valid()
        if is_nullable(one.type):
            field = field.flatten()[0]
        logical = one.type if is_nullable(one.type) else OptionalType(one.type)
        value = _part(field, logical, shape, f".{name}")
        by_name = bare.named and shape is not Shape.POSITIONAL
        tag = string_literal(one.name.encode()) if by_name else integer_literal(index)
        count += np.asarray(valid)
        body = join(b"[" + tag + b";", value, b";]")
        chosen.append(pc.if_else(valid, body, pa.scalar(None, BYTES)))
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        raise UnfitValueError(int(wrong[0]), "exactly one alternative of a variant must be given")
    return pc.coalesce(*chosen) if chosen else constant(b"", 0)
