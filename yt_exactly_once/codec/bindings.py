"""The C bindings for YSON, the only place that imports them.

They parse pulled rows and check YSON given in DataFrames. Writing does not need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from yt_exactly_once.errors import ConfigError

try:
    import yt_yson_bindings as _bindings
except ImportError as error:
    raise ConfigError(
        f"The YSON bindings cannot be loaded ({error})",
        remedy="Install them with: pip install ytsaurus-yson",
    ) from error


_CHUNK_BYTES = 1 << 14
"""Items of so many bytes are parsed at a time. Parsed, they take up to 45 times their bytes."""
LONG = 1 << 16
"""An item of more bytes is not parsed as a whole."""
_BLOCK = 1 << 13
_AS_IS = {"encoding": None, "always_create_attributes": False}
_INVALID = "this is not valid YSON"
"""Without the parser's error, which quotes the bytes around the fault: they are row values."""


class _LongItemError(Exception):
    """Parsing an item would take too much memory."""


class _Source:
    """Bytes as a file, which ends with `_LongItemError` where an item is long.

    Attributes:
        position: how much has been read.
        start: where the items that are parsed now begin, or shortly before.
    """

    def __init__(self, data: memoryview, most: int) -> None:
        self._data = data
        self._most = most
        self.position = self.start = 0

    def read(self, _size: int) -> bytes:
        if self.position - self.start > self._most:
            raise _LongItemError
        block = bytes(self._data[self.position : self.position + _BLOCK])
        self.position += len(block)
        return block


def parse_items(data: bytes | memoryview) -> Iterator[list[Any] | memoryview]:
    """Parse a list fragment, some items at a time; strings are bytes, unsigned numbers a subclass of int.

    Parsed items take many times their bytes. So an item that is long comes as it is.

    Raises:
        ValueError: this is not YSON.
    """
    whole = memoryview(data)
    source = _Source(whole, LONG)
    chunk: list[Any] = []
    count = 0
    try:
        for item in _bindings.load(source, yson_type="list_fragment", **_AS_IS):
            chunk.append(item)
            if source.position - source.start >= _CHUNK_BYTES:
                yield chunk
                count += len(chunk)
                chunk, source.start = [], source.position
    except _LongItemError:
        yield from _items_one_by_one(whole, count)
    except Exception:  # noqa: BLE001 - its class lives in a package that only others may import
        raise ValueError(_INVALID) from None
    else:
        yield chunk


def _items_one_by_one(data: memoryview, skipped: int) -> Iterator[list[Any] | memoryview]:
    chunk: list[Any] = []
    size = 0
    for item in islice(raw_items(data), skipped, None):
        is_long = len(item) > LONG
        if chunk and (is_long or size >= _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        if is_long:
            yield item
        else:
            chunk.append(parse_item(item))
            size += len(item)
    yield chunk


def raw_items(data: memoryview) -> Iterator[memoryview]:
    """Yield the items of a list fragment, each with its separator; raise `ValueError` if it is not YSON."""
    end = 0
    try:
        source = _Source(data, len(data))
        for item in _bindings.load(source, yson_type="list_fragment", raw=True, **_AS_IS):
            start, end = end, end + len(item)
            del item
            yield data[start:end]
    except Exception:  # noqa: BLE001 - as above
        raise ValueError(_INVALID) from None


def parse_item(item: memoryview) -> Any:
    """Parse one item of a list fragment; raise `ValueError` if this is not YSON."""
    try:
        (parsed,) = _bindings.loads(bytes(item), yson_type="list_fragment", **_AS_IS)
    except Exception:  # noqa: BLE001 - as above
        raise ValueError(_INVALID) from None
    return parsed


def parse_value(value: bytes) -> Any:
    """Parse one value, attributes kept; raise `ValueError` if this is not exactly one YSON value."""
    try:
        return _bindings.loads(value, yson_type="node", **_AS_IS)
    except Exception:  # noqa: BLE001 - as above
        raise ValueError(_INVALID) from None


def write_text(value: Any) -> bytes:
    """Write a value with texts as binary YSON; raise `ValueError` if YSON has no such value."""
    try:
        return bytes(_bindings.dumps(value, yson_format="binary", encoding="utf-8"))
    except Exception:  # noqa: BLE001 - as above
        raise ValueError(_INVALID) from None


def write_value(value: Any) -> bytes:
    """Write a value as binary YSON, attributes and unsignedness kept; what was not parsed is that already."""
    if isinstance(value, memoryview):
        return bytes(value)
    return bytes(_bindings.dumps(value, yson_format="binary", encoding=None))
