"""Rowsets for the wire, stored rows by numpy column by column; see `rowsets` for the format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
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
_WORD = struct.Struct("<Q")
_MISSING_ROW = _WORD.pack((1 << 64) - 1)
_LENGTH_SHIFT = np.uint64(32)
_HEADER = struct.Struct("<HBBI")
_VERSIONED_HEADER = struct.Struct("<4I")
Writers = Sequence[tuple[Column, Callable[[Any], bytes]]]
_SCALARS = {kinds.DOUBLE: struct.Struct("<d"), kinds.INT64: struct.Struct("<q")}


def encode(rows: Sequence[dict[str, Any] | None], columns: Sequence[Column]) -> bytes:
    """Write rows by name of column, `None` for one not found; or stored rows with these columns."""
    if isinstance(rows, StoredRows):
        return _by_columns(rows, columns)
    writers = [(each.name, writer_of(number, each)) for number, each in enumerate(columns)]
    return joined(
        [None if row is None else [write(row.get(name)) for name, write in writers] for row in rows]
    )


def joined(rows: Sequence[list[bytes] | None]) -> bytes:
    """Put rows of written values behind each other, `None` for one not found."""
    pieces = [_WORD.pack(len(rows))]
    for row in rows:
        pieces.append(_MISSING_ROW if row is None else _WORD.pack(len(row)))
        pieces += row or ()
    return b"".join(pieces)


def _by_columns(rows: StoredRows, columns: Sequence[Column]) -> bytes:
    cells = [
        _Cells(number, column, array)
        for number, (column, array) in enumerate(zip(columns, rows.arrays, strict=True))
    ]
    lengths = np.ones(len(rows), np.int64)
    for each in cells:
        lengths += each.words
    starts = 1 + np.cumsum(lengths) - lengths
    words = np.zeros(1 + int(lengths.sum()), np.uint64)
    words[0] = len(rows)
    words[starts] = len(cells)
    at = starts + 1
    for each in cells:
        each.write(words, at)
        at = at + each.words
    return words.astype("<u8", copy=False).tobytes()


class _Cells:
    """The stored values of one column; `words` says how many words each of them takes."""

    def __init__(self, number: int, column: Column, array: Any) -> None:
        kind = kinds.of_column(column)
        self._headers = np.full(len(array), number | kinds.NULL << 16, np.uint64)
        self.words = np.ones(len(array), np.int64)
        self._valid: Any = slice(None)
        if array.null_count:
            self._valid = array.is_valid().to_numpy(zero_copy_only=False)
            array = array.drop_null()
        self._sizes: Any = None
        header: Any = np.uint64(number | kind << 16)
        if kind in kinds.STRING_LIKE:
            lengths, self._values = _texts_of(column, array)
            self._sizes = (lengths + 7) >> 3
            header = header | lengths.astype(np.uint64) << _LENGTH_SHIFT
        elif kind == kinds.BOOLEAN:
            self._values = array.to_numpy(zero_copy_only=False).astype(np.uint64)
        else:
            self._values = array.to_numpy(zero_copy_only=False).view(np.uint64)
        self._headers[self._valid] = header
        self.words[self._valid] += 1 if self._sizes is None else self._sizes

    def write(self, words: Any, at: Any) -> None:
        """Write the values; `at` is where their headers are."""
        words[at] = self._headers
        at = at[self._valid] + 1
        if self._sizes is not None:
            begins = np.cumsum(self._sizes) - self._sizes
            at = np.arange(len(self._values)) + np.repeat(at - begins, self._sizes)
        words[at] = self._values


def _texts_of(column: Column, array: Any) -> tuple[Any, Any]:
    """Return the length of each string or YSON, and the words of all."""
    convert = _converter_of(column)
    if convert is not None:
        changed = [dump_yson(convert(load_yson(raw))) for raw in array.to_pylist()]
        array = pa.array(changed, pa.binary())
    lengths = pc.binary_length(array).to_numpy().astype(np.int64)
    padding = pa.array(_PADDING, pa.binary()).take(pa.array(-lengths & 7))
    padded = pc.binary_join_element_wise(array, padding, b"")
    size = int(pc.sum(pc.binary_length(padded)).as_py() or 0) >> 3
    return lengths, np.frombuffer(padded.buffers()[2], "<u8", size) if size else np.empty(0, "<u8")


def _converter_of(column: Column) -> Any:
    """Return what makes a composite value positional, as it is on the wire; None for other values."""
    is_composite = kinds.of_column(column) == kinds.COMPOSITE
    return yson_modes.to_positional(column.type_v3) if is_composite else None


def writer_of(identifier: int, column: Column) -> Callable[[Any], bytes]:
    """Return what writes a value of a column with its header."""
    kind, convert = kinds.of_column(column), _converter_of(column)

    def write(value: Any) -> bytes:
        if convert is not None and value is not None:
            value = convert(value)
        try:
            return encode_one(identifier, kind, value)
        except (OverflowError, TypeError, ValueError, struct.error) as error:
            raise YtError(
                f'A value of column "{column.name}" does not have the type of the column'
            ) from error

    return write


def encode_one(identifier: int, kind: int, value: Any) -> bytes:
    """Write one value with its header; composites are positional already."""
    if value is None or kind == kinds.NULL:
        return _HEADER.pack(identifier, kinds.NULL, 0, 0)
    if kind in kinds.STRING_LIKE:
        text = dump_yson(value) if kind != kinds.STRING else get_bytes(value)
        return _HEADER.pack(identifier, kind, 0, len(text)) + text + _PADDING[-len(text) % 8]
    encoded = _SCALARS[kind].pack(value) if kind in _SCALARS else _WORD.pack(int(value))
    return _HEADER.pack(identifier, kind, 0, 0) + encoded


def encode_versioned(rows: Sequence[Any], columns: Sequence[Column]) -> bytes:
    """Write rows as `lookup_rows` returns them with `versioned`; a value column has a list of versions.

    A row is a header, the timestamps of its writes and deletes, its keys, and each value with the timestamp
    it was written at, the newest first.
    """
    writers = [(each, writer_of(number, each)) for number, each in enumerate(columns)]
    pieces = [_WORD.pack(len(rows))]
    pieces += [_MISSING_ROW if row is None else _versioned_row(row, writers) for row in rows]
    return b"".join(pieces)


def _versioned_row(row: Any, writers: Writers) -> bytes:
    written = [int(stamp) for stamp in row.attributes["write_timestamps"]]
    deleted = [int(stamp) for stamp in row.attributes["delete_timestamps"]]
    keys = [(column, write) for column, write in writers if column.is_key]
    values = [
        write(_plain(version)) + _WORD.pack(int(version.attributes["timestamp"]))
        for column, write in writers
        if not column.is_key
        for version in row.get(column.name, ())
    ]
    head = _VERSIONED_HEADER.pack(len(values), len(keys), len(written), len(deleted))
    stamps = struct.pack(f"<{len(written) + len(deleted)}Q", *written, *deleted)
    return b"".join([head, stamps, _keys(row, keys), *values])


def _keys(row: Any, keys: Writers) -> bytes:
    """Write which keys are null, and the others, of which only strings have a length in front."""
    nulls, pieces = 0, []
    for position, (column, write) in enumerate(keys):
        if row[column.name] is None:
            nulls |= 1 << position
            continue
        whole = write(row[column.name])
        if kinds.of_column(column) in kinds.STRING_LIKE:
            pieces.append(whole[4:8] + bytes(4))
        pieces.append(whole[8:])
    return nulls.to_bytes(-(-len(keys) // 64) * 8, "little") + b"".join(pieces)


def _plain(version: Any) -> Any:
    """Return a value without the attributes that say when it was written."""
    return None if type(version).__name__ == "YsonEntity" else version


class LooseWriter:
    """Writes rows of a table block by block; rows may have columns that the schema lacks."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = {column.name: column for column in columns}
        self._writers: dict[str, Callable[[Any], bytes]] = {}

    def encode(self, rows: Sequence[dict[str, Any]]) -> tuple[bytes, list[str]]:
        """Return a rowset, and the names that it is the first one to use."""
        known = len(self._writers)
        encoded = joined([[self._writer(name)(row[name]) for name in row] for row in rows])
        return encoded, list(self._writers)[known:]

    def _writer(self, name: str) -> Callable[[Any], bytes]:
        found = self._writers.get(name)
        if found is None:
            identifier, column = len(self._writers), self._columns.get(name)
            loose = partial(_encode_loose, identifier)
            found = loose if column is None else writer_of(identifier, column)
            self._writers[name] = found
        return found


def _encode_loose(identifier: int, value: Any) -> bytes:
    return encode_one(identifier, _kind_of(value), value)


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
