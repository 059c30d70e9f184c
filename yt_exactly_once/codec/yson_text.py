"""YSON that a user gives as bytes, text or binary, for `yson` columns: checked to be one value, made binary.

The cluster stores the bytes of `any` values as they are, and some of its readers accept only binary YSON.
Values are written as the source reads them, so a row has one hash. What that would lose is refused.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import bindings
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.values import UnfitValueError, as_asked, no_constant
from yt_exactly_once.codec.yson_fragments import Picked, Pieces, literals

NOT_ONE_VALUE = "its bytes are not one YSON value"
TOO_LARGE_NUMBER = "it has a number outside the range of double"
TOO_LARGE_INTEGER = "it has a whole number that neither int64 nor uint64 holds"
TOO_MANY_DIGITS = "it has a number with more digits than a double holds"
REPEATED_KEY = "one of its maps has a key twice"

_LEAST, _MOST = -(2**63), 2**64 - 1
_DIGITS = 16, 17
_PASSED = re.compile(rb'[][{}<>; \t\n\r\v\f]+|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BARE = re.compile(rb"[A-Za-z0-9_%+.\-]+")


def any_values(array: pa.Array) -> Pieces:
    """Encode values without nulls; raise `UnfitValueError` for bytes that are not one YSON value."""
    return [Picked(literals(*_all_binary(array)))]


def yson_of_json(array: pa.Array) -> pa.Array:
    """Return JSON as binary YSON; raise `UnfitValueError` for what YSON has no equal value for."""
    texts = array.cast(pa.large_binary()).to_pylist()
    return pa.array(
        [None if text is None else _yson_of_json(row, text) for row, text in enumerate(texts)],
        pa.large_binary(),
    )


def _yson_of_json(row: int, text: bytes) -> bytes:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise UnfitValueError(row, REPEATED_KEY)
        return found

    def integer(number: str) -> int:
        if not _LEAST <= int(number) <= _MOST:
            raise UnfitValueError(row, TOO_LARGE_INTEGER)
        return int(number)

    def floating(number: str) -> float:
        found = float(number)
        if math.isinf(found):
            raise UnfitValueError(row, TOO_LARGE_NUMBER)
        # Java writes some numbers with more digits than the fewest that tell them from others.
        if Decimal(number) not in {
            Decimal(repr(found)),
            *(Decimal(f"{found:.{n}g}") for n in _DIGITS),
        }:
            raise UnfitValueError(row, TOO_MANY_DIGITS)
        return found

    try:
        parsed = json.loads(
            text,
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=floating,
            parse_constant=no_constant,
        )
        return bindings.write_text(parsed)
    except (ValueError, RecursionError):
        raise UnfitValueError(row, "it is not valid JSON") from None


def as_any(plain: pa.Array, asked: pa.DataType) -> pa.Array:
    """Read binary YSON, as it is or as JSON; raise `UnfitValueError` for what JSON has no value for."""
    if not pa.types.is_string(asked):
        return as_asked(plain, asked)
    values = enumerate(plain.to_pylist())
    return pa.array([None if each is None else _json_of(row, each) for row, each in values], asked)


def _json_of(row: int, value: bytes) -> str:
    try:
        return json.dumps(
            _json_value(bindings.parse_value(value)), ensure_ascii=False, allow_nan=False
        )
    except UnicodeDecodeError:
        raise UnfitValueError(
            row, "it has bytes that are no text, which JSON cannot hold"
        ) from None
    except (ValueError, RecursionError):
        raise UnfitValueError(row, "JSON has no NaN, no infinity and no attributes") from None


def _json_value(value: Any) -> Any:
    """Return a value that was parsed with texts for bytes; raise `ValueError` if it has attributes."""
    if getattr(value, "attributes", None):
        raise ValueError
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {key.decode(): _json_value(item) for key, item in value.items()}
    return value if isinstance(value, (int, float)) else None


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
