"""Arrow columns as binary YSON, whatever their logical type, without a Python object per value.

`fragments` walks the logical type, not the rows: each node is a few passes over whole arrays. Composite
values have two shapes: by name in rows of YSON, by position inside the binary columns of an Arrow request.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import types, yson_fragments
from yt_exactly_once.codec.arrow_types import struct_fields, variant_field
from yt_exactly_once.codec.buffers import scalar, to_numpy
from yt_exactly_once.codec.matches import is_binary, is_list, is_string
from yt_exactly_once.codec.scalars import SCALARS, Scalar
from yt_exactly_once.codec.values import UnfitValueError, check_nulls, located
from yt_exactly_once.codec.yson_fragments import Pieces
from yt_exactly_once.codec.yson_text import REPEATED_KEY


class Shape(Enum):
    """How structs and named variants are written."""

    NAMED = auto()
    """As maps and by name: rows of YSON."""
    POSITIONAL = auto()
    """As lists and by index: values the cluster stores as they are."""
    KEY = auto()
    """By name, with equal bytes for what the cluster takes for one key: one zero, and one NaN."""
    HASHED = auto()
    """By name, without null members: a value stays the same if its struct gets further ones."""


def fragments(array: pa.Array, logical: types.LogicalType, shape: Shape) -> pa.LargeBinaryArray:
    """Encode a column, null as entity; raise `UnfitValueError` for a value that its type has not."""
    return yson_fragments.join(_pieces(array, logical, shape), len(array))


def stored(array: pa.Array, logical: types.LogicalType, shape: Shape) -> pa.LargeBinaryArray:
    """Do the same as the cluster keeps values: there, null is no value but its absence."""
    if isinstance(types.required(logical), Scalar):
        # Bytes that were given may be the YSON of null.
        encoded = fragments(array, logical, shape)
        valid = pc.not_equal(encoded, scalar(b"#", encoded.type))
    else:
        encoded = yson_fragments.join(_pieces(array, logical, shape, b""), len(array))
        valid = array.is_valid()
    buffers = [valid.buffers()[1], *encoded.buffers()[1:]]
    return pa.Array.from_buffers(encoded.type, len(encoded), buffers)


def _pieces(
    array: pa.Array, logical: types.LogicalType, shape: Shape, null: bytes = b"#"
) -> Pieces:
    """Encode a column; what a null becomes may differ at the top."""
    check_nulls(array, nullable=types.is_nullable(logical))
    if pa.types.is_null(array.type):
        return [null]
    bare = types.required(logical)
    if array.null_count == 0:
        return _present(array, bare, shape)
    return yson_fragments.among_nulls(array, lambda some: _present(some, bare, shape), null)


def _present(array: pa.Array, bare: types.LogicalType, shape: Shape) -> Pieces:
    """Encode an array without nulls."""
    match bare:
        case Scalar():
            return _scalar(array, bare, shape)
        case types.ListType(item):
            offsets, held = yson_fragments.held(array)
            with located("[]", offsets=offsets):
                items = [*_pieces(array.values[held], item, shape), b";"]
        case types.DictType(key, value):
            offsets, held = yson_fragments.held(array)
            with located("[key]", offsets=offsets):
                keys = _pieces(array.keys[held], key, shape)
            with located("[value]", offsets=offsets):
                values = _pieces(array.items[held], value, shape)
            items = [b"[", *keys, b";", *values, b";];"]
        case types.VariantType():
            return _variant(array, bare, shape)
        case _:
            return _struct(array, bare, shape)
    return [b"[", yson_fragments.spans(items, offsets), b"]"]


def _scalar(array: pa.Array, bare: Scalar, shape: Shape) -> Pieces:
    if bare.holds_yson and not is_binary(array.type):
        return _plain(array, Shape.KEY if shape is Shape.KEY else Shape.NAMED)
    as_key = bare.to_key if shape is Shape.KEY else None
    return (as_key or bare.to_yson)(bare.to_plain(array))


def _plain(array: pa.Array, shape: Shape) -> Pieces:
    """Encode values of any Arrow type as plain YSON, structs and maps as YSON maps."""
    kind, inside = array.type, types.OptionalType(SCALARS["yson"])
    if pa.types.is_map(kind):
        offsets, held = yson_fragments.held(array)
        keys = array.keys[held]
        _require_distinct(keys, offsets)
        with located("[value]", offsets=offsets):
            values = _pieces(array.items[held], inside, shape)
        pairs = [*yson_fragments.strings(keys), b"=", *values, b";"]
        return [b"{", yson_fragments.spans(pairs, offsets), b"}"]
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


def _struct(array: pa.Array, bare: types.LogicalType, shape: Shape) -> Pieces:
    named = isinstance(bare, types.StructType) and bare.named and shape is not Shape.POSITIONAL
    pieces: Pieces = [b"{" if named else b"["]
    for name, logical in struct_fields(bare).items():
        position = array.type.get_field_index(name)
        if named and shape is Shape.HASHED and types.is_nullable(logical):
            if position >= 0:
                pieces += _unless_null(name, array.field(position), logical)
            continue
        if named:
            pieces.append(yson_fragments.string_literal(name.encode()) + b"=")
        if position < 0:
            pieces.append(b"#")
        else:
            with located(f".{name}"):
                pieces += _pieces(array.field(position), logical, shape)
        pieces.append(b";")
    return [*pieces, b"}" if named else b"]"]


def _unless_null(name: str, array: pa.Array, logical: types.LogicalType) -> Pieces:
    """Encode a member where it is not null."""
    if pa.types.is_null(array.type):
        return []
    key, bare = yson_fragments.string_literal(name.encode()) + b"=", types.required(logical)

    def encode(some: pa.Array) -> Pieces:
        with located(f".{name}"):
            return [key, *_present(some, bare, Shape.HASHED), b";"]

    return yson_fragments.among_nulls(array, encode, b"")


def _variant(array: pa.Array, bare: types.VariantType, shape: Shape) -> Pieces:
    chosen: list[tuple[Any, pa.Array]] = []
    count = np.zeros(len(array), np.int64)
    for index, one in enumerate(bare.members):
        name = variant_field(one)
        position = array.type.get_field_index(name)
        if position < 0:
            continue
        field = array.field(position)
        valid = field.is_valid()
        rows = np.flatnonzero(to_numpy(valid.cast(pa.uint8())))
        count[rows] += 1
        value = field.filter(valid)
        if types.is_nullable(one.type):
            value = value.field(0)
        with located(f".{name}", rows=rows):
            pieces = _pieces(value, one.type, shape)
        tag = yson_fragments.integer_literal(index)
        if bare.named and shape is not Shape.POSITIONAL:
            tag = yson_fragments.string_literal(one.name.encode())
        whole = [b"[", tag, b";", *pieces, b";]"]
        chosen.append((rows, yson_fragments.join(whole, len(rows))))
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        raise UnfitValueError(int(wrong[0]), "exactly one alternative of a variant must be given")
    order = np.concatenate([rows for rows, _ in chosen]) if chosen else count
    pool = (
        pa.concat_arrays([values for _, values in chosen]) if chosen else yson_fragments.literals()
    )
    return [yson_fragments.Picked(pool, np.argsort(order))]
