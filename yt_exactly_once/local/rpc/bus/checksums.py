"""The checksum of packets: a 64-bit CRC, most significant bit first, that starts at zero.

Since it starts at zero, zeros in front of the data change nothing, and the checksum of `ab` is that of `a`
moved over `b` plus that of `b`. Long data is therefore cut into lanes that numpy computes side by side.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_POLYNOMIAL = 0xE543279765927881
_MASK = (1 << 64) - 1
Words = Any
"""An array of checksums."""

_SHORT = 2048
"""Bytes up to which a loop in Python is faster."""

_LANE = 64
"""Bytes of a lane."""

_BLOCK = 1 << 20
"""Bytes that are cut into lanes at a time, so that the lanes stay in the processor's cache."""


def crc64(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of some bytes."""
    if len(data) <= _SHORT:
        return _short(bytes(data))
    checksum = 0
    first = len(data) % _BLOCK
    for start, end in zip(
        [0, *range(first, len(data), _BLOCK)], range(first, len(data) + 1, _BLOCK), strict=True
    ):
        if end > start:
            block = np.frombuffer(data, np.uint8, end - start, start)
            checksum = _moved(checksum, _BLOCK) ^ _of_lanes(block)
    return checksum


def _short(data: bytes) -> int:
    table = _table()
    checksum = 0
    for byte in data:
        checksum = (checksum << 8 & _MASK) ^ table[checksum >> 56 ^ byte]
    return checksum


def _of_lanes(data: Words) -> int:
    lanes = -(-len(data) // _LANE)
    padded = np.zeros(lanes * _LANE, np.uint8)
    padded[len(padded) - len(data) :] = data
    words = padded.view(">u2").astype(np.uint64).reshape(lanes, -1).T.copy()
    wide = _wide_table()
    found = np.zeros(lanes, np.uint64)
    for word in words:
        found = (found << np.uint64(16)) ^ wide[(found >> np.uint64(48)) ^ word]
    length = _LANE
    while len(found) > 1:
        if len(found) % 2:
            found = np.concatenate([np.zeros(1, np.uint64), found])
        found = _apply(_mover(length), found[::2]) ^ found[1::2]
        length *= 2
    return int(found[0])


def _moved(checksum: int, length: int) -> int:
    """Return what a checksum becomes when as many zeros follow; the length is a power of two."""
    return int(_apply(_mover(length), np.array([checksum], np.uint64))[0])


@lru_cache(maxsize=64)
def _mover(length: int) -> Words:
    """Return tables, one per byte of a checksum, that move it over zeros."""
    basis = np.uint64(1) << np.arange(64, dtype=np.uint64)
    if length == 1:
        table = np.array(_table(), np.uint64)
        images = (basis << np.uint64(8)) ^ table[basis >> np.uint64(56)]
    else:
        half = _mover(length // 2)
        images = _apply(half, _apply(half, basis))
    bits = np.arange(256)
    tables = np.zeros((8, 256), np.uint64)
    for bit in range(8):
        chosen = (bits >> bit & 1).astype(bool)
        tables[:, chosen] ^= images.reshape(8, 8)[:, bit : bit + 1]
    return tables


def _apply(tables: Words, checksums: Words) -> Words:
    moved = np.zeros_like(checksums)
    for number, table in enumerate(tables):
        moved ^= table[(checksums >> np.uint64(8 * number)) & np.uint64(255)]
    return moved


@lru_cache(maxsize=1)
def _table() -> list[int]:
    table = []
    for byte in range(256):
        checksum = byte << 56
        for _ in range(8):
            carry = checksum >> 63
            checksum = (checksum << 1 & _MASK) ^ (_POLYNOMIAL if carry else 0)
        table.append(checksum)
    return table


@lru_cache(maxsize=1)
def _wide_table() -> Words:
    """Return the table for two bytes at a time."""
    table = np.array(_table(), np.uint64)
    words = np.arange(1 << 16, dtype=np.uint64)
    first = table[words >> np.uint64(8)]
    return (first << np.uint64(8)) ^ table[(first >> np.uint64(56)) ^ (words & np.uint64(255))]
