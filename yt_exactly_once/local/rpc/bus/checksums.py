"""The checksum of packets: a CRC of 64 bits with a polynomial of YTsaurus's own.

Long data is cut into segments of words. All segments are computed side by side, one word of each at a time.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

_Words = npt.NDArray[np.uint64]

_POLYNOMIAL = 0xE543279765927881
_MASK = (1 << 64) - 1
_LONG_BYTES = 1 << 14


def checksum_of(data: bytes) -> int:
    """Return the checksum; that of no bytes, or of zeros alone, is 0, which stands for none."""
    length = 64 if len(data) >= _LONG_BYTES else 8
    short = len(data) % (8 * length)
    one = _of_bytes()
    checksum = 0
    for byte in data[:short]:
        checksum = (checksum << 8) & _MASK ^ one[checksum >> 56 ^ byte]
    if short < len(data):
        words = np.frombuffer(data, "<u8", offset=short).reshape(-1, length)
        passed = _passed(length)
        for each in _of_segments(words).tolist():
            for place, byte in enumerate(checksum.to_bytes(8, "big")):
                each ^= passed[place][byte]  # noqa: PLW2901
            checksum = each
    return checksum


def _of_segments(words: _Words) -> _Words:
    """Return the checksum of each row."""
    tables = _of_pairs()
    checksums = np.zeros(len(words), np.uint64)
    for column in np.ascontiguousarray(words.T):
        pairs = (checksums.byteswap() ^ column).view("<u2").reshape(-1, 4)
        checksums = tables[0].take(pairs[:, 0])
        for place in (1, 2, 3):
            checksums ^= tables[place].take(pairs[:, place])
    return checksums


@cache
def _of_bytes() -> list[int]:
    """Return the checksum of each byte."""
    checksums = []
    for byte in range(256):
        checksum = byte << 56
        for _ in range(8):
            checksum = (checksum << 1) & _MASK ^ (_POLYNOMIAL if checksum >> 63 else 0)
        checksums.append(checksum)
    return checksums


@cache
def _of_pairs() -> list[_Words]:
    """Return the checksum of each two bytes, as a little-endian number, before 6, 4, 2, 0 bytes of zeros."""
    one = np.array(_of_bytes(), np.uint64)

    def pass_zero(checksums: _Words) -> _Words:
        passed: _Words = (checksums << np.uint64(8)) ^ one[checksums >> np.uint64(56)]
        return passed

    pairs = np.arange(1 << 16)
    tables = [pass_zero(one[pairs & 255]) ^ one[pairs >> 8]]
    for _ in range(3):
        tables.insert(0, pass_zero(pass_zero(tables[0])))
    return tables


@cache
def _passed(length: int) -> list[list[int]]:
    """Return what each byte of a checksum becomes after so many words of zeros, from the first byte on."""
    words = np.zeros((8 * 256, length), "<u8")
    words[:, 0] = [byte << 8 * place for place in range(8) for byte in range(256)]
    return _of_segments(words).reshape(8, 256).tolist()
