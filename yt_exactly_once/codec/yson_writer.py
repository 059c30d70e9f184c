"""Arrow columns as binary YSON, whatever their logical type, without a Python object per value.

`fragments` walks the logical type, not the rows: each node is a few passes over whole arrays.
Composite values exist in two shapes, which the cluster does not mix up: by name in rows of YSON,
by position inside the binary columns of an Arrow request.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import decimals
from yt_exactly_once.codec.arrow_types import NESTED_VALUE, variant_field
from yt_exactly_once.codec.buffers import to_numpy
from yt_exactly_once.codec.pairs import struct_fields
from yt_exactly_once.codec.scalars import UnfitValueError, check_nulls, to_plain
from yt_exactly_once.codec.types import (
    NOTHING,
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
from yt_exactly_once.codec.yson_parts import (
    BYTES,
    booleans,
    constant,
    doubles,
    fixed_strings,
    integer_literal,
    integers,
    join,
    or_entity,
    spans,
    string_literal,
    strings,
)
from yt_exactly_once.codec.yson_text import (
    REPEATED_KEY,
    UnfitYsonError,
    comparable,
    to_binary,
)

Offsets = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Shape(Enum):
    """How structs and named variants are written."""

    NAMED = auto()
    """As maps and by name: rows of YSON."""
    POSITIONAL = auto()
    """As lists and by index: values the cluster stores as they are."""
    KEY = auto()
    """By name, and what the cluster takes for one key has the same bytes: it has one zero, and one NaN."""


def fragments(array: pa.Array, logical: LogicalType, shape: Shape) -> pa.Array:
    """Encode a column: one fragment of binary YSON per row, the entity for null.

    Raises:
        UnfitValueError: a value, or a null, that the logical type does not have.
    """
    check_nulls(array, logical)
    if pa.types.is_null(array.type):
        return constant(b"#", len(array))
    bare = _unwrapped(logical)
    if array.null_count == 0:
        return _present(array, bare, shape)
    if isinstance(bare, SimpleType | DecimalType) and bare != SimpleType("yson"):
        return or_entity(_scalar(to_plain(array, bare), bare, shape), array)
    return _around_nulls(array, lambda present: _present(present, bare, shape))


def _unwrapped(logical: LogicalType) -> LogicalType:
    """Peel off what does not show in a present value; an optional that does show is kept."""
    bare = untagged(logical)
    while isinstance(bare, OptionalType) and not is_nested_optional(bare):
        bare = untagged(bare.item)
    return bare


def _around_nulls(array: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Encode the present values alone, then spread them out again."""
    present = array.is_valid()
    rows = np.flatnonzero(np.asarray(present))
    try:
        encoded = encode(array.filter(present))
    except UnfitValueError as error:
        raise error.within(int(rows[error.row]), "") from error
    places = np.full(len(array), len(rows))
    places[rows] = np.arange(len(rows))
    return pa.concat_arrays([encoded, pa.array([b"#"], BYTES)]).take(pa.array(places))


def _present(  # noqa: PLR0911 - a case per kind
    array: pa.Array, bare: LogicalType, shape: Shape
) -> pa.Array:
    """Encode an array without nulls."""
    match bare:
        case SimpleType("yson"):
            return _free(array, shape)
        case SimpleType() | DecimalType():
            return _scalar(to_plain(array, bare), bare, shape)
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


def _scalar(plain: pa.Array, bare: SimpleType | DecimalType, shape: Shape) -> pa.Array:
    if isinstance(bare, DecimalType):
        return fixed_strings(decimals.to_stored(plain))
    if bare.name in NOTHING:
        return constant(b"#", len(plain))
    if pa.types.is_integer(plain.type):
        return integers(plain)
    if pa.types.is_floating(plain.type):
        return doubles(plain, canonical=shape is Shape.KEY)
    return booleans(plain) if pa.types.is_boolean(plain.type) else strings(plain)


def _offsets(array: pa.Array) -> Offsets:
    return np.asarray(array.offsets).astype(np.int64)


def _list(array: pa.Array, item: LogicalType, shape: Shape) -> pa.Array:
    offsets = _offsets(array)
    start, end = int(offsets[0]), int(offsets[-1])
    offsets -= start
    try:
        items = fragments(array.values[start:end], item, shape)
    except UnfitValueError as error:
        raise error.within(_row_of(error.row, offsets), "[]") from error
    return join(b"[", spans(join(items, b";"), offsets), b"]")


def _dict(array: pa.Array, key: LogicalType, value: LogicalType, shape: Shape) -> pa.Array:
    offsets, keys, values = _entries(array)
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


def _entries(array: pa.Array) -> tuple[Offsets, pa.Array, pa.Array]:
    offsets = _offsets(array)
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - start, array.keys[start:end], array.items[start:end]


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


def _free(array: pa.Array, shape: Shape) -> pa.Array:
    """Encode a column for `yson`: bytes are YSON already and made binary, the rest is plain.

    Structs and maps become YSON maps.
    """
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        given = array.to_pylist()
        made = [_binary_yson(row, value, shape) for row, value in enumerate(given)]
        if any(one is not value for one, value in zip(made, given, strict=True)):
            array = pa.array(made, BYTES)
        return array.cast(BYTES)
    return _plain(array, shape)


def _binary_yson(row: int, value: bytes, shape: Shape) -> bytes:
    if value.lstrip().startswith(b"<"):
        raise UnfitValueError(row, "a column value cannot have attributes at its top")
    try:
        binary = to_binary(value)
    except UnfitYsonError as error:
        raise UnfitValueError(row, str(error)) from error
    return comparable(binary) if shape is Shape.KEY else binary


def _plain(array: pa.Array, shape: Shape) -> pa.Array:  # noqa: PLR0911 - a line per kind
    kind = array.type
    if pa.types.is_null(kind):
        return constant(b"#", len(array))
    if array.null_count:
        return _around_nulls(array, lambda present: _plain(present, shape))
    if pa.types.is_integer(kind):
        return integers(array)
    if pa.types.is_floating(kind):
        return doubles(array, canonical=shape is Shape.KEY)
    if pa.types.is_boolean(kind):
        return booleans(array)
    if pa.types.is_map(kind):
        return _plain_map(array, shape)
    if pa.types.is_struct(kind):
        return join(constant(b"{", len(array)), *_plain_members(array, shape), b"}")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = _offsets(array)
        items = _plain(array.values[int(offsets[0]) : int(offsets[-1])], shape)
        return join(b"[", spans(join(items, b";"), offsets - offsets[0]), b"]")
    return strings(array)


def _plain_map(array: pa.Array, shape: Shape) -> pa.Array:
    offsets, keys, values = _entries(array)
    _require_distinct(keys, offsets)
    return join(b"{", spans(join(strings(keys), b"=", _plain(values, shape), b";"), offsets), b"}")


def _require_distinct(keys: pa.Array, offsets: Offsets) -> None:
    """Check that no map has a key twice: who reads the YSON would see one of the two values."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = to_numpy(keys.dictionary_encode().indices).astype(np.int64)
    _, first, count = np.unique(
        rows * (len(keys) + 1) + codes, return_index=True, return_counts=True
    )
    repeated = first[count > 1]
    if len(repeated):
        raise UnfitValueError(int(rows[repeated.min()]), REPEATED_KEY)


def _plain_members(array: pa.Array, shape: Shape) -> Iterable[pa.Array | bytes]:
    for place, field in enumerate(array.type):
        yield string_literal(field.name.encode()) + b"="
        yield _plain(array.field(place), shape)
        yield b";"
