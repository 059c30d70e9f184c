"""Where the values of maps are in the bytes of a list of maps, in any variant of YSON.

Parsers keep the last of two equal keys; here both are seen. The bytes must be known to be well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from yt import yson

_STRING = rb'"(?:[^"\\]|\\.)*+"|[A-Za-z_][\w.\-]*+'
_VARINT = rb"[\x80-\xff]*+[\x00-\x7f]"
_SCALAR = rb"[\x02\x06]" + _VARINT + rb"|\x03.{8}|[\x04\x05#]|%[a-z+\-]++|[0-9+\-][\w.+\-]*+"
_TOKEN = re.compile(
    rb"\s*+(?:"
    rb"(?P<length>\x01" + _VARINT + rb")"
    rb"|(?P<string>" + _STRING + rb")"
    rb"|(?P<open>[{\[<])|(?P<close>[}\]>])|(?P<equals>=)|(?P<separator>;)"
    rb"|" + _SCALAR + rb")",
    re.DOTALL,
)
_INSIDE = re.compile(
    rb"(?:" + _STRING + rb"|" + _SCALAR + rb"|[\s;=]++|\[\]|\{\}|\x01\x00)++", re.DOTALL
)
"""What a value is full of that opens and closes nothing."""
_MAP = [b"{"]


class Cell(NamedTuple):
    """A value right inside of a map: number of the map, key, and where the value begins and ends."""

    number: int
    key: bytes
    begin: int
    end: int


def cells(data: bytes) -> Iterator[Cell]:
    """Yield the values of maps, map after map."""
    opened: list[bytes] = []
    number, begin = -1, 0
    last = key = b""
    for kind, start, end, text in _tokens(data, opened):
        if kind == "open":
            number += not opened
            opened.append(text)
        elif opened != _MAP:
            if kind == "close":
                opened.pop()
        elif kind == "equals":
            key, begin = last, end
        elif kind == "string":
            last = text
        else:
            if begin:
                yield Cell(number, key, begin, start)
                begin = 0
            if kind == "close":
                opened.pop()


def _tokens(data: bytes, opened: list[bytes]) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield what opens, closes and parts values, and strings right inside of a map."""
    position = 0
    while True:
        in_map = opened == _MAP
        if not in_map and opened:
            inside = _INSIDE.match(data, position)
            position = inside.end() if inside else position
        found = _TOKEN.match(data, position)
        if found is None:
            return
        start, position = position, found.end()
        kind = found.lastgroup
        if kind == "length":
            start, position = position, position + _length(found["length"][1:])
            if in_map:
                yield "string", start, position, data[start:position]
        elif kind == "string":
            if in_map:
                yield "string", start, position, _plain(found["string"])
        elif kind is not None:
            yield kind, start, position, found[kind]


def _plain(text: bytes) -> bytes:
    """Return the value of a string of text YSON."""
    if text[:1] != b'"':
        return text
    return bytes(yson.loads(text, encoding=None)) if b"\\" in text else text[1:-1]


def _length(varint: bytes) -> int:
    """Read the zigzag varint before a binary string."""
    number = 0
    for shift, byte in enumerate(varint):
        number |= (byte & 0x7F) << (7 * shift)
    return number >> 1
