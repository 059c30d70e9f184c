"""FarmHash fingerprints, bit for bit as computed columns of sorted tables use them.

Google's FarmHash comes from the package `cityhash`. Owns the fingerprint of an integer, and how the
fingerprints of several values are combined.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import farmhash

from yt_exactly_once.local.ql.value_types import Type

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_MULTIPLIER = 0x9DDFEA08EB382D69
_SEED = 0xDEADC0DE

_pack_double = struct.Struct("<d").pack


def fingerprint_of_values(types: Sequence[Type], values: Sequence[Any]) -> int:
    """Combine the fingerprints of values, as the function `farm_hash` does."""
    result = _SEED
    for kind, value in zip(types, values, strict=True):
        result = _combine(result, fingerprint_of_value(kind, value))
    return result ^ len(values)


def fingerprint_of_value(kind: Type, value: Any) -> int:
    """Return the fingerprint of one value; null hashes like zero."""
    if value is None:
        return fingerprint_of_integer(0)
    if kind is Type.STRING:
        return int(farmhash.Fingerprint64(value))
    if kind is Type.DOUBLE:
        return fingerprint_of_integer(int.from_bytes(_pack_double(value), "little"))
    return fingerprint_of_integer(int(value) & _MASK)


def fingerprint_of_integer(value: int) -> int:
    """Return the fingerprint of 64 bits."""
    mixed = value * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 44) * _MULTIPLIER & _MASK
    return (mixed ^ mixed >> 41) * _MULTIPLIER & _MASK


def _combine(first: int, second: int) -> int:
    low = (first ^ second) * _MULTIPLIER & _MASK
    low ^= low >> 47
    high = (second ^ low) * _MULTIPLIER & _MASK
    high = (high ^ high >> 44) * _MULTIPLIER & _MASK
    return (high ^ high >> 41) * _MULTIPLIER & _MASK
