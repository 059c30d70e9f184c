"""Pulled rows as plain Arrow arrays, by way of the C parser and Python objects.

It handles every type; most rows take the faster way of `yson_scan`. Plain arrays
hold numbers and bytes as the cluster counts them: `reading` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import bindings, types
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.arrow_types import NESTED_VALUE, parsed_type_of, variant_field
from yt_exactly_once.codec.buffers import concatenated
from yt_exactly_once.codec.room import MOST_COLUMNS, Room
from yt_exactly_once.codec.values import UnfitValueError

Shaper = Callable[[Any], Any]


def parse_rows(
    rows: bytes, wanted: Mapping[str, types.LogicalType]
) -> dict[str, pa.Array | UnfitValueError]:
    """Parse rows into arrays, or into what is wrong with a column; raise `ValueError` if they are no maps.

    Args:
        wanted: types of the columns; a row without one of them counts as null.
    """
    room = Room(len(rows))
    columns = {name: _Column(name.encode(), logical, room) for name, logical in wanted.items()}
    count = 0
    for part in bindings.parse_items(rows):
        if isinstance(part, memoryview):
            cells = _cells(part, frozenset(name.encode() for name in wanted))
            for column in columns.values():
                column.add_long(cells.get(column.key), count)
            count += 1
            continue
        if not all(isinstance(row, dict) for row in part):
            raise ValueError(_NO_MAP)
        filled = min(len(part), sum(map(len, part)) // max(1, len(wanted)))
        for column in columns.values():
            column.add(part, count, filled)
        count += len(part)
    return {name: columns.pop(name).array() for name in wanted}


def parsed_values(rows: bytes, row: int, names: Sequence[str]) -> list[Any]:
    """Return values of one row as they are parsed, None where it has none."""
    keys = [name.encode() for name in names]
    count = 0
    for part in bindings.parse_items(rows):
        if isinstance(part, memoryview):
            if count == row:
                cells = _cells(part, frozenset(keys))
                return [_one_parsed(cells[key]) if key in cells else None for key in keys]
            count += 1
        elif row < count + len(part):
            return [part[row - count].get(key) for key in keys]
        else:
            count += len(part)
    raise AssertionError("there are fewer rows")


class _Column:
    """The values of one column, as far as the rows have been read."""

    def __init__(self, key: bytes, logical: types.LogicalType, room: Room) -> None:
        self.key = key
        self._logical = logical
        self._shape, self._kind = _or_null(logical), parsed_type_of(logical)
        self._room = room
        self._found: list[pa.Array] = []
        self._unfit: UnfitValueError | None = None

    def add(self, rows: list[Any], count: int, filled: int) -> None:
        """Take the values of some rows; so many have been read before, and so many have their columns."""
        if self._unfit is None:
            self._keep(lambda: self._collected([row.get(self.key) for row in rows], filled), count)

    def add_long(self, raw: memoryview | None, count: int) -> None:
        """Take the value of one row."""
        if self._unfit is None:
            self._keep(lambda: _one(raw, self._logical, self._room), count)

    def array(self) -> pa.Array | UnfitValueError:
        """Return all values, or what is wrong with one."""
        return self._unfit or concatenated(self._found)

    def _keep(self, read: Callable[[], pa.Array], count: int) -> None:
        try:
            self._found.append(read())
        except UnfitValueError as error:
            self._unfit = error.within(count + error.row, "")
            self._found.clear()

    def _collected(self, values: list[Any], filled: int) -> pa.Array:
        array = _array(values, self._shape, self._kind)
        self._room.take(array, filled)
        return array


def _array(values: list[Any], shape: Shaper, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values if shape is _same else map(shape, values), kind)
    except _MISFITS:
        # Not chained: Arrow's messages quote the value.
        raise UnfitValueError(_first_misfit(values, shape, kind), _MISFIT) from None


def _one(raw: memoryview | None, logical: types.LogicalType, room: Room) -> pa.Array:
    """Return one value of a long row as an array, without an object for each of its parts."""
    kind = parsed_type_of(logical)
    bare = types.untagged(logical)
    if raw is None:
        return pa.nulls(1, kind)
    if len(raw) <= bindings.LONG or raw[0] not in yson.WITH_PARTS:
        is_text = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if len(raw) > _LONG_TEXT and not is_text:
            # Arrow would quote the text in its message.
            raise UnfitValueError(0, _MISFIT)
        return _array([bindings.parse_item(raw)], _or_null(logical), kind)
    if isinstance(bare, types.OptionalType) and not types.is_nested_optional(bare):
        return _one(raw, bare.item, room)
    if isinstance(bare, types.SimpleType) and bare.scalar.holds_yson:
        return pa.array([bytes(raw[: yson.after(raw, 0)])], kind)
    if isinstance(bare, types.ListType | types.DictType):
        return _list_of_one(raw, bare, kind, room)
    return pa.StructArray.from_arrays(_fields(raw, bare, room), fields=list(kind))


def _fields(raw: memoryview, logical: types.LogicalType, room: Room) -> list[pa.Array]:
    """Return an array of one value for each field of the struct that represents the value."""
    match logical:
        case types.StructType(members):
            cells = _cells(raw, frozenset(one.name.encode() for one in members))
            return [_one(cells.get(one.name.encode()), one.type, room) for one in members]
        case types.OptionalType(item):
            return [_one(part, item, room) for part in _few(raw, 1)]
        case types.TupleType(elements):
            found = zip(_few(raw, len(elements)), elements, strict=True)
            return [_one(part, element, room) for part, element in found]
        case types.VariantType(alternatives):
            tag, part = _few(raw, 2)
            return _alternatives(_one_parsed(tag), part, alternatives, room)
    raise UnfitValueError(0, _MISFIT)


def _one_parsed(raw: memoryview) -> Any:
    """Parse a value without parts; of another one None is returned."""
    return None if raw[0] in yson.WITH_PARTS else bindings.parse_item(raw)


def _alternatives(
    tag: Any, raw: memoryview, alternatives: Sequence[types.Member], room: Room
) -> list[pa.Array]:
    """Return an array of one value for each alternative, null where it is not chosen."""
    parts = []
    for place, one in enumerate(alternatives):
        chosen = tag in (place, one.name.encode())
        part = _one(raw if chosen else None, one.type, room)
        if types.is_nullable(one.type):
            # So that "not chosen" and "chosen, and null" differ.
            part = pa.StructArray.from_arrays([part], [NESTED_VALUE], mask=pa.array([not chosen]))
        parts.append(part)
    if not any(tag in (place, one.name.encode()) for place, one in enumerate(alternatives)):
        raise UnfitValueError(0, _MISFIT)
    return parts


def _items(raw: memoryview, item: types.LogicalType, room: Room) -> pa.Array:
    shape, kind = _or_null(item), parsed_type_of(item)
    found = []
    for part in bindings.parse_items(_inside(raw)):
        if isinstance(part, memoryview):
            found.append(_one(part, item, room))
        else:
            found.append(_array(part, shape, kind))
            room.take(found[-1])
    return concatenated(found)


def _few(raw: memoryview, count: int) -> list[memoryview]:
    """Return the items of a list of a certain length, not parsed."""
    found = list(islice(bindings.raw_items(_inside(raw)), count + 1))
    if len(found) != count:
        raise UnfitValueError(0, _MISFIT)
    return found


def _list_of_one(
    raw: memoryview, logical: types.ListType | types.DictType, kind: pa.DataType, room: Room
) -> pa.Array:
    if isinstance(logical, types.ListType):
        items = _items(raw, logical.item, room)
    else:
        pairs = _items(raw, types.TupleType((logical.key, logical.value)), room)
        if pairs.null_count or pairs.field(0).null_count:
            raise UnfitValueError(0, _MISFIT)
        fields = [kind.key_field, kind.item_field]
        items = pa.StructArray.from_arrays(pairs.flatten(), fields=fields)
    edges = pa.py_buffer(np.array([0, len(items)], np.int32))
    return pa.Array.from_buffers(kind, 1, [None, edges], children=[items])


def _inside(raw: memoryview) -> memoryview:
    if raw[0] != yson.OPEN_LIST:
        raise UnfitValueError(0, _MISFIT)
    return raw[1 : _end(raw) - 1]


def _end(raw: memoryview) -> int:
    """Return where a list or a map ends, before the separator."""
    return len(raw) - (raw[-1] == yson.SEMICOLON)


def _cells(row: memoryview, wanted: frozenset[bytes]) -> dict[bytes, memoryview]:
    """Return values of a long map that is known to be YSON, not parsed.

    Raises:
        ValueError: this is no map, has text for keys, or more of them than a table may have columns.
    """
    place, count, end = 1, 0, _end(row) - 1
    if row[0] != yson.OPEN_MAP:
        raise ValueError(_NO_MAP)
    found = {}
    while place < end:
        count += 1
        if row[place] != yson.STRING or count > MOST_COLUMNS:
            raise ValueError("a key of a long map is text, or there are too many")
        bounds = yson.string_at(row, place)
        start = bounds.stop + 1
        place = yson.after(row, start)
        key = bytes(row[bounds])
        if key in wanted:
            found[key] = row[start:place]
        place += row[place] == yson.SEMICOLON
    return found


_NO_MAP = "a row is not a map"
_LONG_TEXT = 1 << 16
"""Bytes: nothing but a text is longer and has no parts."""
_MISFIT = "it has another type"
_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError, LookupError, AttributeError)


def _first_misfit(values: Sequence[Any], shape: Shaper, target: pa.DataType) -> int:
    for row, value in enumerate(values):
        try:
            pa.array([shape(value)], target)
        except _MISFITS:
            return row
    raise AssertionError("each value fits, and together they do not")


def _shaper(  # noqa: PLR0911 - a case per kind
    logical: types.LogicalType,
) -> Shaper | None:
    """Return what turns a parsed value into one Arrow takes, or None where it is one already."""
    match types.untagged(logical):
        case types.SimpleType() | types.DecimalType() as bare:
            return bare.scalar.from_parsed
        case types.OptionalType(item) as optional if types.is_nested_optional(optional):
            inner = _or_null(item)
            return lambda value: {NESTED_VALUE: inner(value[0])}
        case types.OptionalType(item):
            return _shaper(item)
        case types.ListType(item):
            inner = _or_null(item)
            # Arrow takes lists as they are, and items that need no shape with them.
            return _as_list if inner is _same else lambda value: list(map(inner, _as_list(value)))
        case types.DictType(key, value):
            of_key, of_value = _or_null(key), _or_null(value)
            return lambda pairs: [(of_key(pair[0]), of_value(pair[1])) for pair in pairs]
        case types.StructType(members):
            named = [(one.name, one.name.encode(), _or_null(one.type)) for one in members]
            return lambda value: {name: part(value.get(key)) for name, key, part in named}
        case types.TupleType(elements):
            placed = [(f"_{n}", _or_null(one)) for n, one in enumerate(elements, 1)]
            return lambda value: {
                name: part(one) for (name, part), one in zip(placed, value, strict=True)
            }
        case types.VariantType(alternatives):
            return _variant(alternatives)
        case other:
            raise AssertionError(f"{other} is not a logical type")


def _or_null(logical: types.LogicalType) -> Shaper:
    shape = _shaper(logical)
    if shape is None:
        return _same
    return lambda value: None if value is None else shape(value)


def _same(value: Any) -> Any:
    return value


def _as_list(value: Any) -> Any:
    # Arrow takes a string for a list of numbers, too.
    if not isinstance(value, list):
        raise TypeError
    return value


def _variant(alternatives: Sequence[types.Member]) -> Shaper:
    by_tag: dict[Any, tuple[str, Shaper]] = {}
    for index, one in enumerate(alternatives):
        inner = _or_null(one.type)
        if types.is_nullable(one.type):
            inner = _chosen(inner)
        by_tag[index] = by_tag[one.name.encode()] = (variant_field(one), inner)

    def shape(value: list[Any]) -> dict[str, Any]:
        name, inner = by_tag[value[0]]
        return {name: inner(value[1])}

    return shape


def _chosen(inner: Shaper) -> Shaper:
    """Mark an alternative that may be null as chosen."""
    return lambda value: {NESTED_VALUE: inner(value)}
