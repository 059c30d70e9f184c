"""Keys of sorted tables as blobs whose byte order is the order of the table.

Owns the memcomparable encoding: a type tag per column, then a payload that no other value of the type
is a prefix of. Order between types is YTsaurus order: null, int64, uint64, double, boolean, string.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from yt import yson

from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.values import KINDS

NULL_KEY = b"\x00"
AFTER = b"\xff"
"""Appended to the encoding of a value, it is above everything that starts with the value."""

_INT64_TAG = 2
_UINT64_TAG = 3
_DOUBLE_TAG = 4
_BOOLEAN_TAG = b"\x05"
_STRING_TAG = b"\x06"
_ATTRIBUTES_TAG, _LIST_TAG, _MAP_TAG = b"\x07", b"\x08", b"\x09"
_END, _INNER_NULL = b"\x00", b"\x01"

_TAGGED = struct.Struct(">BQ")
_DOUBLE = struct.Struct(">d")
_UINT64 = struct.Struct(">Q")
_MANY = 64
"""From so many numbers on vectors are faster than loops."""

_INVERTED = bytes(range(255, -1, -1))
_TWO_63 = 1 << 63
_TWO_64 = 1 << 64


def _ints(values: Sequence[Any]) -> list[bytes]:
    if len(values) >= _MANY and None not in values:
        return _tagged(_INT64_TAG, np.array(values, np.int64).view(np.uint64) ^ np.uint64(_TWO_63))
    pack = _TAGGED.pack
    return [NULL_KEY if v is None else pack(_INT64_TAG, v + _TWO_63) for v in values]


def _tagged(tag: int, numbers: Any) -> list[bytes]:
    """Return a tag before each unsigned number, whose bytes then sort as the numbers do."""
    encoded = np.empty((len(numbers), _TAGGED.size), np.uint8)
    encoded[:, 0] = tag
    encoded[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    joined = encoded.tobytes()
    return [joined[at : at + _TAGGED.size] for at in range(0, len(joined), _TAGGED.size)]


def _uints(values: Sequence[Any]) -> list[bytes]:
    pack = _TAGGED.pack
    return [
        NULL_KEY if v is None else pack(_UINT64_TAG, v if v >= 0 else v + _TWO_64) for v in values
    ]


def _double(value: float) -> bytes:
    (bits,) = _UINT64.unpack(_DOUBLE.pack(value + 0.0))
    return _TAGGED.pack(_DOUBLE_TAG, bits ^ _TWO_63 if bits < _TWO_63 else _TWO_64 - 1 - bits)


def _doubles(values: Iterable[Any]) -> list[bytes]:
    return [NULL_KEY if v is None else _double(float(v)) for v in values]


def _booleans(values: Iterable[Any]) -> list[bytes]:
    return [NULL_KEY if v is None else _BOOLEAN_TAG + (b"\x01" if v else b"\x00") for v in values]


def _strings(values: Iterable[Any]) -> list[bytes]:
    # The terminator sorts before any continuation; an inner zero is told apart by the 0xff after it.
    return [
        NULL_KEY
        if v is None
        else _STRING_TAG + (v.replace(b"\0", b"\0\xff") if b"\0" in v else v) + b"\0"
        for v in values
    ]


def _anys(values: Iterable[Any]) -> list[bytes]:
    """Encode values of different types: by type first, as `EValueType` orders them."""
    return [NULL_KEY if v in (None, b"#") else _any(yson.loads(v, encoding=None)) for v in values]


def _any(value: Any) -> bytes:
    """Encode a document, its parts one after the other, maps by their keys."""
    attributes = getattr(value, "attributes", None)
    prefix = _ATTRIBUTES_TAG + _items(attributes) if attributes else b""
    if isinstance(value, list):
        return prefix + _LIST_TAG + b"".join(map(_any, value)) + _END
    if isinstance(value, dict):
        return prefix + _MAP_TAG + _items(value)
    if value is None or isinstance(value, yson.YsonEntity):
        return prefix + _INNER_NULL
    return prefix + _ENCODERS[KINDS[type(value)]]([value])[0]


def _items(items: Any) -> bytes:
    pairs = ((_strings([bytes(key)])[0], _any(value)) for key, value in items.items())
    return b"".join(key + value for key, value in sorted(pairs)) + _END


_ENCODERS: dict[types.Kind, Callable[[Sequence[Any]], list[bytes]]] = {
    "int64": _ints,
    "uint64": _uints,
    "double": _doubles,
    "boolean": _booleans,
    "string": _strings,
    "null": lambda values: [NULL_KEY for _ in values],
    "any": _anys,
}


def _column_encoder(column: Column) -> Callable[[Sequence[Any]], list[bytes]]:
    encode = _ENCODERS[column.kind]
    if column.sort_order != "descending":
        return encode
    # Every tag stays below `AFTER`.
    return lambda values: [
        bytes([AFTER[0] - 1 - key[0]]) + key[1:].translate(_INVERTED) for key in encode(values)
    ]


def key_encoder(key_columns: Sequence[Column]) -> Callable[[Sequence[Sequence[Any]]], list[bytes]]:
    """Return a function from stored key columns (one sequence per column) to one blob per row.

    A shorter list of columns gives the blobs of key prefixes: every key that starts with those
    values has the blob as a prefix.
    """
    encoders = [_column_encoder(column) for column in key_columns]

    def encode(columns: Sequence[Sequence[Any]]) -> list[bytes]:
        parts = [encoder(values) for encoder, values in zip(encoders, columns, strict=False)]
        if len(parts) == 1:
            return parts[0]
        return [b"".join(row) for row in zip(*parts, strict=True)]

    return encode


def encode_prefix(key_columns: Sequence[Column], values: Sequence[Any]) -> bytes:
    """Encode the leading stored values of one key."""
    return b"".join(
        _column_encoder(column)([value])[0]
        for column, value in zip(key_columns, values, strict=False)
    )
