"""FarmHash fingerprints, bit for bit as computed columns of sorted tables use them.

Google's FarmHash comes from the package `cityhash`. Owns the fingerprint of an integer, and how the
fingerprints of several values are combined.
"""

from __future__ import annotations

from typing import Any

import farmhash

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_MULTIPLIER = 0x9DDFEA08EB382D69
_SEED = 0xDEADC0DE


def fingerprint_of_values(*values: Any) -> int:
    """Combine the fingerprints of values, as the function `farm_hash` does."""
    result = _SEED
    for value in values:
        result = _combine(result, fingerprint_of_value(value))
    return result ^ len(values)


def fingerprint_of_value(value: Any) -> int:
    """Return the fingerprint of an integer, a boolean or a string; null hashes like zero."""
    if isinstance(value, bytes):
        return int(farmhash.Fingerprint64(value))
    mixed = int(value or 0) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 44) * _MULTIPLIER & _MASK
    return (mixed ^ mixed >> 41) * _MULTIPLIER & _MASK


def _combine(first: int, second: int) -> int:
    low = (first ^ second) * _MULTIPLIER & _MASK
    low ^= low >> 47
    high = (second ^ low) * _MULTIPLIER & _MASK
    high = (high ^ high >> 44) * _MULTIPLIER & _MASK
    return (high ^ high >> 41) * _MULTIPLIER & _MASK
