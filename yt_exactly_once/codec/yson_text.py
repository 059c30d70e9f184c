"""YSON that a user gives as bytes, text or binary, for `yson` columns: checked to be one value, made binary.

The cluster stores the bytes of `any` values as they are, and some of its readers accept only binary YSON.
Values are written as the source reads them, so a row has one hash. What that would lose is refused.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.values import UnfitValueError
from yt_exactly_once.codec.yson_fragments import Picked, Pieces, literals

if TYPE_CHECKING:
    import pyarrow as pa

NOT_ONE_VALUE = "its bytes are not one YSON value"
TOO_LARGE_NUMBER = "it has a number outside the range of double"
REPEATED_KEY = "one of its maps has a key twice"

_PASSED = re.compile(rb'[][{}<>; \t\n\r\v\f]+|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BARE = re.compile(rb"[A-Za-z0-9_%+.\-]+")


def any_values(array: pa.Array) -> Pieces:
    """Encode values without nulls; raise `UnfitValueError` for bytes that are not one YSON value."""
    return [Picked(literals(*_all_binary(array)))]


def any_keys(array: pa.Array) -> Pieces:
    """Encode keys, with equal bytes where the cluster takes them for one; raise as for values.

    Maps and attributes cannot be compared, so a key has none.
    """
    parsed = map(bindings.parse_value, _all_binary(array))
    return [Picked(literals(*(bindings.write_value(_with_one_zero(value)) for value in parsed)))]


def _all_binary(array: pa.Array) -> list[bytes]:
    return [to_binary(row, value) for row, value in enumerate(array.to_pylist())]


def to_binary(row: int, value: bytes) -> bytes:
    """Return a row's value as binary YSON; raise `UnfitValueError` if it is none, or would lose a part."""
    if value.lstrip().startswith(b"<"):
        raise UnfitValueError(row, "a column value cannot have attributes at its top")
    try:
        written = bindings.write_value(bindings.parse_value(value))
    except ValueError:
        raise UnfitValueError(row, NOT_ONE_VALUE) from None
    if written == value:
        return value
    if _keys(row, value) != _keys(row, written):
        raise UnfitValueError(row, REPEATED_KEY)
    return written


def _with_one_zero(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_one_zero(item) for item in value]
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


def _keys(row: int, value: bytes) -> int:
    """Count the keys in a value that the bindings have parsed; raise as `to_binary` does."""
    count = position = 0
    while position < len(value):
        if value[position] == yson.EQUALS:
            count += 1
            position += 1
        elif value[position] == yson.STRING:
            position = yson.string_at(value, position).stop
        elif passed := yson.TOKEN.match(value, position) or _PASSED.match(value, position):
            position = passed.end()
        elif bare := _BARE.match(value, position):
            position = bare.end()
            number = bindings.parse_value(bare[0])
            if isinstance(number, float) and math.isinf(number) and bare[0][:1] != b"%":
                raise UnfitValueError(row, TOO_LARGE_NUMBER)
        else:
            # The bindings stop at a zero byte, and what follows would be lost.
            raise UnfitValueError(row, NOT_ONE_VALUE)
    return count
