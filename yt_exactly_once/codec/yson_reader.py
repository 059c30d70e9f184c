"""Pulled rows as Arrow arrays, by way of the C parser and Python objects.

It handles every type and names what does not fit; most rows take the faster way of `yson_scan`. Values are
read type by type on lists of them. What is long has not been parsed: it is alone in its list, and is opened
step by step, without an object for each of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import bindings, types
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.arrow_types import Wanted, struct_fields
from yt_exactly_once.codec.buffers import concatenated, list_array, struct_array
from yt_exactly_once.codec.scalars import Scalar
from yt_exactly_once.codec.values import IS_NULL, Room, UnfitValueError, converted, located
from yt_exactly_once.errors import EncodingError

_POSITION = (b"$tablet_index", b"$row_index")
_LONG_TEXT = 1 << 16
"""Bytes: nothing but a text is longer and has no parts."""
_MISFIT = "it has another type"
_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError, LookupError, AttributeError)


def parse_rows(rows: bytes, wanted: Wanted) -> dict[str, pa.Array]:
    """Parse rows into arrays; a row without one of the columns counts as null.

    Raises:
        EncodingError: a value does not fit.
        ValueError: these are no maps in YSON.
    """
    room = Room(len(rows))
    found: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    keys = frozenset((*(name.encode() for name in wanted), *_POSITION))
    for chunk in bindings.parse_items(rows):
        some = [_cells(chunk, keys)] if isinstance(chunk, memoryview) else chunk
        if not all(isinstance(row, dict) for row in some):
            raise ValueError("a row is not a map")
        lacking = max(0, len(some) - sum(map(len, some)) // max(1, len(wanted)))
        for name, (logical, kind) in wanted.items():
            try:
                room.take(lacking, kind)
                values = [row.get(name.encode()) for row in some]
                found[name].append(_column(values, logical, kind, room))
            except UnfitValueError as error:
                partition, row = (_parsed(some[error.row].get(key)) for key in _POSITION)
                raise EncodingError(
                    f"A value of column {name}{error.path} cannot be read as {kind}: {error.problem}",
                    remedy="Compare the table's schema with the one the query started with",
                    column=name,
                    source_partition=partition,
                    source_row=row,
                ) from error
    return {name: concatenated(found.pop(name)) for name in wanted}


def _parsed(value: Any) -> Any:
    """Return a value without parts; of another one that was not parsed, None."""
    if not isinstance(value, memoryview):
        return value
    return None if value[0] in yson.OPENING else bindings.parse_item(value)


def _column(
    values: list[Any], logical: types.LogicalType, kind: pa.DataType, room: Room
) -> pa.Array:
    """Return values of a type as the Arrow type asked for."""
    bare = types.required(logical)
    if values and isinstance(values[0], memoryview):
        values = [_opened(values[0], bare)]
    missing = [value is None for value in values]
    if any(missing) and not types.is_nullable(logical):
        raise UnfitValueError(missing.index(True), IS_NULL)
    if isinstance(bare, Scalar):
        return _simple(values, bare, kind)
    null = np.array(missing, np.bool_)
    present = [value for value in values if value is not None] if any(missing) else values
    with located(rows=np.flatnonzero(~null)):
        match bare:
            case types.ListType(item):
                items, lengths = _items(present, item, kind.value_type, room)
                return list_array(kind, null, lengths, items)
            case types.DictType(key, value):
                pair = types.StructType(types.numbered((key, value)), named=False)
                fields = pa.struct([kind.key_field, kind.item_field])
                pairs, lengths = _items(present, pair, fields, room)
                if pairs.field(0).null_count:
                    raise UnfitValueError(0, _MISFIT)
                return list_array(kind, null, lengths, pairs)
        children = []
        members = zip(_fields(present, bare), struct_fields(bare).values(), kind, strict=True)
        for member, inner, field in members:
            with located(f".{field.name}"):
                children.append(_column_of(member, inner, field.type, room))
        return struct_array(kind, null, children)


def _column_of(
    values: list[Any], logical: types.LogicalType, kind: pa.DataType, room: Room
) -> pa.Array:
    array = _column(values, logical, kind, room)
    room.take(array.null_count, kind)
    return array


def _opened(raw: memoryview, bare: types.LogicalType) -> Any:
    """Return a value, parsed unless it has parts and is long."""
    if len(raw) <= bindings.LONG or raw[0] not in yson.OPENING:
        is_text = isinstance(bare, Scalar) and pa.types.is_binary(bare.parsed)
        if len(raw) > _LONG_TEXT and not is_text:
            # Arrow would quote the text in its message.
            raise UnfitValueError(0, _MISFIT)
        return bindings.parse_item(raw)
    if not isinstance(bare, Scalar):
        # It may have its separator.
        return raw[: len(raw) - (raw[-1] == yson.SEMICOLON)]
    if not bare.holds_yson:
        raise UnfitValueError(0, _MISFIT)
    return raw[: yson.after(raw, 0)]


def _simple(values: list[Any], scalar: Scalar, kind: pa.DataType) -> pa.Array:
    def plain(some: list[Any]) -> pa.Array:
        convert = scalar.from_parsed
        if convert is not None:
            some = [None if value is None else convert(value) for value in some]
        return pa.array(some, scalar.parsed)

    return scalar.from_plain(converted(values, plain, _MISFIT, _MISFITS), kind)


def _require(values: list[Any], kind: type[Sized], count: int | None = None) -> None:
    """Check that values are lists or maps, of so many items."""
    for row, value in enumerate(values):
        if not isinstance(value, kind) or (count is not None and len(value) != count):
            raise UnfitValueError(row, _MISFIT)


def _items(
    lists: list[Any], item: types.LogicalType, kind: pa.DataType, room: Room
) -> tuple[pa.Array, Any]:
    """Return the items of lists, one after the other, and how many each list has."""
    if lists and isinstance(lists[0], memoryview):
        parsed = bindings.parse_items(_inside(lists[0]))
        chunks = ([chunk] if isinstance(chunk, memoryview) else chunk for chunk in parsed)
        with located("[]", offsets=[0]):
            found = [_column_of(chunk, item, kind, room) for chunk in chunks]
        return concatenated(found), [sum(map(len, found))]
    # Arrow takes a string for a list of numbers, too.
    _require(lists, list)
    lengths = np.array([len(one) for one in lists], np.int64)
    with located("[]", offsets=np.cumsum(lengths) - lengths):
        return _column_of(list(chain.from_iterable(lists)), item, kind, room), lengths


def _fields(values: list[Any], bare: types.LogicalType) -> list[list[Any]]:
    """Return the values of each field of the struct that represents the values."""
    if isinstance(bare, types.StructType) and bare.named:
        keys = [one.name.encode() for one in bare.members]
        maps = [
            _cells(one, frozenset(keys)) if isinstance(one, memoryview) else one for one in values
        ]
        _require(maps, dict)
        return [[one.get(key) for one in maps] for key in keys]
    count = 2 if isinstance(bare, types.VariantType) else len(struct_fields(bare))
    lists = [_few(one, count) if isinstance(one, memoryview) else one for one in values]
    _require(lists, list, count)
    columns = [[one[position] for one in lists] for position in range(count)]
    if isinstance(bare, types.VariantType):
        return _alternatives(columns[0], columns[1], bare.members)
    return columns


def _alternatives(
    tags: list[Any], values: list[Any], members: Sequence[types.Member]
) -> list[list[Any]]:
    """Return the values of each alternative of variants, None where it is not chosen."""
    known = {tag: n for n, one in enumerate(members) for tag in (n, one.name.encode())}
    # So that "not chosen" and "chosen, and null" differ.
    nested = [types.is_nullable(one.type) for one in members]
    found: list[list[Any]] = [[None] * len(tags) for _ in members]
    for row, (tag, value) in enumerate(zip(map(_parsed, tags), values, strict=True)):
        if not isinstance(tag, int | bytes) or tag not in known:
            raise UnfitValueError(row, _MISFIT)
        position = known[tag]
        found[position][row] = [value] if nested[position] else value
    return found


def _few(raw: memoryview, count: int) -> list[memoryview]:
    """Return the items of a list that should have so many, not parsed."""
    return list(islice(bindings.raw_items(_inside(raw)), count + 1))


def _inside(raw: memoryview) -> memoryview:
    if raw[0] != yson.OPEN_LIST:
        raise UnfitValueError(0, _MISFIT)
    return raw[1:-1]


def _cells(row: memoryview, wanted: frozenset[bytes]) -> dict[bytes, memoryview]:
    """Return values of a long map that is known to be YSON, not parsed; raises as `yson.members` does."""
    cells = ((bytes(row[key]), row[key.stop + 1 : end]) for _, key, end in yson.members(row))
    return {name: value for name, value in cells if name in wanted}
