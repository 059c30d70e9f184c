"""What the messages of an Arrow stream announce, before the library makes room for it.

Some bytes of a compressed message may stand for gigabytes, and values of type null take no bytes at all. The
layout is that of `Message.fbs`; the library has checked the flatbuffer when it returns a message.
"""

from __future__ import annotations

import struct
from typing import Any

from yt_exactly_once.local.errors import YtError

_MOST_BYTES = 1 << 29
"""Of a message without its compression, or of a column without its dictionary."""

_FREE_VALUES = 1 << 20
"""So many may take no bytes."""

_VALUES_PER_BYTE = 8
_HEADER, _DICTIONARY_DATA, _NODES, _BUFFERS, _COMPRESSION = 2, 1, 1, 2, 3
_PAIR = struct.Struct("<qq")


def check(message: Any) -> None:
    """Check a message of an IPC stream.

    Raises:
        YtError: it announces too many bytes, or values without bytes.
    """
    try:
        _check(message)
    except struct.error as error:
        raise YtError(f"Arrow error: a part lies outside of its message: {error}") from error


def _check(message: Any) -> None:
    if message.type == "schema":
        return
    metadata, body = message.metadata.to_pybytes(), memoryview(message.body or b"")
    batch = _followed(metadata, _field(metadata, _number(metadata, 0), _HEADER))
    if message.type == "dictionary":
        batch = _followed(metadata, _field(metadata, batch, _DICTIONARY_DATA))
    size = len(body)
    if _field(metadata, batch, _COMPRESSION):
        size = sum(
            max(_number(body, start, "<q") if length else 0, length)
            for start, length in _pairs(metadata, batch, _BUFFERS)
        )
        require_room(size)
    values = sum(length for length, _ in _pairs(metadata, batch, _NODES))
    if values > max(_FREE_VALUES, _VALUES_PER_BYTE * size):
        raise YtError(f"Arrow error: {values} values cannot be in {size} bytes")


def require_room(size: int) -> None:
    """Raise `YtError` if so many bytes are too many."""
    if size > _MOST_BYTES:
        raise YtError(
            f"Arrow error: {size} bytes without compression; the embedded cluster has memory for"
            f" {_MOST_BYTES}: send the rows in several requests"
        )


def _number(data: Any, place: int, form: str = "<I") -> int:
    (found,) = struct.unpack_from(form, data, place)
    return int(found)


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 if it is not there."""
    offsets = table - _number(data, table, "<i")
    slot = 4 + 2 * number
    offset = _number(data, offsets + slot, "<H") if slot < _number(data, offsets, "<H") else 0
    return table + offset if offset else 0


def _followed(data: bytes, place: int) -> int:
    return place + _number(data, place)


def _pairs(data: bytes, table: int, number: int) -> Any:
    """Return the pairs of numbers in a field."""
    field = _field(data, table, number)
    if not field:
        return ()
    start = _followed(data, field)
    end = start + 4 + _PAIR.size * _number(data, start)
    return _PAIR.iter_unpack(memoryview(data)[start + 4 : end])
