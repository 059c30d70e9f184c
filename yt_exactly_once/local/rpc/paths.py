"""Paths as RPC carries them: plain text, or attributes in YSON, binary too, before the text."""

from __future__ import annotations

from typing import Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import load_yson
from yt_exactly_once.local.rpc.message_types import text

_OPENING, _CLOSING = b"<{[(", b">}])"
_STRING, _INT, _DOUBLE, _UINT = 1, 2, 3, 6


def load(raw: bytes, what: str = "path") -> Any:
    """Return a path as a parameter of a command.

    Raises:
        YtError: it is no UTF-8, or its attributes are no YSON.
    """
    if not raw.lstrip().startswith(b"<"):
        return text(raw, what)
    raw = raw.lstrip()
    end = _end(raw, what)
    parsed = load_yson(raw[:end] + b"#", what)
    path = yson.YsonUnicode(text(raw[end:].strip(), what))
    path.attributes = dict(parsed.attributes)
    return path


def dump(path: Any) -> bytes:
    """Return a path of an answer."""
    attributes = getattr(path, "attributes", None)
    plain = str(path).encode()
    if not attributes:
        return plain
    holder = yson.YsonEntity()
    holder.attributes = dict(attributes)
    encoded: bytes = yson.dumps(holder, yson_format="text")
    return encoded.removesuffix(b"#").rstrip() + plain


def _end(raw: bytes, what: str) -> int:
    """Return where the attributes end."""
    depth = position = 0
    while position < len(raw):
        byte = raw[position]
        position += 1
        if byte in _OPENING:
            depth += 1
        elif byte in _CLOSING:
            depth -= 1
            if not depth:
                return position
        elif byte == ord('"'):
            position = _quoted_end(raw, position)
        elif byte == _DOUBLE:
            position += 8
        elif byte in {_STRING, _INT, _UINT}:
            number, position = _varint(raw, position)
            if byte == _STRING:
                # Lengths are signed and travel in zigzag.
                position += number >> 1
    raise YtError(f"Error parsing {what}: attributes are not closed")


def _quoted_end(raw: bytes, position: int) -> int:
    while position < len(raw) and raw[position] != ord('"'):
        position += 2 if raw[position] == ord("\\") else 1
    return position + 1


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(raw):
        byte = raw[position]
        position += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:  # noqa: PLR2004 - the bit that says that more follows
            break
    return number, position
