"""YSON that a user gives as bytes, text or binary, for `yson` columns: checked to be one value, made binary.

The cluster stores the bytes of `any` values as they are, and some of its readers accept only binary YSON.
Values that the bindings write back unchanged are kept. Others are rewritten token by token, since Python
objects would lose parts of them.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.values import UnfitValueError
from yt_exactly_once.codec.yson_parts import BYTES

NOT_ONE_VALUE = "its bytes are not one YSON value"
TOO_LARGE_NUMBER = "it has a number outside the range of double"
REPEATED_KEY = "one of its maps has a key twice"

_NO_SPACE = re.compile(rb"[^ \t\n\r\v\f]", re.DOTALL)
_TEXT_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[A-Za-z0-9_%+.\-]+', re.DOTALL)


class UnfitYsonError(ValueError):
    """What is wrong with the bytes; never the bytes themselves."""


def any_values(array: pa.Array) -> pa.Array:
    """Encode values without nulls; raise `UnfitValueError` for bytes that are not one YSON value."""
    given = array.to_pylist()
    made = [_one(row, value) for row, value in enumerate(given)]
    if any(one is not value for one, value in zip(made, given, strict=True)):
        array = pa.array(made, BYTES)
    return array.cast(BYTES)


def any_keys(array: pa.Array) -> pa.Array:
    """Encode keys, with equal bytes where the cluster takes them for one; raise as for values."""
    return pa.array([comparable(value) for value in any_values(array).to_pylist()], BYTES)


def _one(row: int, value: bytes) -> bytes:
    if value.lstrip().startswith(b"<"):
        raise UnfitValueError(row, "a column value cannot have attributes at its top")
    try:
        return to_binary(value)
    except UnfitYsonError as error:
        raise UnfitValueError(row, str(error)) from error


def to_binary(value: bytes) -> bytes:
    """Return the value as binary YSON; raise `UnfitYsonError` if it is not one, or would lose a part."""
    try:
        canonical = bindings.write_value(bindings.parse_value(value))
    except ValueError:
        raise UnfitYsonError(NOT_ONE_VALUE) from None
    return value if canonical == value else _rewritten(value)


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


def _rewritten(value: bytes) -> bytes:
    """Return a value that the bindings have parsed, so that its grammar is right, with binary tokens."""
    written: list[bytes] = []
    # Of every open list None, of every open map or attributes the keys so far.
    opened: list[set[bytes] | None] = []
    place, wants_key = 0, False
    while found := _NO_SPACE.search(value, place):
        place, token = found.end(), found[0]
        if token in (b"{", b"<", b"["):
            opened.append(None if token == b"[" else set())
        elif token in (b"}", b">", b"]"):
            opened.pop()
        elif token not in (b";", b"="):
            token, place = _scalar(value, found.start())
            keys = opened[-1] if wants_key else None
            if keys is not None:
                if token in keys:
                    raise UnfitYsonError(REPEATED_KEY)
                keys.add(token)
            wants_key = False
            written.append(token)
            continue
        wants_key = token in (b"{", b"<") or (token == b";" and opened[-1] is not None)
        written.append(token)
    return b"".join(written)


def _scalar(value: bytes, start: int) -> tuple[bytes, int]:
    """Return the scalar at a place as a binary token, and where it ends."""
    if value[start] == yson.STRING:
        end = yson.string_at(value, start).stop
    elif binary := yson.TOKEN.match(value, start):
        end = binary.end()
    else:
        found = _TEXT_SCALAR.match(value, start)
        if found is None:
            # The bindings stop at a zero byte, and what follows would be lost.
            raise UnfitYsonError(NOT_ONE_VALUE)
        scalar = bindings.parse_value(found[0])
        if isinstance(scalar, float) and math.isinf(scalar) and found[0][:1] != b"%":
            raise UnfitYsonError(TOO_LARGE_NUMBER)
        return bindings.write_value(scalar), found.end()
    return value[start:end], end
