"""The form values have in SQLite, for functions that run inside it.

It converts between stored values and the plain values of functions. Unsigned integers are stored in two's
complement, booleans as 0 and 1, NaN as a text, `any` as binary YSON. `tables.values` defines these encodings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.values import NAN, encode_double

__all__ = ["NAN", "decoder", "encode_double", "encoder", "flip", "to_signed", "to_unsigned"]

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SIGN = 1 << 63

Converter = Callable[[Any], Any]


def to_unsigned(value: int) -> int:
    """Read 64 bits as an unsigned integer."""
    return value & _MASK


def to_signed(value: int) -> int:
    """Reduce an integer to 64 bits and read them as a signed one."""
    bits = value & _MASK
    return bits - (1 << 64) if bits & _SIGN else bits


def flip(value: int | None) -> int | None:
    """Map stored unsigned integers to signed ones of the same order, and back."""
    return None if value is None else to_signed(value ^ _SIGN)


def decoder(kind: Type) -> Converter | None:
    """Return the function from a stored non-null value to a plain one; None if they are the same."""
    return _DECODERS.get(kind)


def encoder(kind: Type) -> Converter | None:
    """Return the function from a plain non-null value to a stored one; None if they are the same."""
    return _ENCODERS.get(kind)


_DECODERS: dict[Type, Converter] = {
    Type.UINT64: to_unsigned,
    Type.BOOLEAN: bool,
    Type.DOUBLE: lambda stored: math.nan if stored == NAN else stored,
}
_ENCODERS: dict[Type, Converter] = {
    Type.UINT64: to_signed,
    Type.BOOLEAN: int,
    Type.DOUBLE: encode_double,
}
