"""Large composite values, which stay the YSON that was sent: a tree of Python objects takes far more bytes.

The parts of one are looked at a limited number at a time. The client library walks over YSON without making
objects of it, and refuses what is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import Code, YtError, text_of
from yt_exactly_once.local.tables import values

LARGE = 1 << 14
"""Bytes, from which on parts are not made objects together. Objects may take a hundred times as many."""

_PIECE = 1 << 12
"""Bytes of items that are checked together: an empty struct becomes a map of all its members."""

_FREE_WEIGHT = 7 << 20
_WEIGHTS = {"{": 64, "[": 64, "<": 900, ";": 64, ",": 64, "=": 128, ":": 144}
"""Bytes of the objects that a character may stand for. A schema of 32 767 columns is just not too much."""

MAX_STRING_LENGTH = 16 << 20
"""Bytes of a stored value."""

PARSE_ERRORS = (yson.YsonError, ValueError, TypeError, RecursionError)


def check_weight(data: str | bytes, what: str) -> None:
    """Refuse a value whose tree of objects may take far more memory than its text, before there is one.

    The servers limit it too: to 50 000 children of a node, and to the memory of the JSON parser.
    """
    if len(data) <= LARGE:
        return
    weight = sum(
        size * (data.count(mark) if isinstance(data, str) else data.count(mark.encode()))
        for mark, size in _WEIGHTS.items()
    )
    if weight > _FREE_WEIGHT + 8 * len(data):
        raise YtError(
            f"Error parsing {what}: {len(data)} bytes have too many parts, which may take {weight}"
            " bytes of memory in the embedded cluster; send less at a time, or rows as YSON"
        )


@dataclass(frozen=True)
class LargeValue:
    """A list, a map, or a value with attributes, as YSON that is well-formed."""

    raw: bytes

    @property
    def opening(self) -> bytes:
        """The bracket that it begins with."""
        return self.raw[:1]

    def loaded(self) -> Any:
        """Return the whole value as Python objects."""
        return values.load_yson(self.raw)

    def pieces(self) -> Iterator[bytes | LargeValue]:
        """Yield the items of a list: one that is large, or YSON of a list with some that are not."""
        for piece in joined(items(memoryview(self.raw)[1:-1]), _PIECE):
            large = of_yson(piece) if len(piece) > LARGE else None
            yield large or b"[" + piece + b"]"

    def parts(self, most: int) -> list[Any]:
        """Return the items of a list, or the first of them if there are more than `most`."""
        return [parsed(item) for item in islice(items(memoryview(self.raw)[1:-1]), most + 1)]


def of_yson(raw: bytes) -> LargeValue | None:
    """Return a value that is large; none where its bytes are a string or a number."""
    raw = raw.lstrip()
    # A bracket cannot be a part of anything else here.
    return LargeValue(raw.rstrip(b"; \t\r\n")) if raw[:1] in (b"[", b"{", b"<") else None


def parsed(raw: bytes) -> Any:
    """Return a value: as it is if it is large."""
    large = of_yson(raw) if len(raw) > LARGE else None
    return large or next(iter(yson.loads(
        raw, yson_type="list_fragment", encoding=None, always_create_attributes=False
    )))  # fmt: skip


def compact(value: Any) -> Any:
    """Return a value as YSON if it is a large list or map."""
    is_plain = isinstance(value, list | dict) and not getattr(value, "attributes", None)
    raw = values.dump_yson(value) if is_plain else b""
    return LargeValue(raw) if len(raw) > LARGE else value


def checked(raw: bytes) -> Any:
    """Return the value that is the whole of some bytes: as it is if it is large.

    Raises:
        PARSE_ERRORS: the bytes are not one value.
    """
    if len(raw) <= LARGE:
        return values.load_yson(raw)
    if sum(1 for _ in _raw_items(raw)) != 1:
        raise ValueError("more than one value")
    return parsed(raw)


class _Blocks:
    """Bytes as a file; the library would copy them as a whole."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)

    def read(self, _size: int) -> bytes:
        block, self._data = bytes(self._data[:LARGE]), self._data[LARGE:]
        return block


def _raw_items(fragment: bytes | memoryview) -> Iterator[bytes]:
    items: Iterator[bytes] = yson.load(_Blocks(fragment), yson_type="list_fragment", raw=True)
    return items


def items(fragment: bytes | memoryview) -> Iterator[bytes]:
    """Yield the items of a list fragment, each with the separator behind it.

    Raises:
        YtError: the bytes are no list fragment.
    """
    try:
        for item in _raw_items(fragment):
            begin = item.lstrip()[:1]
            if begin == b"\0":
                # The library takes it for the end, whatever follows.
                raise ValueError("a zero byte where a value begins")
            if begin:
                yield item
    except PARSE_ERRORS as error:
        raise YtError(f"Error parsing rows as YSON: {text_of(error)}", Code.YSON_PARSE) from error


def joined(parts: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Join parts as long as they do not have more bytes together."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        if held and size + len(part) > most:
            yield b"".join(held)
            held, size = [], 0
        held.append(part)
        size += len(part)
    if held:
        yield b"".join(held)
