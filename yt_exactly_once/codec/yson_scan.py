"""Pulled rows of simple columns as plain Arrow arrays, without a Python object per value.

The cluster writes every row of a pull alike: the same keys in the same order, in binary YSON. The first row
shows the layout. All rows are then read together, one column at a time on whole arrays, and every byte is
accounted for. Rows with another layout are left to the general parser: a scan is complete, or there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yt_exactly_once.codec.arrow_types import parsed_type_of
from yt_exactly_once.codec.buffers import from_numpy
from yt_exactly_once.codec.types import plain_scalar_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yt_exactly_once.codec.types import LogicalType

_STRING, _INT64, _DOUBLE, _FALSE, _TRUE, _UINT64 = range(1, 7)
_ENTITY, _OPEN, _CLOSE, _EQUALS, _SEMICOLON = b"#{}=;"
_LONGEST_SCALAR = 11  # a marker and a varint of ten bytes
_SIMPLE = (_STRING, _INT64, _DOUBLE, _FALSE, _TRUE, _UINT64, _ENTITY)
_MARKERS = {
    pa.binary(): _STRING,
    pa.int64(): _INT64,
    pa.uint64(): _UINT64,
    pa.float64(): _DOUBLE,
}

Numbers = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class _UnevenError(Exception):
    """The rows are not laid out alike, or not in the way this module knows."""


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
    if not rows or None in map(plain_scalar_of, wanted.values()):
        return None
    types = {name: parsed_type_of(logical) for name, logical in wanted.items()}
    try:
        layout = _first_row(rows)
        if not types.keys() <= set(layout.names):
            return None
        return ScannedRows(_Scan(rows, layout).columns(types))
    except (_UnevenError, IndexError, UnicodeDecodeError):
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
        _UnevenError: the row is no map of simple values in binary YSON.
    """
    names: list[str] = []
    literals: list[bytes] = []
    place, trailing = 1, False
    _require(rows[0] == _OPEN)
    while rows[place] != _CLOSE:
        _require(trailing or not names)
        start, place = place, _after_value(rows, place, only_string=True)
        _require(rows[place] == _EQUALS)
        size = 1
        while rows[start + size] & 0x80:
            size += 1
        literals.append(rows[start : place + 1])
        names.append(rows[start + size + 1 : place].decode())
        place = _after_value(rows, place + 1)
        trailing = rows[place] == _SEMICOLON
        place += trailing
    _require(bool(names) and len(set(names)) == len(names))
    return _Layout(tuple(names), tuple(literals), trailing)


def _after_value(rows: bytes, place: int, *, only_string: bool = False) -> int:
    marker = rows[place]
    _require(marker == _STRING or not only_string)
    if marker in (_ENTITY, _FALSE, _TRUE):
        return place + 1
    if marker == _DOUBLE:
        return place + 9
    _require(marker in (_STRING, _INT64, _UINT64))
    number, shift = 0, 0
    while True:
        place += 1
        number |= (rows[place] & 0x7F) << shift
        shift += 7
        if rows[place] < 0x80:  # noqa: PLR2004 - the flag of a further byte
            return place + 1 + (number >> 1 if marker == _STRING else 0)


def _require(condition: bool) -> None:
    if not condition:
        raise _UnevenError


class _Scan:
    """All rows at once; `places` is where each row has been read to."""

    def __init__(self, rows: bytes, layout: _Layout) -> None:
        self._size = len(rows)
        self._names = layout.names
        first, *others = layout.literals
        self._keys = [first, *(b";" + key for key in others)]
        self._end = b";}" if layout.trailing else b"}"
        # Windows reach past the end, by a key and a value at most.
        padding = bytes(max(map(len, self._keys)) + _LONGEST_SCALAR)
        self._data: Bytes = np.frombuffer(rows + padding, np.uint8)
        self._starts = self._find_rows()
        self._places = self._starts + 1

    def columns(self, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Read all columns; raises `_UnevenError` where the rows differ in their layout."""
        found = {}
        for name, key in zip(self._names, self._keys, strict=True):
            window = self._window(len(key) + _LONGEST_SCALAR)
            _require(_all_equal(window[:, : len(key)], key))
            self._places += len(key)
            value = window[:, len(key) :]
            if name in types:
                found[name] = self._value(value, types[name])
            else:
                self._skip(value)
        _require(_all_equal(self._window(len(self._end)), self._end))
        self._require_no_gaps(self._places + len(self._end))
        return found

    def _find_rows(self) -> Places:
        """Find where rows may start: strings may look alike, which later shows as a gap."""
        opening = b"{" + self._keys[0]
        starts = np.flatnonzero(self._data[: self._size] == _OPEN)
        follows = (self._data[starts - 1] == _SEMICOLON) & (self._data[starts - 2] == _CLOSE)
        starts = starts[follows | (starts == 0)]
        for offset in range(1, len(opening)):
            starts = starts[self._data[starts + offset] == opening[offset]]
        return np.asarray(starts, np.int64)

    def _require_no_gaps(self, ends: Places) -> None:
        separated = self._data[ends[:-1]] == _SEMICOLON
        _require(bool(separated.all()) and np.array_equal(ends[:-1] + 1, self._starts[1:]))
        last = int(ends[-1])
        _require(last == self._size or (last + 1 == self._size and self._data[last] == _SEMICOLON))

    def _window(self, width: int) -> Bytes:
        """Copy the next bytes of each row."""
        return np.lib.stride_tricks.sliding_window_view(self._data, width)[self._places]

    def _advance(self, places: Places) -> None:
        _require(int(places.max()) < self._size)
        self._places = places

    def _value(self, window: Bytes, kind: pa.DataType) -> pa.Array:
        markers = window[:, 0]
        null = markers == _ENTITY
        marker = _MARKERS.get(kind)
        if marker is None:
            return self._flag(markers, null, kind)
        _require(bool((null | (markers == marker)).all()))
        if marker == _DOUBLE:
            self._advance(self._places + np.where(null, 1, 9))
            return from_numpy(window[:, 1:9].copy().view("<f8")[:, 0], null)
        numbers, sizes = _varints(window, ~null)
        if marker == _STRING:
            return self._strings(numbers, sizes, null)
        self._advance(self._places + np.where(null, 1, 1 + sizes))
        return from_numpy(numbers if marker == _UINT64 else _unzigzag(numbers), null)

    def _flag(self, markers: Bytes, null: Mask, kind: pa.DataType) -> pa.Array:
        """Read what is all marker: booleans, and columns that hold nothing."""
        true = markers == _TRUE
        known = null if pa.types.is_null(kind) else null | true | (markers == _FALSE)
        _require(bool(known.all()))
        self._advance(self._places + 1)
        return pa.nulls(len(null)) if pa.types.is_null(kind) else from_numpy(true, null)

    def _strings(self, numbers: Numbers, sizes: Places, null: Mask) -> pa.Array:
        starts = self._places + np.where(null, 1, 1 + sizes)
        lengths = np.where(null, 0, _unzigzag(numbers))
        _require(bool(((lengths >= 0) & (lengths <= self._size - starts)).all()))
        self._advance(starts + lengths)
        # One array over all bytes, values and what lies between in turn; then the values alone.
        bounds = np.empty(2 * len(starts) + 1, np.int64)
        bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, self._places, self._size
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        turns = pa.Array.from_buffers(pa.large_binary(), 2 * len(starts), buffers)
        return turns.take(from_numpy(np.arange(0, 2 * len(starts), 2), null)).cast(pa.binary())

    def _skip(self, window: Bytes) -> None:
        """Step over simple values of whatever type."""
        markers = window[:, 0]
        _require(bool(np.isin(markers, _SIMPLE).all()))
        sizes = np.where(markers == _DOUBLE, 9, 1)
        sized = np.flatnonzero(np.isin(markers, (_STRING, _INT64, _UINT64)))
        numbers, varint_sizes = _varints(window[sized], np.ones(len(sized), np.bool_))
        lengths = np.where(markers[sized] == _STRING, _unzigzag(numbers), 0)
        _require(bool(((lengths >= 0) & (lengths <= self._size)).all()))
        sizes[sized] += varint_sizes + lengths
        self._advance(self._places + sizes)


def _all_equal(window: Bytes, literal: bytes) -> bool:
    return bool((window == np.frombuffer(literal, np.uint8)).all())


def _varints(window: Bytes, needed: Mask) -> tuple[Numbers, Places]:
    """Decode the varint after the marker; return the numbers and how many bytes they took.

    Where none is needed the result means nothing.
    """
    more = window[:, 1:_LONGEST_SCALAR] >= 0x80  # noqa: PLR2004 - the flag of a further byte
    sizes = np.argmin(more, axis=1) + 1
    _require(not bool((more[np.arange(len(more)), sizes - 1] & needed).any()))
    numbers = np.zeros(len(window), np.uint64)
    for index in range(int(sizes.max(initial=0))):
        group = np.where(sizes > index, window[:, 1 + index] & np.uint8(0x7F), 0)
        numbers |= group.astype(np.uint64) << np.uint64(7 * index)
    return numbers, sizes


def _unzigzag(numbers: Numbers) -> npt.NDArray[np.int64]:
    one = np.uint64(1)
    return ((numbers >> one) ^ (~(numbers & one) + one)).view(np.int64)
