"""Which values a simple type takes: ranges of numbers, and what strings may hold.

Owns the rules of `yt/yt/client/table_client/validate_logical_type.h`, for values that already have the
right wire type. Whole columns and the parts of composite values are checked by the same functions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from typing import Any

from yt_exactly_once.local.errors import Code, YtError

_DATE_END = 49_673
_DATE32_END = 53_375_808
_DATE32_START = -_DATE32_END - 1
_DAY = 86_400
_US = 1_000_000
_TIMESTAMP_END = _DATE_END * _DAY * _US
_INTERVAL64_END = (_DATE32_END - _DATE32_START) * _DAY * _US + 1

RANGES: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    "date": (0, _DATE_END - 1),
    "datetime": (0, _DATE_END * _DAY - 1),
    "timestamp": (0, _TIMESTAMP_END - 1),
    "interval": (1 - _TIMESTAMP_END, _TIMESTAMP_END - 1),
    "date32": (_DATE32_START, _DATE32_END - 1),
    "datetime64": (_DATE32_START * _DAY, _DATE32_END * _DAY - 1),
    "timestamp64": (_DATE32_START * _DAY * _US, _DATE32_END * _DAY * _US - 1),
    "interval64": (1 - _INTERVAL64_END, _INTERVAL64_END - 1),
}
"""First and last value of every type that travels as an integer."""

FLOAT_MAX = 3.4028234663852886e38
UUID_LENGTH = 16


def check_integers(name: str, given: Sequence[int]) -> None:
    """Refuse integers outside the range of their type."""
    low, high = RANGES[name]
    if not given or (low <= min(given) and max(given) <= high):
        return
    for value in given:
        if not low <= value <= high:
            raise YtError(
                f"Value {value} is out of allowed range [{low}, {high}]", Code.SCHEMA_VIOLATION
            )


def check_floats(given: Iterable[float]) -> None:
    """Refuse finite numbers that single precision cannot hold."""
    for value in given:
        if FLOAT_MAX < abs(value) < float("inf"):
            raise YtError(
                f"Value {value} is out of allowed range [-{FLOAT_MAX}, {FLOAT_MAX}]",
                Code.SCHEMA_VIOLATION,
            )


def check_strings(name: str, given: Iterable[bytes]) -> None:
    """Refuse strings that their type does not allow; plain strings may hold anything."""
    check = _STRING_CHECKS.get(name)
    if check is not None:
        check(given)


def check_decimals(logical: dict[str, Any], given: Iterable[bytes]) -> None:
    """Refuse decimals of a wrong length or with more digits than the type has.

    The largest values of a width are NaN and the infinities; they fit any precision.
    """
    precision, scale = logical["precision"], logical["scale"]
    length = decimal_length(precision)
    half = 1 << (8 * length - 1)
    special = _specials(half)
    limit = 10**precision
    for value in given:
        if len(value) != length:
            raise YtError(
                f"Decimal<{precision},{scale}> binary value representation has invalid length: "
                f"actual {len(value)}, expected {length}",
                Code.SCHEMA_VIOLATION,
            )
        number = int.from_bytes(value, "big") - half
        if not -limit < number < limit and number not in special:
            raise YtError(
                f"Decimal<{precision},{scale}> does not have enough precision to represent "
                f'"{_shown(number, scale)}"',
                Code.SCHEMA_VIOLATION,
                {"binary_value": value.hex().upper()},
            )


def _specials(half: int) -> dict[int, str]:
    """Return the numbers that stand for what is no number; minus infinity is not the smallest one."""
    return {2 - half: "-inf", half - 2: "inf", half - 1: "nan"}


def pack_decimal(logical: dict[str, Any], number: Decimal) -> bytes:
    """Return the binary form of a decimal.

    Raises:
        YtError: it has more digits before or after the point than the type.
    """
    precision, scale = logical["precision"], logical["scale"]
    length = decimal_length(precision)
    half = 1 << (8 * length - 1)
    if not number.is_finite():
        named = {name: found for found, name in _specials(half).items()}
        name = "nan" if number.is_nan() else "inf" if number > 0 else "-inf"
        return (named[name] + half).to_bytes(length, "big")
    with localcontext(prec=2 * (precision + scale) + abs(number.adjusted()) + 2):
        scaled = number.scaleb(scale)
        fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**precision
    if not fits:
        raise YtError(f"{number} does not fit Decimal<{precision},{scale}>", Code.SCHEMA_VIOLATION)
    return (int(scaled) + half).to_bytes(length, "big")


def show_decimal(logical: dict[str, Any], value: bytes) -> str:
    """Return the text of a decimal in its binary form."""
    half = 1 << (8 * len(value) - 1)
    number = int.from_bytes(value, "big") - half
    return _specials(half).get(number) or _shown(number, logical["scale"])


def decimal_length(precision: int) -> int:
    """Return how many bytes the binary form of a decimal takes."""
    return next(
        length for digits, length in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= digits
    )


def _shown(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _check_utf8(given: Iterable[bytes]) -> None:
    try:
        for value in given:
            value.decode()
    except UnicodeDecodeError as error:
        raise YtError("Not a valid utf8 string", Code.SCHEMA_VIOLATION) from error


def _check_json(given: Iterable[bytes]) -> None:
    try:
        for value in given:
            json.loads(value.decode(), parse_constant=no_constant, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise YtError(f"Invalid JSON: {error}", Code.SCHEMA_VIOLATION) from error


def no_constant(name: str) -> None:
    """Refuse NaN and infinities in JSON."""
    raise ValueError(f"JSON has no {name}")


def finite(number: str) -> float:
    """Return a number of JSON, which is infinite only where its text says so."""
    value = float(number)
    if math.isinf(value) and number.lstrip("+-").lower() not in {"inf", "infinity"}:
        raise ValueError("a number is outside the range of double")
    return value


def _check_uuid(given: Iterable[bytes]) -> None:
    if any(len(value) != UUID_LENGTH for value in given):
        raise YtError("Not a valid Uuid", Code.SCHEMA_VIOLATION)


_STRING_CHECKS: dict[str, Callable[[Iterable[bytes]], None]] = {
    "utf8": _check_utf8,
    "json": _check_json,
    "uuid": _check_uuid,
}
