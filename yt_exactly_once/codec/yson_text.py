"""YSON that a user gives as bytes, text or binary: checked to be one value, and made binary.

The cluster stores the bytes of `any` values as they are, and some of its readers accept only binary YSON.
Values that the bindings write back unchanged are kept. Others are rewritten token by token, since Python
objects would lose parts of them.
"""

from __future__ import annotations

import math
import re
from typing import Any

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec import yson_marks as yson

NOT_ONE_VALUE = "its bytes are not one YSON value"
TOO_LARGE_NUMBER = "it has a number outside the range of double"
REPEATED_KEY = "one of its maps has a key twice"

_SPACE = re.compile(rb"[ \t\n\r\v\f]*")
_TEXT_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[A-Za-z0-9_%+.\-]+', re.DOTALL)


class UnfitYsonError(ValueError):
    """What is wrong with the bytes; never the bytes themselves."""


def to_binary(value: bytes) -> bytes:
    """Return the value as binary YSON; raise `UnfitYsonError` if it is not one, or would lose a part."""
    try:
        canonical = bindings.write_value(bindings.parse_value(value))
    except ValueError:
        raise UnfitYsonError(NOT_ONE_VALUE) from None
    return value if canonical == value else _Rewriting(value).binary()


def comparable(value: bytes) -> bytes:
    """Return the bytes of a key: the same for values that the cluster takes for one key.

    Maps and attributes cannot be compared, so a key has none.
    """
    return bindings.write_value(_with_one_zero(bindings.parse_value(value)))


def _with_one_zero(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_one_zero(item) for item in value]
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


class _Rewriting:
    """One pass over the tokens of a value that the bindings have parsed: its grammar is right."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._place = 0
        self._written: list[bytes] = []
        # Of every open list None, of every open map or attributes the keys so far.
        self._open: list[set[bytes] | None] = []

    def binary(self) -> bytes:
        """Return the tokens as binary ones."""
        wants_key = False
        while self._skip_space() < len(self._value):
            mark = self._value[self._place : self._place + 1]
            if mark in (b"{", b"<", b"["):
                self._open.append(None if mark == b"[" else set())
            elif mark in (b"}", b">", b"]"):
                self._open.pop()
            elif mark not in (b";", b"="):
                self._scalar(is_key=wants_key)
                wants_key = False
                continue
            wants_key = mark in (b"{", b"<") or (mark == b";" and self._open[-1] is not None)
            self._written.append(mark)
            self._place += 1
        return b"".join(self._written)

    def _skip_space(self) -> int:
        found = _SPACE.match(self._value, self._place)
        assert found is not None
        self._place = found.end()
        return self._place

    def _scalar(self, *, is_key: bool) -> None:
        token = self._token()
        keys = self._open[-1] if is_key else None
        if keys is not None:
            if token in keys:
                raise UnfitYsonError(REPEATED_KEY)
            keys.add(token)
        self._written.append(token)

    def _token(self) -> bytes:
        """Read one scalar and return it as a binary token."""
        start = self._place
        if self._value[start] == yson.STRING:
            self._place = yson.string_at(self._value, start).stop
        elif found := yson.TOKEN.match(self._value, start):
            self._place = found.end()
        else:
            return self._text()
        return self._value[start : self._place]

    def _text(self) -> bytes:
        found = _TEXT_SCALAR.match(self._value, self._place)
        if found is None:
            # The bindings stop at a zero byte, and what follows would be lost.
            raise UnfitYsonError(NOT_ONE_VALUE)
        self._place = found.end()
        scalar = bindings.parse_value(found[0])
        if isinstance(scalar, float) and math.isinf(scalar) and found[0][:1] != b"%":
            raise UnfitYsonError(TOO_LARGE_NUMBER)
        return bindings.write_value(scalar)
