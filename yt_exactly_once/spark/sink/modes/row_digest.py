"""A digest of rows and of their numbers: it shows whether a replay gives the rows that were pushed.

A task hashes each row, and folds the hashes and the numbers of its rows into a sum. The sum does not depend
on how the rows are cut into chunks, and it can be continued from where an earlier task left it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, Any]

_BITS = 64
_MODULUS = 1 << _BITS

# Constants of the finalizer of SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def seed_of(names: Collection[str]) -> int:
    """Return a number that depends on the names of the hashed columns: a null leaves no trace in a hash."""
    text = json.dumps(sorted(names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_BITS // 8).digest(), "little")


def mixed(hashes: Numbers, numbers: Numbers, seed: int) -> Numbers:
    """Return, for each row, what it adds to the digest.

    Args:
        hashes: one per row.
        numbers: one per row.
        seed: from `seed_of`.
    """
    value = numbers.view(np.uint64) * _STEP
    value ^= hashes.view(np.uint64) ^ np.uint64(seed)
    first, second, third = _SHIFTS
    value = (value ^ (value >> first)) * _FIRST_FACTOR
    value = (value ^ (value >> second)) * _SECOND_FACTOR
    return value ^ (value >> third)


def added(digest: int, parts: Numbers) -> int:
    """Return a digest with more rows in it."""
    return (digest + int(parts.sum(dtype=np.uint64))) % _MODULUS


def spelled(digest: int) -> str:
    """Return a digest as it is kept in a session."""
    return f"{digest:0{_BITS // 4}x}"
