"""Rowsets for the wire, written by numpy column by column; see `rowsets` for the format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from yt.yson import YsonBoolean, YsonStringProxy, YsonUint64, get_bytes

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables import yson_modes
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.values import dump_yson, load_yson
from yt_exactly_once.local.tables.vectors import StoredRows

_PADDING = tuple(bytes(size) for size in range(8))
_MISSING_ROW = (1 << 64) - 1
_KIND_SHIFT, _LENGTH_SHIFT = np.uint64(16), np.uint64(32)
_TYPES = {kinds.INT64: np.int64, kinds.UINT64: np.uint64, kinds.DOUBLE: np.float64}
_HEADER = struct.Struct("<HBBI")


def encode(rows: Sequence[dict[str, Any] | None], columns: Sequence[Column]) -> bytes:
    """Write rows by name of column, `None` for one not found; or stored rows with these columns."""
    if isinstance(rows, StoredRows):
        present: Sequence[Any] = rows
        cells = [
            _Cells(number, column, *_of_array(column, array))
            for number, (column, array) in enumerate(zip(columns, rows.arrays, strict=True))
        ]
    else:
        present = [row for row in rows if row is not None]
        cells = [
            _Cells(number, column, *_of_values(column, [row.get(column.name) for row in present]))
            for number, column in enumerate(columns)
        ]
    lengths = np.ones(len(present), np.int64)
    for each in cells:
        lengths += each.words
    if len(present) == len(rows):
        starts = 1 + np.cumsum(lengths) - lengths
        total = 1 + int(lengths.sum())
        words = np.zeros(total, np.uint64)
    else:
        # A missing row is one word.
        is_there = np.array([row is not None for row in rows], bool)
        spread = np.ones(len(rows), np.int64)
        spread[is_there] = lengths
        begins = 1 + np.cumsum(spread) - spread
        words = np.zeros(1 + int(spread.sum()), np.uint64)
        words[begins[~is_there]] = _MISSING_ROW
        starts = begins[is_there]
    words[0] = len(rows)
    words[starts] = len(columns)
    at = starts + 1
    for each in cells:
        each.write(words, at)
        at = at + each.words
    return words.astype("<u8", copy=False).tobytes()


class _Cells:
    """The values of one column.

    Args:
        is_null: where the values are null; None when none is.
        given: the other values: 64-bit words, or strings as padded bytes with their lengths.

    Attributes:
        words: how many words each value takes.
    """

    def __init__(self, number: int, column: Column, is_null: Any, given: Any) -> None:
        self._number = number
        self._kind = kinds.of_column(column)
        self._is_null = is_null
        self._given = given
        self.words = np.ones(len(is_null) if is_null is not None else _count(given), np.int64)
        size: Any = 1
        if isinstance(given, _Texts):
            size = given.sizes
        if is_null is None:
            self.words += size
        else:
            self.words[~is_null] += size

    def write(self, words: Any, at: Any) -> None:
        """Write the values; `at` is where their headers are."""
        header = np.uint64(self._number) | np.uint64(self._kind) << _KIND_SHIFT
        there = at
        if self._is_null is not None:
            words[at[self._is_null]] = np.uint64(self._number | kinds.NULL << 16)
            there = at[~self._is_null]
        if isinstance(self._given, _Texts):
            words[there] = header | self._given.lengths.astype(np.uint64) << _LENGTH_SHIFT
            self._given.write(words, there + 1)
        else:
            words[there] = header
            words[there + 1] = self._given


class _Texts:
    """Strings, none of them null.

    Args:
        lengths: bytes of each.
        padded: the bytes of all, each padded to whole words.
    """

    def __init__(self, lengths: Any, padded: Any) -> None:
        self.lengths = lengths
        self.sizes = (lengths + 7) >> 3
        self._padded = padded

    def write(self, words: Any, at: Any) -> None:
        """Write the bytes; `at` is where each string begins."""
        total = int(self.sizes.sum())
        if not total:
            return
        ends = np.cumsum(self.sizes)
        positions = np.arange(total) + np.repeat(at - (ends - self.sizes), self.sizes)
        words[positions] = np.frombuffer(self._padded, "<u8", total)


def _count(given: Any) -> int:
    return len(given.lengths) if isinstance(given, _Texts) else len(given)


def _of_values(column: Column, values: list[Any]) -> tuple[Any, Any]:
    """Return where values are null, and the others as they are written."""
    kind = kinds.of_column(column)
    if kind == kinds.NULL:
        return np.ones(len(values), bool), np.empty(0, np.uint64)
    is_null = np.array([value is None for value in values], bool) if None in values else None
    given = values if is_null is None else [value for value in values if value is not None]
    if kind not in kinds.STRING_LIKE:
        return is_null, _numbers(kind, given, column.name)
    return is_null, _of_texts(texts(column, given))


def _of_texts(found: list[bytes]) -> _Texts:
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    padded = [text if not len(text) & 7 else text + _PADDING[8 - (len(text) & 7)] for text in found]
    return _Texts(lengths, b"".join(padded))


def _of_array(column: Column, array: Any) -> tuple[Any, Any]:
    """Return where stored values are null, and the others as they are written."""
    kind = kinds.of_column(column)
    if kind == kinds.NULL:
        return np.ones(len(array), bool), np.empty(0, np.uint64)
    is_null = None
    if array.null_count:
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    if kind == kinds.BOOLEAN:
        return is_null, array.to_numpy(zero_copy_only=False).astype(np.uint64)
    if kind not in kinds.STRING_LIKE:
        return is_null, array.to_numpy().view(np.uint64)
    if kind == kinds.COMPOSITE and yson_modes.to_positional(column.type_v3) is not None:
        return is_null, _of_texts(texts(column, [load_yson(raw) for raw in array.to_pylist()]))
    lengths = pc.binary_length(array).to_numpy().astype(np.int64)
    padding = pa.array(_PADDING, pa.binary()).take(pa.array(-lengths & 7))
    padded = pc.binary_join_element_wise(array, padding, b"")
    return is_null, _Texts(lengths, padded.buffers()[2] or b"")


def texts(column: Column, values: Sequence[Any]) -> list[bytes]:
    """Return values of a column of strings or YSON, none of them null, as bytes."""
    kind = kinds.of_column(column)
    if kind == kinds.COMPOSITE:
        convert = yson_modes.to_positional(column.type_v3)
        if convert is not None:
            values = [convert(value) for value in values]
    return _texts(kind, values)


def _texts(kind: int, values: Sequence[Any]) -> list[bytes]:
    if kind != kinds.STRING:
        return [dump_yson(value) for value in values]
    return [value if type(value) is bytes else _bytes(value) for value in values]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(get_bytes(value))


def _numbers(kind: int, values: list[Any], name: str) -> Any:
    try:
        if kind == kinds.BOOLEAN:
            return np.array([bool(value) for value in values], np.uint64)
        return np.array(values, _TYPES[kind]).view(np.uint64)
    except (OverflowError, TypeError, ValueError) as error:
        raise YtError(f'A value of column "{name}" does not have the type of the column') from error


def encode_cell(identifier: int, column: Column, value: Any) -> bytes:
    """Write one value of a column with its header."""
    if value is not None and kinds.of_column(column) == kinds.COMPOSITE:
        convert = yson_modes.to_positional(column.type_v3)
        value = value if convert is None else convert(value)
    return encode_one(identifier, kinds.of_column(column), value)


def encode_one(identifier: int, kind: int, value: Any) -> bytes:
    """Write one value with its header; composites are positional already."""
    if value is None or kind == kinds.NULL:
        return _HEADER.pack(identifier, kinds.NULL, 0, 0)
    if kind in kinds.STRING_LIKE:
        (text,) = _texts(kind, [value])
        return _HEADER.pack(identifier, kind, 0, len(text)) + text + _PADDING[-len(text) % 8]
    return _HEADER.pack(identifier, kind, 0, 0) + _scalar(kind, value)


def _scalar(kind: int, value: Any) -> bytes:
    if kind == kinds.DOUBLE:
        return struct.pack("<d", value)
    if kind == kinds.INT64:
        return struct.pack("<q", value)
    return struct.pack("<Q", int(value))


class LooseWriter:
    """Writes rows of a table block by block; rows may have columns that the schema lacks."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = list(columns)
        self._ids: dict[str, int] = {}
        self._known = {column.name: column for column in columns}

    def encode(self, rows: Sequence[dict[str, Any]]) -> tuple[bytes, list[str]]:
        """Return a rowset, and the names that it is the first one to use."""
        known = len(self._ids)
        for row in rows:
            for name in row:
                self._ids.setdefault(name, len(self._ids))
        new = list(self._ids)[known:]
        names = [column.name for column in self._columns]
        # Ids are positions in the schema as long as rows have its columns, all of them, and no others.
        whole = all(len(row) == len(names) for row in rows)
        if names and whole and list(self._ids) == names:
            return encode(rows, self._columns), new
        pieces = [struct.pack("<Q", len(rows))]
        for row in rows:
            pieces.append(struct.pack("<Q", len(row)))
            pieces += [self._cell(name, value) for name, value in row.items()]
        return b"".join(pieces), new

    def _cell(self, name: str, value: Any) -> bytes:
        column = self._known.get(name)
        if column is not None:
            return encode_cell(self._ids[name], column, value)
        return encode_one(self._ids[name], _kind_of(value), value)


def _kind_of(value: Any) -> int:
    """Return the kind of a value that no schema describes."""
    if getattr(value, "attributes", None):
        return kinds.ANY
    for python, kind in _PYTHON:
        if isinstance(value, python):
            return kind
    return kinds.NULL if value is None else kinds.ANY


_PYTHON: tuple[tuple[Any, int], ...] = (
    (bool | YsonBoolean, kinds.BOOLEAN),
    (YsonUint64, kinds.UINT64),
    (int, kinds.INT64),
    (float, kinds.DOUBLE),
    (str | bytes | YsonStringProxy, kinds.STRING),
)
