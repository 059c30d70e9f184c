"""Pulled rows as plain Arrow arrays, without a Python object per value.

The cluster writes every row of a pull alike: the same keys in the same order, in binary YSON. The first row
shows the layout. All rows are then read together, one column at a time on whole arrays, and every byte is
accounted for. Rows with another layout are left to the general parser: a scan is complete, or there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec.arrow_types import parsed_type_of
from yt_exactly_once.codec.buffers import from_numpy
from yt_exactly_once.codec.types import plain_scalar_of
from yt_exactly_once.codec.yson_composites import (
    CLOSE_LIST,
    CLOSE_MAP,
    DOUBLE,
    ENTITY,
    EQUALS,
    FALSE,
    INT64,
    MARKERS,
    OPEN_LIST,
    OPEN_MAP,
    SEMICOLON,
    STRING,
    TRUE,
    UINT64,
    Bytes,
    Composites,
    Mask,
    Numbers,
    Places,
    UnevenError,
    require,
    scan,
    strings,
    unzigzag,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yt_exactly_once.codec.types import LogicalType

_LONGEST_SCALAR = 11  # a marker and a varint of ten bytes
_SIMPLE = (STRING, INT64, DOUBLE, FALSE, TRUE, UINT64, ENTITY)


class ScannedRows:
    """The columns of a pull that was laid out evenly."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self._columns = columns

    def column(self, name: str, logical: LogicalType) -> pa.Array:
        """Return the plain array of one column that was asked for when scanning."""
        assert self._columns[name].type == parsed_type_of(logical)
        return self._columns[name]


def scan_rows(rows: bytes, wanted: Mapping[str, LogicalType]) -> ScannedRows | None:
    """Scan the columns wanted, or return None where rows must be parsed one by one."""
    if not rows:
        return None
    try:
        layout = _first_row(rows)
        if not wanted.keys() <= set(layout.names):
            return None
        return ScannedRows(_Scan(rows, layout).columns(wanted))
    except (UnevenError, IndexError, UnicodeDecodeError):
        return None


@dataclass(frozen=True)
class _Layout:
    """How a row looks: its keys, and whether a separator follows its last value."""

    names: tuple[str, ...]
    literals: tuple[bytes, ...]
    trailing: bool


def _first_row(rows: bytes) -> _Layout:
    """Read the layout off the first row.

    Raises:
        UnevenError: the row is no map of values in binary YSON.
    """
    names: list[str] = []
    literals: list[bytes] = []
    place, trailing = 1, False
    require(rows[0] == OPEN_MAP)
    while rows[place] != CLOSE_MAP:
        require(trailing or not names)
        start, place = place, _after_value(rows, place, only_string=True)
        require(rows[place] == EQUALS)
        size = 1
        while rows[start + size] & 0x80:
            size += 1
        literals.append(rows[start : place + 1])
        names.append(rows[start + size + 1 : place].decode())
        place = _after_any_value(rows, place + 1)
        trailing = rows[place] == SEMICOLON
        place += trailing
    require(bool(names) and len(set(names)) == len(names))
    return _Layout(tuple(names), tuple(literals), trailing)


def _after_any_value(rows: bytes, place: int) -> int:
    """Return where a value ends, with all that is inside of it."""
    depth = 0
    while True:
        marker = rows[place]
        if marker in (OPEN_LIST, OPEN_MAP):
            depth += 1
            place += 1
        elif marker in (CLOSE_LIST, CLOSE_MAP):
            depth -= 1
            place += 1
        elif depth and marker in (SEMICOLON, EQUALS):
            place += 1
            continue
        else:
            place = _after_value(rows, place)
        if depth <= 0:
            return place


def _after_value(rows: bytes, place: int, *, only_string: bool = False) -> int:
    marker = rows[place]
    require(marker == STRING or not only_string)
    if marker in (ENTITY, FALSE, TRUE):
        return place + 1
    if marker == DOUBLE:
        return place + 9
    require(marker in (STRING, INT64, UINT64))
    number, shift = 0, 0
    while True:
        place += 1
        number |= (rows[place] & 0x7F) << shift
        shift += 7
        if rows[place] < 0x80:  # noqa: PLR2004 - the flag of a further byte
            return place + 1 + (number >> 1 if marker == STRING else 0)


class _Scan:
    """All rows at once; `places` is where each row has been read to."""

    def __init__(self, rows: bytes, layout: _Layout) -> None:
        self._size = len(rows)
        self._names = layout.names
        first, *others = layout.literals
        self._keys = [first, *(b";" + key for key in others)]
        self._end = b";}" if layout.trailing else b"}"
        self._rows = rows
        self._data: Bytes = np.frombuffer(rows, np.uint8)
        self._starts = self._find_rows()
        self._places = self._starts + 1

    def columns(self, wanted: Mapping[str, LogicalType]) -> dict[str, pa.Array]:
        """Read all columns; raises `UnevenError` where the rows differ in their layout."""
        found = {}
        for name, key in zip(self._names, self._keys, strict=True):
            window = self._window(len(key) + _LONGEST_SCALAR)
            require(_all_equal(window[:, : len(key)], key))
            self._places += len(key)
            value = window[:, len(key) :]
            if name not in wanted:
                self._skip(value)
            elif plain_scalar_of(wanted[name]) is None:
                found[name] = self._composite(wanted[name])
            else:
                found[name] = self._value(value, parsed_type_of(wanted[name]))
        require(_all_equal(self._window(len(self._end)), self._end))
        self._require_no_gaps(self._places + len(self._end))
        return found

    def _find_rows(self) -> Places:
        """Find where rows may start: strings may look alike, which later shows as a gap."""
        opening = b"{" + self._keys[0]
        starts = np.flatnonzero(self._data[: self._size] == OPEN_MAP)
        follows = (self._data[starts - 1] == SEMICOLON) & (self._data[starts - 2] == CLOSE_MAP)
        starts = starts[(follows | (starts == 0)) & (starts + len(opening) <= self._size)]
        for offset in range(1, len(opening)):
            starts = starts[self._data[starts + offset] == opening[offset]]
        return np.asarray(starts, np.int64)

    def _require_no_gaps(self, ends: Places) -> None:
        separated = self._data[ends[:-1]] == SEMICOLON
        require(bool(separated.all()) and np.array_equal(ends[:-1] + 1, self._starts[1:]))
        last = int(ends[-1])
        require(last == self._size or (last + 1 == self._size and self._data[last] == SEMICOLON))

    def _window(self, width: int) -> Bytes:
        """Copy the next bytes of each row; behind the last one they are zeros."""
        # The rows are not copied for that: there may be many megabytes of them.
        first = max(self._size - width, 0)
        late = self._places > first
        tail = np.frombuffer(self._rows[first:] + bytes(2 * width), np.uint8)
        if late.all():
            return _windows(tail, width)[self._places - first]
        found = _windows(self._data, width)[np.where(late, 0, self._places)]
        if late.any():
            found[late] = _windows(tail, width)[self._places[late] - first]
        return found

    def _advance(self, places: Places) -> None:
        require(int(places.max()) < self._size)
        self._places = places

    def _value(self, window: Bytes, kind: pa.DataType) -> pa.Array:
        markers = window[:, 0]
        null = markers == ENTITY
        marker = MARKERS.get(kind)
        if marker is None:
            return self._flag(markers, null, kind)
        require(bool((null | (markers == marker)).all()))
        if marker == DOUBLE:
            self._advance(self._places + np.where(null, 1, 9))
            return from_numpy(window[:, 1:9].copy().view("<f8")[:, 0], null)
        numbers, sizes = _varints(window, ~null)
        if marker == STRING:
            return self._strings(numbers, sizes, null)
        self._advance(self._places + np.where(null, 1, 1 + sizes))
        return from_numpy(numbers if marker == UINT64 else unzigzag(numbers), null)

    def _flag(self, markers: Bytes, null: Mask, kind: pa.DataType) -> pa.Array:
        """Read what is all marker: booleans, and columns that hold nothing."""
        true = markers == TRUE
        known = null if pa.types.is_null(kind) else null | true | (markers == FALSE)
        require(bool(known.all()))
        self._advance(self._places + 1)
        return pa.nulls(len(null)) if pa.types.is_null(kind) else from_numpy(true, null)

    def _strings(self, numbers: Numbers, sizes: Places, null: Mask) -> pa.Array:
        starts = self._places + np.where(null, 1, 1 + sizes)
        lengths = np.where(null, 0, unzigzag(numbers))
        require(bool(((lengths >= 0) & (lengths <= self._size - starts)).all()))
        self._advance(starts + lengths)
        return strings(self._data, starts, self._places, null)

    @cached_property
    def _padded(self) -> Bytes:
        return np.frombuffer(self._rows + bytes(_LONGEST_SCALAR), np.uint8)

    def _composite(self, logical: LogicalType) -> pa.Array:
        tokens, found, ends = scan(self._padded, self._size, self._places)
        self._advance(ends)
        return Composites(tokens).array(found, logical)

    def _skip(self, window: Bytes) -> None:
        """Step over values of whatever type."""
        markers = window[:, 0]
        if not np.isin(markers, _SIMPLE).all():
            _, _, ends = scan(self._padded, self._size, self._places)
            self._advance(ends)
            return
        sizes = np.where(markers == DOUBLE, 9, 1)
        sized = np.flatnonzero(np.isin(markers, (STRING, INT64, UINT64)))
        numbers, varint_sizes = _varints(window[sized], np.ones(len(sized), np.bool_))
        lengths = np.where(markers[sized] == STRING, unzigzag(numbers), 0)
        require(bool(((lengths >= 0) & (lengths <= self._size)).all()))
        sizes[sized] += varint_sizes + lengths
        self._advance(self._places + sizes)


def _windows(data: Bytes, width: int) -> Bytes:
    return np.lib.stride_tricks.sliding_window_view(data, width)


def _all_equal(window: Bytes, literal: bytes) -> bool:
    return bool((window == np.frombuffer(literal, np.uint8)).all())


def _varints(window: Bytes, needed: Mask) -> tuple[Numbers, Places]:
    """Decode the varint after the marker; return the numbers and how many bytes they took.

    Where none is needed the result means nothing.
    """
    more = window[:, 1:_LONGEST_SCALAR] >= 0x80  # noqa: PLR2004 - the flag of a further byte
    sizes = np.argmin(more, axis=1) + 1
    require(not bool((more[np.arange(len(more)), sizes - 1] & needed).any()))
    numbers = np.zeros(len(window), np.uint64)
    for index in range(int(sizes.max(initial=0))):
        group = np.where(sizes > index, window[:, 1 + index] & np.uint8(0x7F), 0)
        numbers |= group.astype(np.uint64) << np.uint64(7 * index)
    return numbers, sizes
