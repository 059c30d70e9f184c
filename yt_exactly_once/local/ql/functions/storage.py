"""The form values have in SQLite, for functions that run inside it.

It converts between stored values and the plain values of functions. Unsigned integers are stored in two's
complement, booleans as 0 and 1, NaN as a text, `any` as binary YSON. `tables.values` defines these encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yt_exactly_once.local.ql.arithmetic import wrap
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.values import decode_double, encode_double

_SIGN = 1 << 63

DECODERS: dict[Type, Callable[[Any], Any]] = {
    Type.UINT64: lambda stored: wrap(Type.UINT64, stored),
    Type.BOOLEAN: bool,
    Type.DOUBLE: decode_double,
}
"""From a stored value that is not null to a plain one, where they differ."""

ENCODERS: dict[Type, Callable[[Any], Any]] = {
    Type.UINT64: lambda value: wrap(Type.INT64, value),
    Type.BOOLEAN: int,
    Type.DOUBLE: encode_double,
}
"""From a plain value that is not null to a stored one, where they differ."""


def flip(value: int | None) -> int | None:
    """Map stored unsigned integers to signed ones of the same order, and back."""
    return None if value is None else wrap(Type.INT64, value ^ _SIGN)
