"""Arrow columns as binary YSON, whatever their logical type, without a Python object per value.

`fragments` walks the logical type, not the rows: each node is a few passes over whole arrays. Composite
values have two shapes: by name in rows of YSON, by position inside the binary columns of an Arrow request.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import types, yson_fragments
from yt_exactly_once.codec.arrow_types import struct_fields, variant_field
from yt_exactly_once.codec.buffers import to_numpy
from yt_exactly_once.codec.matches import is_binary, is_list, is_string
from yt_exactly_once.codec.scalars import SCALARS, Scalar
from yt_exactly_once.codec.values import UnfitValueError, check_nulls, located
from yt_exactly_once.codec.yson_text import REPEATED_KEY


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
        return yson_fragments.nothing(array)
    bare = types.required(logical)
    if array.null_count == 0:
        return _present(array, bare, shape)
    if isinstance(bare, Scalar) and not bare.holds_yson:
        return yson_fragments.or_entity(_scalar(array, bare, shape), array)
    return yson_fragments.around_nulls(array, lambda present: _present(present, bare, shape))


def _present(array: pa.Array, bare: types.LogicalType, shape: Shape) -> pa.Array:
    """Encode an array without nulls."""
    match bare:
        case Scalar():
            return _scalar(array, bare, shape)
        case types.ListType(item):
            offsets, held = yson_fragments.held(array)
            with located("[]", offsets=offsets):
                pieces = yson_fragments.join(fragments(array.values[held], item, shape), b";")
        case types.DictType(key, value):
            offsets, held = yson_fragments.held(array)
            with located("[key]", offsets=offsets):
                keys = fragments(array.keys[held], key, shape)
            with located("[value]", offsets=offsets):
                values = fragments(array.items[held], value, shape)
            pieces = yson_fragments.join(b"[", keys, b";", values, b";];")
        case types.VariantType():
            return _variant(array, bare, shape)
        case _:
            return _struct(array, bare, shape)
    return yson_fragments.join(b"[", yson_fragments.spans(pieces, offsets), b"]")


def _scalar(array: pa.Array, scalar: Scalar, shape: Shape) -> pa.Array:
    if scalar.holds_yson and not is_binary(array.type):
        return _plain(array, Shape.KEY if shape is Shape.KEY else Shape.NAMED)
    plain = scalar.to_plain(array)
    as_key = scalar.to_key if shape is Shape.KEY else None
    return (as_key or scalar.to_yson)(plain)


def _plain(array: pa.Array, shape: Shape) -> pa.Array:
    """Encode values of any Arrow type as plain YSON, structs and maps as YSON maps."""
    kind, inside = array.type, types.OptionalType(SCALARS["yson"])
    if pa.types.is_map(kind):
        offsets, held = yson_fragments.held(array)
        keys = array.keys[held]
        _require_distinct(keys, offsets)
        with located("[value]", offsets=offsets):
            encoded = fragments(array.items[held], inside, shape)
        pairs = yson_fragments.join(yson_fragments.strings(keys), b"=", encoded, b";")
        return yson_fragments.join(b"{", yson_fragments.spans(pairs, offsets), b"}")
    if is_list(kind):
        return _present(array, types.ListType(inside), shape)
    if pa.types.is_struct(kind):
        members = tuple(types.Member(field.name, inside) for field in kind)
        return _present(array, types.StructType(members), shape)
    if pa.types.is_floating(kind):
        return _scalar(array, SCALARS["double"], shape)
    return _scalar(array, SCALARS["string" if is_string(kind) else str(kind)], shape)


def _require_distinct(keys: pa.Array, offsets: yson_fragments.Offsets) -> None:
    """Check that no map has a key twice: a reader of the YSON would see only one of the two values."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = to_numpy(keys.dictionary_encode().indices).astype(np.int64)
    _, first, count = np.unique(
        rows * (len(keys) + 1) + codes, return_index=True, return_counts=True
    )
    repeated = first[count > 1]
    if len(repeated):
        raise UnfitValueError(int(rows[repeated.min()]), REPEATED_KEY)


def _struct(array: pa.Array, bare: types.LogicalType, shape: Shape) -> pa.Array:
    named = isinstance(bare, types.StructType) and bare.named and shape is not Shape.POSITIONAL
    pieces: list[pa.Array | bytes] = [b"{" if named else b"["]
    for name, logical in struct_fields(bare).items():
        position = array.type.get_field_index(name)
        if named:
            pieces.append(yson_fragments.string_literal(name.encode()) + b"=")
        if position < 0:
            pieces.append(b"#")
        else:
            with located(f".{name}"):
                pieces.append(fragments(array.field(position), logical, shape))
        pieces.append(b";")
    pieces.append(b"}" if named else b"]")
    # Also the struct without members has as many rows as the array.
    return yson_fragments.join(yson_fragments.constant(b"", len(array)), *pieces)


def _variant(array: pa.Array, bare: types.VariantType, shape: Shape) -> pa.Array:
    chosen: list[pa.Array] = []
    count = np.zeros(len(array), np.int64)
    for index, one in enumerate(bare.members):
        name = variant_field(one)
        position = array.type.get_field_index(name)
        if position < 0:
            continue
        field = array.field(position)
        valid = field.is_valid()
        if types.is_nullable(one.type):
            field = field.flatten()[0]
        logical = one.type if types.is_nullable(one.type) else types.OptionalType(one.type)
        with located(f".{name}"):
            value = fragments(field, logical, shape)
        tag = yson_fragments.integer_literal(index)
        if bare.named and shape is not Shape.POSITIONAL:
            tag = yson_fragments.string_literal(one.name.encode())
        count += np.asarray(valid)
        body = yson_fragments.join(b"[" + tag + b";", value, b";]")
        chosen.append(pc.if_else(valid, body, pa.scalar(None, yson_fragments.BYTES)))
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        raise UnfitValueError(int(wrong[0]), "exactly one alternative of a variant must be given")
    return pc.coalesce(*chosen) if chosen else yson_fragments.constant(b"", 0)
