"""Pulled rows as Arrow arrays, without a Python object per value.

The cluster writes every row of a pull alike: the same keys in the same order, in binary YSON. The first row
shows the layout. All rows are then read together, one column at a time on whole arrays, and every byte is
accounted for. Rows with another layout are left to the general parser: a scan is complete, or there is none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import types, yson_composites
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.arrow_types import Wanted
from yt_exactly_once.codec.buffers import concatenated
from yt_exactly_once.codec.scalars import Scalar
from yt_exactly_once.codec.values import Room, UnfitValueError
from yt_exactly_once.codec.yson_marks import UnevenError, require
from yt_exactly_once.codec.yson_words import Bytes, Positions, Words

# What is read at once takes many times its bytes, unless rows and tokens are long. Of short ones so many are
# read at once that this stays a small multiple of the pull, or of a small amount.
_FEWEST_BYTES, _WINDOWS = 1 << 16, 8
"""Bytes that are searched for rows: so many, or this part of the pull. A byte takes up to 26."""
_FEWEST_ROWS, _BYTES_PER_ROW = 1 << 13, 64
"""Rows: so many, or one for so many bytes of the pull. A row takes up to 280."""
_FEWEST_TOKENS, _BYTES_PER_TOKEN = 1 << 14, 12
"""Tokens of composite values, likewise. A token takes up to 60."""
_MOST_TOKENS = 1 << 16
"""Of a value of the first row. A longer one is left to the parser."""


def scan_rows(rows: bytes, wanted: Wanted) -> dict[str, pa.Array] | None:
    """Scan rows into arrays of the columns wanted, or return None where they must be parsed."""
    try:
        keys, end = _first_row(rows)
    except (UnevenError, IndexError, ValueError):
        return None
    if not wanted.keys() <= keys.keys():
        return None
    try:
        return _Scan(rows, keys, end, wanted).columns()
    except (UnevenError, IndexError, UnfitValueError, pa.ArrowException):
        return None


def _first_row(rows: bytes) -> tuple[dict[str, bytes], bytes]:
    """Read the layout off the first row: what is before each column's value, and behind the last one.

    Raises:
        UnevenError, ValueError, IndexError: the row is no map of values in binary YSON.
    """
    keys: dict[str, bytes] = {}
    behind = b""
    for start, key, end in yson.members(rows, _MOST_TOKENS):
        name = rows[key].decode()
        require(name not in keys)
        keys[name] = (b";" if keys else b"{") + rows[start : key.stop + 1]
        behind = b";}" if rows[end] == yson.SEMICOLON else b"}"
    require(keys)
    return keys, behind


class _Scan:
    """Rows that lie side by side, some at a time; `positions` is where each of those has been read to."""

    def __init__(self, rows: bytes, keys: dict[str, bytes], end: bytes, wanted: Wanted) -> None:
        self._size = len(rows)
        self._room = Room(self._size)
        self._keys = keys
        self._end = end
        self._wanted = wanted
        self._data: Bytes = np.frombuffer(rows, np.uint8)
        self._words = Words(rows)
        self._starts = self._find_rows()
        # The last row may have no separator.
        self._past = np.append(self._starts[1:], self._size + (rows[-1] != yson.SEMICOLON))
        self._positions = self._limits = self._starts

    def columns(self) -> dict[str, pa.Array]:
        """Read all columns; raises `UnevenError` where the rows differ in their layout."""
        pieces: dict[str, list[pa.Array]] = {name: [] for name in self._wanted}
        first, count = 0, max(_FEWEST_ROWS, self._size // _BYTES_PER_ROW)
        while first < len(self._starts):
            try:
                found = self._piece(slice(first, first + count))
            except yson_composites.CrowdedError:
                require(count > yson_composites.FEW_VALUES)
                count //= 4
                continue
            for name, array in found.items():
                pieces[name].append(array)
            first += count
        return {name: concatenated(pieces.pop(name)) for name in self._wanted}

    def _piece(self, chosen: slice) -> dict[str, pa.Array]:
        past = self._past[chosen]
        self._positions, self._limits = self._starts[chosen].copy(), past - 1
        found = {}
        for name, key in self._keys.items():
            begins, markers = self._words.behind(self._positions, key)
            require(begins.all())
            self._positions += len(key)
            if name in self._wanted:
                found[name] = self._column(markers, *self._wanted[name])
            elif yson_composites.STEPS[markers].any():
                self._composites()
            else:
                self._simple(markers)
        require(self._words.behind(self._positions, self._end)[0].all())
        # There is nothing between the rows.
        require(np.array_equal(self._positions + len(self._end) + 1, past))
        return found

    def _find_rows(self) -> Positions:
        """Find where rows may start: strings may look alike, which shows when a value reaches beyond."""
        opening = next(iter(self._keys.values()))
        found = []
        window = max(_FEWEST_BYTES, self._size // _WINDOWS)
        for begin in range(0, self._size, window):
            starts = np.flatnonzero(self._data[begin : begin + window] == yson.OPEN_MAP) + begin
            follows = (self._data[starts - 1] == yson.SEMICOLON) & (
                self._data[starts - 2] == yson.CLOSE_MAP
            )
            starts = starts[follows | (starts == 0)]
            found.append(starts[self._words.behind(starts, opening)[0]])
        return np.concatenate(found, dtype=np.int64)

    def _advance(self, positions: Positions) -> None:
        """Move behind a value of each row.

        None may reach into the next row: before any bytes are copied, that keeps what is copied disjoint.
        """
        require((positions < self._limits).all())
        self._positions = positions

    def _column(self, marks: Bytes, logical: types.LogicalType, kind: pa.DataType) -> pa.Array:
        bare = types.required(logical)
        if not isinstance(bare, Scalar):
            tokens, found = self._composites()
            return yson_composites.Composites(tokens, self._room).array(found, logical, kind)
        require(not bare.holds_yson)
        require(types.is_nullable(logical) or not (marks == yson.ENTITY).any())
        return bare.from_plain(self._simple(marks).array(bare.parsed), kind)

    def _simple(self, marks: Bytes) -> yson_composites.Tokens:
        """Step over values without parts, and return their tokens."""
        positions = self._positions
        numbers, ends = yson_composites.token_ends(self._words, self._size, marks, positions)
        self._advance(ends)
        return yson_composites.Tokens(self._data, self._words, marks, positions, ends, numbers)

    def _composites(self) -> tuple[yson_composites.Trees, Positions]:
        """Step over values of whatever type, and return their tokens, and which of them begin values."""
        most = max(_FEWEST_TOKENS, self._size // _BYTES_PER_TOKEN)
        tokens, found, ends = yson_composites.scan(
            self._data, self._words, self._positions, self._limits, most
        )
        self._advance(ends)
        return tokens, found
