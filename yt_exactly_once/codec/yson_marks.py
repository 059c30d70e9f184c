"""The bytes that mark the tokens of binary YSON, and where a value ends; no value is read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

STRING, INT64, DOUBLE, FALSE, TRUE, UINT64 = range(1, 7)
ENTITY, OPEN_LIST, CLOSE_LIST, OPEN_MAP, CLOSE_MAP, EQUALS, SEMICOLON = b"#[]{}=;"
OPENING = b"[{<"
"""What begins a value that has parts, or attributes."""

_MOST_COLUMNS = 1 << 15
"""A table has fewer columns than that."""

TOKEN = re.compile(rb"[#\x04\x05]|\x03.{8}|[\x02\x06][\x80-\xff]*[\x00-\x7f]", re.DOTALL)
"""A value without parts that is no string."""

_INNER = re.compile(rb"[;=]|" + TOKEN.pattern, re.DOTALL)
_INNERS = re.compile(rb"(?:" + _INNER.pattern + rb"){1,4096}+", re.DOTALL)


class UnevenError(Exception):
    """The bytes are not laid out in the way that is read by vector."""


def require(condition: object) -> None:
    """Raise `UnevenError` unless the condition holds."""
    if not condition:
        raise UnevenError


def string_at(data: bytes | memoryview, position: int) -> slice:
    """Return where the characters of a string are, whose mark is at a position."""
    number, shift = 0, 0
    while True:
        position += 1
        number |= (data[position] & 0x7F) << shift
        shift += 7
        if data[position] < 0x80:  # noqa: PLR2004 - the flag of a further byte
            return slice(position + 1, position + 1 + (number >> 1))


def after(data: bytes | memoryview, position: int, most: int = sys.maxsize) -> int:
    """Return where a value ends, with all that is inside of it.

    Args:
        most: tokens that are looked at; without it numbers are passed over by the thousand.

    Raises:
        ValueError: it is written as text, or has more tokens.
        IndexError: it has no end.
    """
    depth, inside = 0, _INNERS if most == sys.maxsize else _INNER
    for _ in range(most):
        mark = data[position]
        if mark in OPENING:
            depth += 1
            position += 1
            continue
        if mark in b"]}>":
            depth -= 1
            position += 1
        elif mark == STRING:
            position = string_at(data, position).stop
        elif found := (inside if depth else TOKEN).match(data, position):
            position = found.end()
        else:
            raise ValueError("the value is text")
        # After attributes comes what has them.
        if depth <= 0 and mark != b">"[0]:
            return position
    raise ValueError("the value has too many tokens")


def members(data: bytes | memoryview, most: int = sys.maxsize) -> Iterator[tuple[int, slice, int]]:
    """Yield where each key of a map begins, where its characters are, and where its value ends.

    The value begins behind the equals sign that follows the key.

    Args:
        most: as `after` has it, for each value.

    Raises:
        ValueError: this is no map, has text for keys, or more of them than a table may have columns.
        IndexError: it has no end.
    """
    position, count, is_next = 1, 0, True
    if data[0] != OPEN_MAP:
        raise ValueError("it is no map")
    while data[position] != CLOSE_MAP:
        count += 1
        if not is_next or data[position] != STRING or count > _MOST_COLUMNS:
            raise ValueError("a key of a map is text, or there are too many")
        key = string_at(data, position)
        if data[key.stop] != EQUALS:
            raise ValueError("a key of a map has no value")
        end = after(data, key.stop + 1, most)
        yield position, key, end
        is_next = data[end] == SEMICOLON
        position = end + is_next
