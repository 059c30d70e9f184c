"""Composite values in binary YSON as plain Arrow arrays, without a Python object per value.

The values of all rows are read side by side: a round takes the next token of every value that is not
complete. Afterwards the tokens are compared with the type, level by level. Structs have their members in the
order of the type, as the cluster writes them. Whatever differs is left to the general parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yt_exactly_once.codec import types
from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.arrow_types import struct_fields
from yt_exactly_once.codec.buffers import from_numpy, list_array, struct_array
from yt_exactly_once.codec.scalars import Scalar
from yt_exactly_once.codec.values import Room, width
from yt_exactly_once.codec.yson_marks import UnevenError, require
from yt_exactly_once.codec.yson_words import Bytes, Mask, Numbers, Positions, Words

_MARKERS = {
    pa.binary(): yson.STRING,
    pa.int64(): yson.INT64,
    pa.uint64(): yson.UINT64,
    pa.float64(): yson.DOUBLE,
}
"""First byte of a value by the Arrow type that it is parsed into."""

_MEASURED = (yson.STRING, yson.INT64, yson.UINT64)
_OPENING, _CLOSING = (yson.OPEN_LIST, yson.OPEN_MAP), (yson.CLOSE_LIST, yson.CLOSE_MAP)
_ONE_BYTE = (yson.FALSE, yson.TRUE, yson.ENTITY, *_OPENING, *_CLOSING)
STEPS = np.zeros(256, np.int8)
STEPS[[*_OPENING]] = 1
STEPS[[*_CLOSING]] = -1
_MANY_ROUNDS, FEW_VALUES = 64, 32
"""After so many rounds, fewer values than that are read faster one by one."""
_FEWEST_BYTES = 1 << 21
"""Of items as Arrow: so many are made at once, or as many as there are bytes of rows."""
_DEEPEST = 64
"""Values nested deeper are left to the parser: each level is a pass over all tokens."""


def _unzigzag(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Return the signed numbers that unsigned ones stand for."""
    one = np.uint64(1)
    return ((numbers >> one) ^ (~(numbers & one) + one)).view(np.int64)


def _strings(data: Bytes, starts: Positions, ends: Positions, null: Mask) -> pa.Array:
    """Return what lies between positions that follow each other; null where the mask says so."""
    # One array over all bytes, values and what lies between in turn; then the values alone.
    bounds = np.empty(2 * len(starts) + 1, np.int64)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, ends, len(data)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    turns = pa.Array.from_buffers(pa.large_binary(), 2 * len(starts), buffers)
    return turns.take(from_numpy(np.arange(0, 2 * len(starts), 2), null)).cast(pa.binary())


def token_ends(
    words: Words, size: int, marks: Bytes, positions: Positions
) -> tuple[Numbers, Positions]:
    """Return the number in each token, the length of a string, otherwise 0; and where each token ends.

    Raises:
        UnevenError: what is there is no token, or reaches beyond the bytes.
    """
    kinds = np.flatnonzero(np.bincount(marks)).tolist()
    if len(kinds) == 1:
        return _ends_of(kinds[0], words, size, positions)
    numbers, ends = np.zeros(len(marks), np.uint64), np.zeros(len(marks), np.int64)
    for kind in kinds:
        some = np.flatnonzero(marks == kind)
        numbers[some], ends[some] = _ends_of(kind, words, size, positions[some])
    return numbers, ends


def _ends_of(mark: int, words: Words, size: int, positions: Positions) -> tuple[Numbers, Positions]:
    """Return the same for tokens that have one mark."""
    if mark not in _MEASURED:
        require(mark == yson.DOUBLE or mark in _ONE_BYTE)
        return np.zeros(len(positions), np.uint64), positions + (9 if mark == yson.DOUBLE else 1)
    numbers, sizes = words.varints(positions + 1)
    ends = positions + 1 + sizes
    if mark == yson.STRING:
        lengths = _unzigzag(numbers)
        require(((lengths >= 0) & (lengths <= size - ends)).all())
        ends += lengths
        numbers = lengths.view(np.uint64)
    return numbers, ends


@dataclass(frozen=True)
class Tokens:
    """Tokens of values.

    Attributes:
        marks: first byte of each token.
        positions: where each token begins.
        ends: where each token ends, without a separator.
        numbers: see `token_ends`.
    """

    data: Bytes
    words: Words
    marks: Bytes
    positions: Positions
    ends: Positions
    numbers: Numbers

    def at(self, found: Positions) -> Tokens:
        """Return some of them."""
        marks, positions = self.marks[found], self.positions[found]
        ends, numbers = self.ends[found], self.numbers[found]
        return Tokens(self.data, self.words, marks, positions, ends, numbers)

    def array(self, parsed: pa.DataType) -> pa.Array:
        """Return what they hold; raise `UnevenError` unless all are of a type without parts, or null."""
        marks, null = self.marks, self.marks == yson.ENTITY
        if pa.types.is_null(parsed):
            require(null.all())
            return pa.nulls(len(null))
        if pa.types.is_boolean(parsed):
            true = marks == yson.TRUE
            require((null | true | (marks == yson.FALSE)).all())
            return from_numpy(true, null)
        marker = _MARKERS[parsed]
        require((null | (marks == marker)).all())
        if marker == yson.UINT64:
            return from_numpy(self.numbers, null)
        if marker == yson.DOUBLE:
            return from_numpy(self.words.at(self.positions + 1).view("<f8"), null)
        if marker == yson.INT64:
            return from_numpy(_unzigzag(self.numbers), null)
        return _strings(self.data, self.ends - self.numbers.view(np.int64), self.ends, null)


@dataclass(frozen=True)
class Trees(Tokens):
    """The tokens of values that have parts, value after value.

    Attributes:
        levels: how many lists and maps are open before each token.
        keys: whether an equals sign follows.
    """

    levels: npt.NDArray[np.int8]
    keys: Mask

    def closing(self) -> Positions:
        """Return the token that closes each opening one; raise `UnevenError` if it is of another kind."""
        steps = STEPS[self.marks]
        found = np.zeros(len(steps), np.int64)
        for level in range(int(self.levels.max(initial=0))):
            # Within a level one container is closed before the next one is opened.
            opened = np.flatnonzero((steps == 1) & (self.levels == level))
            ended = np.flatnonzero((steps == -1) & (self.levels == level + 1))
            require(np.array_equal(self.marks[opened] + 2, self.marks[ended]))
            found[opened] = ended
        return found


class CrowdedError(Exception):
    """There are more tokens than shall be read at once."""


def scan(
    data: Bytes, words: Words, positions: Positions, limits: Positions, most: int
) -> tuple[Trees, Positions, Positions]:
    """Read one value of any kind at each position.

    Args:
        data: the bytes; something follows each value.
        words: of the same bytes.
        positions: where the values begin, in order.
        limits: where each value must have ended: values that share bytes could have tokens without end.

    Returns:
        All tokens, which of them begin the values, and where the values end.

    Raises:
        UnevenError: a value has another spelling than the cluster's, or few values are very long.
        CrowdedError: there are more tokens.
    """
    count = len(positions)
    active, levels = np.arange(count), np.zeros(count, np.int8)
    ends, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rounds: list[tuple[npt.NDArray[Any], ...]] = []
    taken = 0
    while len(active):
        require(len(active) >= FEW_VALUES or len(rounds) < _MANY_ROUNDS)
        taken += len(active)
        if taken > most:
            raise CrowdedError
        marks = data[positions]
        numbers, past = token_ends(words, len(data), marks, positions)
        require((past < limits).all() and (levels <= _DEEPEST).all())
        after = data[past]
        keys = after == yson.EQUALS
        rounds.append((active, marks, positions, past, numbers, levels, keys))
        lengths[active] += 1
        steps = STEPS[marks]
        levels = levels + steps
        require((levels >= 0).all())
        left = levels > 0
        if not left.all():
            ends[active[~left]] = past[~left]
            each: tuple[npt.NDArray[Any], ...] = (active, levels, limits, past, after, keys, steps)
            active, levels, limits, past, after, keys, steps = (child[left] for child in each)
        separated = keys | (after == yson.SEMICOLON)
        closes = (after == yson.CLOSE_LIST) | (after == yson.CLOSE_MAP)
        # Separators stand between values and may follow the last one; a list opens without one.
        require(np.where(steps == 1, ~separated, separated | closes).all())
        positions = past + separated
    require(rounds)
    firsts = np.cumsum(lengths) - lengths
    rows, *kinds = zip(*rounds, strict=True)
    targets = [firsts[row] + number for number, row in enumerate(rows)]
    del rows, rounds
    columns: list[npt.NDArray[Any]] = []
    while kinds:
        column = np.empty(taken, kinds[0][0].dtype)
        for target, child in zip(targets, kinds.pop(0), strict=True):
            column[target] = child
        columns.append(column)
    return Trees(data, words, *columns), firsts, ends


class Composites:
    """Arrow arrays out of tokens."""

    def __init__(self, tokens: Trees, room: Room) -> None:
        self._tokens = tokens
        self._closing = tokens.closing()
        self._room = room

    def array(self, found: Positions, logical: types.LogicalType, kind: pa.DataType) -> pa.Array:
        """Return values of a type as the Arrow type asked for.

        Args:
            found: first tokens of the values, in order, all at one level.

        Raises:
            UnevenError: a value has another shape, or must not be null.
            UnfitValueError: a value does not fit.
        """
        null = self._tokens.marks[found] == yson.ENTITY
        require(types.is_nullable(logical) or not null.any())
        present = found[~null] if null.any() else found
        bare = types.required(logical)
        match bare:
            case Scalar():
                # Such a value is YSON of any shape, and not the string that it may be.
                require(not bare.holds_yson)
                return bare.from_plain(self._tokens.at(found).array(bare.parsed), kind)
            case types.ListType(item):
                items, lengths = self._held(present, item, kind.value_type)
                return list_array(kind, null, lengths, items)
            case types.DictType(key, value):
                pair = types.StructType(types.numbered((key, value)), named=False)
                fields = pa.struct([kind.key_field, kind.item_field])
                pairs, lengths = self._held(present, pair, fields)
                # Arrow has no such maps.
                require(pairs.field(0).null_count == 0)
                return list_array(kind, null, lengths, pairs)
            case types.StructType(members, named=True):
                inner = self._members(present, [one.name.encode() for one in members])
            case types.VariantType():
                raise UnevenError
            case _:
                inner = self._children(present, kind.num_fields)
        typed = zip(inner, struct_fields(bare).values(), kind, strict=True)
        children = [self._child(child, one, field.type) for child, one, field in typed]
        return struct_array(kind, null, children)

    def _child(self, found: Positions, logical: types.LogicalType, kind: pa.DataType) -> pa.Array:
        array = self.array(found, logical, kind)
        self._room.take(array.null_count, kind)
        return array

    def _held(
        self, found: Positions, item: types.LogicalType, kind: pa.DataType
    ) -> tuple[pa.Array, Positions]:
        """Return what lists hold, list after list, and how many each holds."""
        items, lengths = self._items(found)
        if len(items) * width(kind) > max(_FEWEST_BYTES, len(self._tokens.data)):
            raise CrowdedError
        return self._child(items, item, kind), lengths

    def _items(
        self, found: Positions, opening: int = yson.OPEN_LIST
    ) -> tuple[Positions, Positions]:
        """Return the first tokens of what lists hold, list after list, and how many each holds."""
        tokens = self._tokens
        require((tokens.marks[found] == opening).all())
        if not len(found):
            return found, found
        level = tokens.levels[found[0]] + 1
        begins = (tokens.levels == level) & (STEPS[tokens.marks] >= 0)
        before = np.cumsum(begins)
        first, past = before[found], before[self._closing[found]]
        counts = past - first
        items = np.flatnonzero(begins)
        if len(items) != int(counts.sum()):
            shifts = np.repeat(first - (np.cumsum(counts) - counts), counts)
            items = items[shifts + np.arange(len(shifts))]
        require(opening == yson.OPEN_MAP or not tokens.keys[items].any())
        return items, counts

    def _children(
        self, found: Positions, count: int, opening: int = yson.OPEN_LIST
    ) -> list[Positions]:
        items, counts = self._items(found, opening)
        require((counts == count).all())
        return [items[position::count] for position in range(count)]

    def _members(self, found: Positions, names: Sequence[bytes]) -> list[Positions]:
        """Return the values of maps that all have these keys in this order."""
        tokens = self._tokens
        children = self._children(found, 2 * len(names), yson.OPEN_MAP)
        for name, keys, values in zip(names, children[::2], children[1::2], strict=True):
            require(tokens.keys[keys].all() and not tokens.keys[values].any())
            require((tokens.marks[keys] == yson.STRING).all())
            require((tokens.numbers[keys] == len(name)).all())
            require(tokens.words.behind(tokens.ends[keys] - len(name), name)[0].all())
        return children[1::2]
