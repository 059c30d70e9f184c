"""Bytes read eight at a time, as one number, from any positions on: faster than byte by byte."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from yt_exactly_once.codec.yson_marks import require

Numbers: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_WORD = 8
_LONGEST_VARINT = 10


class Words:
    """Words of eight bytes at any positions. The first byte is the lowest; zeros follow the last.

    Args:
        rows: the bytes, which are not copied: there may be many megabytes of them.
    """

    def __init__(self, rows: bytes) -> None:
        self._late = max(len(rows) - _WORD + 1, 0)
        # The words that do not end before the last byte, and those of a varint there.
        self._tail = _overlapping(rows[self._late :] + bytes(3 * _WORD))
        self._words = _overlapping(rows) if self._late else self._tail

    def at(self, positions: Positions) -> Numbers:
        """Return the word at each position; raise `IndexError` if a position is far behind the last byte."""
        late = positions >= self._late
        if not late.any():
            return self._words[positions]
        found = self._words[np.where(late, 0, positions)]
        found[late] = self._tail[positions[late] - self._late]
        return found

    def behind(self, positions: Positions, literal: bytes) -> tuple[Mask, Bytes]:
        """Tell at which positions a literal begins, and return the byte behind it."""
        found = np.ones(len(positions), np.bool_)
        full = len(literal) // _WORD * _WORD
        for start in range(0, full, _WORD):
            word = literal[start : start + _WORD]
            found &= self.at(positions + start) == np.uint64(int.from_bytes(word, "little"))
        # One word has the rest of the literal and what follows.
        words, rest = self.at(positions + full), literal[full:]
        bits = 8 * len(rest)
        found &= words & np.uint64((1 << bits) - 1) == np.uint64(int.from_bytes(rest, "little"))
        return found, (words >> np.uint64(bits)).view(np.uint8)[::_WORD]

    def varints(self, positions: Positions) -> tuple[Numbers, Positions]:
        """Decode the varint at each position, and its size; raise `UnevenError` if one takes over 64 bits."""
        words = self.at(positions)
        # The lowest byte without the flag of a further byte is the last one.
        ends = ~words & np.uint64(0x8080808080808080)
        ends &= ~ends + np.uint64(1)
        numbers = words & ((ends << np.uint64(1)) - np.uint64(1))
        # Seven bits of each byte, then fourteen of each two, then 28 of each four.
        for bits, low, high in _GROUPS:
            numbers = (numbers & low) | ((numbers & high) >> bits)
        # The number of the byte whose highest bit is set, from 1; 0 if none is.
        sizes = (((ends >> np.uint64(7)) * np.uint64(0x0102030405060708)) >> np.uint64(56)).view(
            np.int64
        )
        long = sizes == 0
        if long.any():
            words = self.at(positions[long] + _WORD)
            ninth, tenth = words & np.uint64(0xFF), (words >> np.uint64(8)) & np.uint64(0xFF)
            more = ninth >= 0x80  # noqa: PLR2004 - the flag of a further byte
            require((tenth[more] <= 1).all())
            numbers[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            numbers[long] |= np.where(more, tenth, np.uint64(0)) << np.uint64(63)
            sizes[long] = np.where(more, _LONGEST_VARINT, _LONGEST_VARINT - 1)
        return numbers, sizes


_GROUPS = [
    (np.uint64(bits), np.uint64(low), np.uint64(high))
    for bits, low, high in (
        (1, 0x007F007F007F007F, 0x7F007F007F007F00),
        (2, 0x00003FFF00003FFF, 0x3FFF00003FFF0000),
        (4, 0x000000000FFFFFFF, 0x0FFFFFFF00000000),
    )
]


def _overlapping(data: bytes) -> Numbers:
    """Return the word at every position."""
    return np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
