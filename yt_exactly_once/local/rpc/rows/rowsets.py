"""Rowsets from the wire: a count of rows, and of each row a count of values and the values.

A value is a header (id, kind, flags, length) and, unless it is null, eight bytes or padded bytes. Rows that
all have the same columns, which is what clients send, are taken apart by numpy, column by column.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.errors import Code, YtError, text_of
from yt_exactly_once.local.formats import row_pieces
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables.columnar import ColumnarRows, PiecewiseRows, Row
from yt_exactly_once.local.tables.large_values import PARSE_ERRORS, checked
from yt_exactly_once.local.tables.values import PlainUint64

_FEW_ROWS = 32
"""Up to so many rows a loop is as fast as numpy."""

_SHORT = 64
"""Bytes of a string, on average, up to which gathering its bytes is faster than cutting it out."""

_PIECES = {kinds.ANY: 1 << 14, kinds.COMPOSITE: 1 << 14, kinds.UINT64: 1 << 17}
"""Bytes of rows that may be objects together, by kinds whose values become objects that are larger."""

_MISSING_ROW = (1 << 64) - 1
_AGGREGATE = 1
_WORD = 8
_MAX_ROWS = 15 << 20
_HEADER = struct.Struct("<HBBI")
_IDENTITY = np.uint64(0xFF00FFFF)
"""Id and flags in the header of a value."""
_LIMITED = "A rowset ends in the middle of a row"

Words = Any
"""An array of unsigned 64-bit words."""


@dataclass(frozen=True)
class Rowset:
    """Rows as they came.

    Attributes:
        rows: by name of column.
        aggregated: whether a value asks to be combined with what is there.
    """

    rows: Sequence[Row]
    aggregated: bool = False


def keys(data: bytes) -> list[list[Any]]:
    """Parse a rowset of keys, whose values are known by their places: the Go client gives all the id 0."""
    count = int(_words(data)[0])
    return [list(row.values()) for row, _ in _read(data, count, None, set())]


def _words(data: bytes) -> Words:
    if not data or len(data) % _WORD:
        raise YtError(f"A rowset has {len(data)} bytes, which is no positive multiple of {_WORD}")
    words: Words = np.frombuffer(data, "<u8")
    return words


def decode(data: bytes, names: Sequence[str]) -> Rowset:
    """Parse a rowset; raise `YtError` if the bytes are no rowset, or an id has no name."""
    words = _words(data)
    count = int(words[0])
    if count > min(_MAX_ROWS, len(words) - 1):
        if count > _MAX_ROWS:
            raise YtError(
                f"Too many rows in rowset: actual {count}, limit {_MAX_ROWS}",
                Code.TOO_MANY_ROWS_IN_ROWSET,
            )
        raise YtError(_LIMITED)
    if count > _FEW_ROWS:
        uniform = _uniform(data, words, count, names)
        if uniform is not None:
            return uniform
    return _row_by_row(data, count, names)


def _uniform(data: bytes, words: Words, count: int, names: Sequence[str]) -> Rowset | None:
    """Take rows apart by columns; `None` when their columns differ.

    Rows are looked for by how they begin. A text may hold such a place too, so all are followed to the end.
    """
    values = int(words[1])
    looks = (words[1:-1] == values) & ((words[2:] & _IDENTITY) == (words[2] & _IDENTITY))
    starts = np.flatnonzero(looks) + 1
    if not 0 < values <= len(names) or len(starts) != count:
        return None
    found: dict[str, tuple[int, Words, Words]] = {}
    aggregated = False
    at = starts + 1
    for _ in range(values):
        headers = words[at] if (at < len(words)).all() else None
        shared = None if headers is None else _shared_header(headers)
        if shared is None:
            return None
        identifier, kind, flags = shared
        if identifier >= len(names) or names[identifier] in found:
            return None
        aggregated |= bool(flags & _AGGREGATE)
        found[names[identifier]] = (kind, at + 1, headers)
        at = at + _sizes(headers).astype(np.int64)
    if starts[0] != 1 or at[-1] != len(words) or (at[:-1] != starts[1:]).any():
        return None
    return Rowset(_by_columns(data, words, count, found), aggregated)


def _by_columns(
    data: bytes, words: Words, count: int, found: dict[str, tuple[int, Words, Words]]
) -> ColumnarRows | PiecewiseRows:
    """Return the values of columns, each of a kind, with places and headers of its values."""

    def rows(start: int, stop: int) -> ColumnarRows:
        columns = {
            name: _column(data, words, at[start:stop], kind, headers[start:stop])
            for name, (kind, at, headers) in found.items()
        }
        return ColumnarRows(columns, min(stop, count) - start)

    piece = min(_PIECES.get(kind, len(data)) for kind, _, _ in found.values())
    if len(data) <= piece:
        return rows(0, count)
    step = max(1, count * piece // len(data))
    starts = range(0, count, step)
    return PiecewiseRows(lambda: (rows(start, start + step) for start in starts))


def _shared_header(headers: Words) -> tuple[int, int, int] | None:
    """Return id, kind and flags of a column; kinds may alternate between null and one other."""
    marks = headers & _IDENTITY
    kind = _kinds(headers)
    others = kind[kind != kinds.NULL]
    if (marks != marks[0]).any() or (len(others) and (others != others[0]).any()):
        return None
    found = int(others[0]) if len(others) else kinds.NULL
    if found not in kinds.KNOWN:
        return None
    return int(marks[0]) & 0xFFFF, found, int(marks[0]) >> 24


def _kinds(headers: Words) -> Words:
    return (headers >> np.uint64(16)) & np.uint64(0xFF)


def _sizes(headers: Words) -> Words:
    """Return how many words values with these headers take."""
    kind = _kinds(headers)
    lengths = headers >> np.uint64(32)
    padded = (lengths + np.uint64(_WORD - 1)) >> np.uint64(3)
    is_text = (kind & np.uint64(0xF0)) == np.uint64(0x10)
    return np.where(is_text, padded, (kind != kinds.NULL).astype(np.uint64)) + np.uint64(1)


def _column(data: bytes, words: Words, at: Words, kind: int, headers: Words) -> Any:
    """Return the values of a column; `at` is where they lie behind their headers."""
    if kind == kinds.NULL:
        return pa.nulls(len(at))
    is_null = _kinds(headers) == kinds.NULL
    if kind not in kinds.STRING_LIKE:
        return _scalars(kind, words[np.minimum(at, len(words) - 1)], is_null)
    begins = at * _WORD
    lengths = np.where(is_null, 0, headers >> np.uint64(32)).astype(np.int64)
    if kind == kinds.STRING and lengths.sum() <= len(at) * _SHORT:
        return _short_strings(data, begins, lengths, is_null)
    load = bytes if kind == kinds.STRING else load_any
    return [
        None if null else load(data[begin:end])
        for begin, end, null in zip(
            begins.tolist(), (begins + lengths).tolist(), is_null.tolist(), strict=True
        )
    ]


def _short_strings(data: bytes, begins: Words, lengths: Words, is_null: Words) -> Any:
    """Gather strings byte by byte, which pays while the positions of all bytes are few."""
    offsets = np.append(0, np.cumsum(lengths))
    positions = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
    gathered = np.frombuffer(data, np.uint8)[positions]
    strings = pa.Array.from_buffers(
        pa.binary(),
        len(lengths),
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(gathered)],
    )
    return pc.if_else(pa.array(is_null), None, strings) if is_null.any() else strings


def _scalars(kind: int, raw: Words, is_null: Words) -> Any:
    mask = is_null if is_null.any() else None
    if kind == kinds.INT64:
        return pa.array(raw.view("<i8"), mask=mask)
    if kind == kinds.DOUBLE:
        return pa.array(raw.view("<f8"), mask=mask, from_pandas=False)
    if kind == kinds.BOOLEAN:
        return pa.array((raw & np.uint64(0xFF)) != 0, mask=mask)
    # An array would not tell them from signed numbers, where they go into columns of another type.
    return [
        None if null else PlainUint64(value)
        for value, null in zip(raw.tolist(), is_null.tolist(), strict=True)
    ]


def load_any(raw: bytes) -> Any:
    """Parse a value of type `any`, which is YSON; strings in it are bytes."""
    try:
        return checked(raw)
    except PARSE_ERRORS as error:
        raise YtError(
            f"A value of type any is no YSON: {text_of(error)}", Code.YSON_PARSE
        ) from error


def _row_by_row(data: bytes, count: int, names: Sequence[str]) -> Rowset:
    flags = set[int]()
    rows = row_pieces.of_rows(len(data), lambda: _read(data, count, names, flags))
    if isinstance(rows, PiecewiseRows):
        # All of them are read once for the flags, and for what is wrong.
        len(rows)
    return Rowset(rows, any(found & _AGGREGATE for found in flags))


def _read(
    data: bytes, count: int, names: Sequence[str] | None, found: set[int]
) -> Iterator[tuple[Row, int]]:
    """Yield rows and their lengths; put the flags of values where they are found.

    Without names, values are called by their places.
    """
    position = _WORD
    for _ in range(count):
        start = position
        values, position = _unpack(data, position)
        if values == _MISSING_ROW:
            raise YtError("A rowset of a request has a null row")
        row: Row = {}
        for _ in range(values):
            if position + _WORD > len(data):
                raise YtError(_LIMITED)
            identifier, kind, flags, length = _HEADER.unpack_from(data, position)
            position += _WORD
            if names is None:
                name = str(len(row))
            elif identifier < len(names):
                name = names[identifier]
            else:
                raise YtError(f"Value id {identifier} has no entry in the name table")
            if name in row:
                raise YtError(f'Duplicate column "{name}" in a row', Code.DUPLICATE_COLUMN)
            size = _payload_bytes(kind, length)
            if position + size > len(data):
                raise YtError(_LIMITED)
            row[name] = _value(data, position, kind, length)
            found.add(flags)
            position += size
        yield row, position - start
    if position != len(data):
        raise YtError("A rowset has bytes behind its last row")


def _unpack(data: bytes, position: int) -> tuple[int, int]:
    if position + _WORD > len(data):
        raise YtError(_LIMITED)
    return int.from_bytes(data[position : position + _WORD], "little"), position + _WORD


def _payload_bytes(kind: int, length: int) -> int:
    if kind in kinds.STRING_LIKE:
        return -(-length // _WORD) * _WORD
    if kind in kinds.FIXED:
        return _WORD
    if kind == kinds.NULL:
        return 0
    raise YtError(f"Unknown kind of value {kind:#x} in a rowset")


def _value(data: bytes, position: int, kind: int, length: int) -> Any:
    if kind == kinds.NULL:
        return None
    if kind == kinds.STRING:
        return data[position : position + length]
    if kind in kinds.STRING_LIKE:
        return load_any(data[position : position + length])
    raw = data[position : position + _WORD]
    if kind == kinds.DOUBLE:
        return struct.unpack("<d", raw)[0]
    if kind == kinds.BOOLEAN:
        return raw[0] != 0
    number = int.from_bytes(raw, "little", signed=kind == kinds.INT64)
    return number if kind == kinds.INT64 else PlainUint64(number)
