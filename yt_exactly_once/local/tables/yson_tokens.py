"""The tokens of many binary YSON values at once, without a Python object per token.

All values are read side by side: each step takes one token of every value that is not at its end yet. Only
what the cluster itself would write is known here: binary scalars, a separator after every item. Other
spellings of YSON are left to the parser of the client library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.tables import types

STRING, INT64, DOUBLE, FALSE, TRUE, UINT64 = range(1, 7)
ENTITY, OPEN, CLOSE, SEPARATOR = b"#[];"
MARKS = {
    **dict.fromkeys(types.SIGNED, INT64),
    **dict.fromkeys(types.UNSIGNED, UINT64),
    **dict.fromkeys(types.FLOATING, DOUBLE),
    **dict.fromkeys(types.STRING_LIKE, STRING),
}
"""By type, the first byte of a value that is not null."""

PADDING = bytes(16)
"""What bytes that are read by vector are followed by."""

_SIZES = np.zeros(256, np.int32)
"""Bytes of a token by its first one, without a varint and what it announces; 0 for what is not known."""
_SIZES[[STRING, INT64, UINT64, FALSE, TRUE, ENTITY, OPEN, CLOSE]] = 1
_SIZES[DOUBLE] = 9
_HAS_VARINT = np.zeros(256, bool)
_HAS_VARINT[[STRING, INT64, UINT64]] = True

_BITS = 7
_MORE = 0x80
_LAST_SHIFT = 63
FEW = 32
LONG = 64
"""If few values have more tokens than this, they are read faster one by one."""


class UnknownSpellingError(Exception):
    """The bytes are not the YSON that this module knows."""


def require(condition: Any) -> None:
    """Raise `UnknownSpellingError` if something does not hold."""
    if not condition:
        raise UnknownSpellingError


@dataclass(frozen=True)
class Tokens:
    """The tokens of values, value after value.

    Attributes:
        marks: first byte of each token.
        places: where each token begins in the bytes.
        ends: where each token ends; a separator may follow.
        numbers: what the varint of a token says; 0 for tokens without one.
        depths: how many lists are open before each token.
        firsts: which token is the first one of each value.
    """

    marks: Any
    places: Any
    ends: Any
    numbers: Any
    depths: Any
    firsts: Any

    @cached_property
    def closing(self) -> Any:
        """For each opening token, the token that closes the list."""
        closing = np.zeros(len(self.marks), np.int64)
        opens, closes = self.marks == OPEN, self.marks == CLOSE
        for depth in range(int(self.depths.max(initial=0))):
            # At one depth lists follow each other: one is closed before the next is opened.
            begun = np.flatnonzero(opens & (self.depths == depth))
            closing[begun] = np.flatnonzero(closes & (self.depths == depth + 1))
        return closing

    def items(self, opening: Any) -> tuple[Any, Any]:
        """Return the first tokens of the items of lists, list after list, and how many each list has.

        Args:
            opening: tokens that open lists, all at one depth.
        """
        if not len(opening):
            return opening, opening
        depth = self.depths[opening[0]] + 1
        begins = (self.depths == depth) & (self.marks != CLOSE)
        items = np.flatnonzero(begins)
        before = np.cumsum(begins)
        first, past = before[opening], before[self.closing[opening]]
        counts = past - first
        if len(items) == int(counts.sum()):
            return items, counts
        shifts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return items[shifts + np.arange(len(shifts))], counts


def tokens(data: Any, begins: Any, ends: Any) -> Tokens:
    """Read values.

    Args:
        data: the bytes, followed by at least ten others.

    Raises:
        UnknownSpellingError: one of them is not written as this module knows it, or is very long.
    """
    reading = _Reading(data, begins, ends)
    while len(reading.places):
        reading.step()
    return reading.gathered()


def varints(data: Any, places: Any) -> tuple[Any, Any]:
    """Return the numbers that begin at places, and how many bytes each takes."""
    found = data[places]
    numbers = (found & np.uint8(_MORE - 1)).astype(np.uint64)
    sizes = np.ones(len(places), np.int32)
    longer = np.flatnonzero(found >= _MORE)
    shift = 0
    while len(longer):
        shift += _BITS
        require(shift <= _LAST_SHIFT)
        found = data[places[longer] + sizes[longer]]
        sizes[longer] += 1
        # A last byte of zero is one too many, and the tenth byte has one bit.
        require(found.all() and (shift < _LAST_SHIFT or (found == 1).all()))
        numbers[longer] |= (found & np.uint8(_MORE - 1)).astype(np.uint64) << np.uint64(shift)
        longer = longer[found >= _MORE]
    return numbers, sizes


def unzigzag(numbers: Any) -> Any:
    """Return the signed numbers that unsigned ones stand for."""
    one = np.uint64(1)
    return ((numbers >> one) ^ (~(numbers & one) + one)).view(np.int64)


def between(data: Any, begins: Any, ends: Any, null: Any = None, ranks: Any = None) -> Any:
    """Return the bytes between places, which follow each other in the data; null where a mask says so.

    With ranks they come in another order.
    """
    # One array of what is asked for and of what lies between, in turn; then the former alone.
    edges = np.empty(2 * len(begins) + 1, np.int64)
    edges[0:-1:2], edges[1::2], edges[-1] = begins, ends, len(data)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    turns = pa.Array.from_buffers(pa.large_binary(), 2 * len(begins), buffers)
    wanted = np.arange(len(begins)) if ranks is None else ranks
    return turns.take(pa.array(2 * wanted, mask=null))


class _Reading:
    """Values that are read side by side: `places` is where each of those that are left has got to."""

    def __init__(self, data: Any, begins: Any, ends: Any) -> None:
        self._data = data
        self.places = begins
        self._ends = ends
        self._values = np.arange(len(begins))
        self._depths = np.zeros(len(begins), np.int32)
        self._counts = np.zeros(len(begins), np.int64)
        self._steps: list[tuple[Any, ...]] = []

    def step(self) -> None:
        """Read one token of every value."""
        data, places = self._data, self.places
        require(len(places) >= FEW or len(self._steps) < LONG)
        marks = data[places]
        sizes = _SIZES[marks]
        require(sizes.all())
        numbers = np.zeros(len(places), np.uint64)
        measured = np.flatnonzero(_HAS_VARINT[marks])
        if len(measured):
            found, lengths = varints(data, places[measured] + 1)
            numbers[measured] = found
            texts = marks[measured] == STRING
            # A length is a signed number, and never negative.
            require(not (found[texts] & np.uint64(1)).any())
            require((found[texts] <= np.uint64(2 * len(data))).all())
            sizes[measured] += lengths + np.where(texts, found >> np.uint64(1), 0).astype(np.int32)
        past = places + sizes
        require((past <= self._ends).all())
        self._steps.append((self._values, marks, places, past, numbers, self._depths))
        self._counts[self._values] += 1
        opens = marks == OPEN
        depths = self._depths + opens - (marks == CLOSE)
        self._go_on(past, depths, opens)

    def _go_on(self, past: Any, depths: Any, opens: Any) -> None:
        """Step over separators, and leave out the values that are at their end."""
        left = depths > 0
        finished = ~left
        require((past[finished] == self._ends[finished]).all() and (depths >= 0).all())
        separated = self._data[past] == SEPARATOR
        # Inside of a list a separator follows whatever does not open another one.
        require((separated == ~opens)[left].all())
        past = past + separated
        if not left.all():
            past, depths = past[left], depths[left]
            self._values, self._ends = self._values[left], self._ends[left]
        self.places, self._depths = past, depths

    def gathered(self) -> Tokens:
        """Return the tokens value after value."""
        firsts = np.cumsum(self._counts) - self._counts
        columns = [
            np.empty(int(self._counts.sum()), kind)
            for kind in (np.uint8, np.int32, np.int32, np.uint64, np.int32)
        ]
        for number, (values, *parts) in enumerate(self._steps):
            targets = firsts[values] + number
            for column, part in zip(columns, parts, strict=True):
                column[targets] = part
        marks, places, ends, numbers, depths = columns
        return Tokens(marks, places, ends, numbers, depths, firsts)
