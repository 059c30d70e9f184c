"""From the plain arrays that YSON is parsed into to the Arrow types that a source promised.

It walks the logical type on whole arrays and loses nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import types
from yt_exactly_once.codec.arrow_types import struct_fields
from yt_exactly_once.codec.buffers import to_numpy
from yt_exactly_once.codec.values import UnfitValueError, check_nulls


def present(plain: pa.Array, logical: types.LogicalType, asked: pa.DataType) -> pa.Array:
    """Turn a plain array into the Arrow type asked for; raise `UnfitValueError` if a value does not fit."""
    match types.untagged(logical):
        case types.SimpleType() | types.DecimalType() as bare:
            return bare.scalar.from_plain(plain, asked)
        case types.OptionalType(item) as optional if types.is_nested_optional(optional):
            return _struct(plain, [item], asked)
        case types.OptionalType(item):
            return present(plain, item, asked)
        case types.ListType(item):
            items = _items(plain, [(plain.values, item, asked.value_type, "[]")])
            return _same_spans(plain, asked, items)
        case types.DictType(key, value):
            keys = (plain.keys, key, asked.key_type, "[key]")
            values = (plain.items, value, asked.item_type, "[value]")
            return _same_spans(plain, asked, _items(plain, [keys, values]))
        case types.StructType() | types.TupleType() | types.VariantType() as composite:
            return _struct(plain, list(struct_fields(composite).values()), asked)
        case other:
            raise AssertionError(f"{other} is not a logical type")


def _same_spans(plain: pa.Array, asked: pa.DataType, parts: list[pa.Array]) -> pa.Array:
    """Give a list or a map new contents under the offsets it has."""
    if pa.types.is_map(asked):
        contents = pa.StructArray.from_arrays(parts, fields=[asked.key_field, asked.item_field])
    else:
        contents = parts[0]
    return pa.Array.from_buffers(asked, len(plain), plain.buffers()[:2], children=[contents])


def _struct(plain: pa.Array, parts: list[types.LogicalType], asked: pa.DataType) -> pa.Array:
    # Flattened, the parts are null where the whole is, instead of holding some placeholder.
    children = [
        _part(array, part, field.type, f".{field.name}", plain)
        for array, part, field in zip(plain.flatten(), parts, asked, strict=True)
    ]
    return pa.Array.from_buffers(asked, len(plain), plain.buffers()[:1], children=children)


Part: TypeAlias = tuple[pa.Array, types.LogicalType, pa.DataType, str]


def _part(
    plain: pa.Array,
    part: types.LogicalType,
    asked: pa.DataType,
    step: str,
    whole: pa.Array | None = None,
) -> pa.Array:
    """Turn a part of composite values into the Arrow type asked for."""
    try:
        check_nulls(plain, nullable=types.is_nullable(part), whole=whole)
        return present(plain, part, asked)
    except UnfitValueError as error:
        raise error.within(error.row, step) from error


def _items(plain: pa.Array, parts: list[Part]) -> list[pa.Array]:
    """Turn what lists or maps hold, tracing an unfit item back to the row that holds it."""
    try:
        return [_part(*part) for part in parts]
    except UnfitValueError as error:
        row = int(np.searchsorted(to_numpy(plain.offsets), error.row, side="right")) - 1
        raise error.within(row, "") from error
