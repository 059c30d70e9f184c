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
from yt_exactly_once.codec.arrow_types import parsed_type_of
from yt_exactly_once.codec.buffers import from_numpy
from yt_exactly_once.codec.room import width
from yt_exactly_once.codec.yson_marks import UnevenError, require
from yt_exactly_once.codec.yson_words import Bytes, Mask, Numbers, Places, Words

MARKERS = {
    pa.binary(): yson.STRING,
    pa.int64(): yson.INT64,
    pa.uint64(): yson.UINT64,
    pa.float64(): yson.DOUBLE,
}
"""First byte of a value by the Arrow type that it is parsed into."""

_WIDTHS = np.zeros(256, np.int64)
_WIDTHS[[yson.STRING, yson.INT64, yson.UINT64, yson.FALSE, yson.TRUE, yson.ENTITY]] = 1
_WIDTHS[[yson.OPEN_LIST, yson.CLOSE_LIST, yson.OPEN_MAP, yson.CLOSE_MAP]] = 1
_WIDTHS[yson.DOUBLE] = 9
_STEPS = np.zeros(256, np.int8)
_STEPS[[yson.OPEN_LIST, yson.OPEN_MAP]] = 1
_STEPS[[yson.CLOSE_LIST, yson.CLOSE_MAP]] = -1
_MANY_ROUNDS, FEW_VALUES = 64, 32
"""After so many rounds, fewer values than that are read faster one by one."""
_FEWEST_BYTES = 1 << 21
"""Of items as Arrow: so many are made at once, or as many as there are bytes of rows."""
_DEEPEST = 64
"""Values nested deeper are left to the parser: each level is a pass over all tokens."""


def unzigzag(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Return the signed numbers that unsigned ones stand for."""
    one = np.uint64(1)
    return ((numbers >> one) ^ (~(numbers & one) + one)).view(np.int64)


def strings(data: Bytes, starts: Places, ends: Places, null: Mask) -> pa.Array:
    """Return what lies between places, which follow each other in the bytes; null where the mask says so."""
    # One array over all bytes, values and what lies between in turn; then the values alone.
    bounds = np.empty(2 * len(starts) + 1, np.int64)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, ends, len(data)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    turns = pa.Array.from_buffers(pa.large_binary(), 2 * len(starts), buffers)
    return turns.take(from_numpy(np.arange(0, 2 * len(starts), 2), null)).cast(pa.binary())


@dataclass(frozen=True)
class Tokens:
    """The tokens of values, value after value.

    Attributes:
        marks: first byte of each token.
        places: where each token begins.
        ends: where each token ends, without a separator.
        numbers: what follows the marker of a number or a string; of others it means nothing.
        levels: how many lists and maps are open before each token.
        keys: whether an equals sign follows.
    """

    data: Bytes
    words: Words
    marks: Bytes
    places: Places
    ends: Places
    numbers: Numbers
    levels: npt.NDArray[np.int8]
    keys: Mask

    def closing(self) -> Places:
        """Return the token that closes each opening one; raise `UnevenError` if it is of another kind."""
        steps = _STEPS[self.marks]
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
    data: Bytes, words: Words, places: Places, limits: Places, most: int
) -> tuple[Tokens, Places, Places]:
    """Read one value of any kind at each place.

    Args:
        data: the bytes; something follows each value.
        words: of the same bytes.
        places: where the values begin, in order.
        limits: where each value must have ended: values that share bytes could have tokens without end.

    Returns:
        All tokens, which of them begin the values, and where the values end.

    Raises:
        UnevenError: a value has another spelling than the cluster's, or few values are very long.
        CrowdedError: there are more tokens.
    """
    count = len(places)
    active, levels = np.arange(count), np.zeros(count, np.int8)
    ends, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rounds: list[tuple[npt.NDArray[Any], ...]] = []
    taken = 0
    while len(active):
        require(len(active) >= FEW_VALUES or len(rounds) < _MANY_ROUNDS)
        taken += len(active)
        if taken > most:
            raise CrowdedError
        marks = data[places]
        past = places + _WIDTHS[marks]
        require((past > places).all() and (levels <= _DEEPEST).all())
        numbers = _read_numbers(words, len(data), marks, places, past)
        require((past < limits).all())
        after = data[past]
        keys = after == yson.EQUALS
        rounds.append((active, marks, places, past, numbers, levels, keys))
        lengths[active] += 1
        steps = _STEPS[marks]
        levels = levels + steps
        require((levels >= 0).all())
        left = levels > 0
        if not left.all():
            ends[active[~left]] = past[~left]
            each: tuple[npt.NDArray[Any], ...] = (active, levels, limits, past, after, keys, steps)
            active, levels, limits, past, after, keys, steps = (part[left] for part in each)
        separated = keys | (after == yson.SEMICOLON)
        closes = (after == yson.CLOSE_LIST) | (after == yson.CLOSE_MAP)
        # Separators stand between values and may follow the last one; a list opens without one.
        require(np.where(steps == 1, ~separated, separated | closes).all())
        places = past + separated
    require(rounds)
    firsts = np.cumsum(lengths) - lengths
    rows, *kinds = zip(*rounds, strict=True)
    targets = [firsts[row] + number for number, row in enumerate(rows)]
    del rows, rounds
    columns: list[npt.NDArray[Any]] = []
    while kinds:
        column = np.empty(taken, kinds[0][0].dtype)
        for target, part in zip(targets, kinds.pop(0), strict=True):
            column[target] = part
        columns.append(column)
    return Tokens(data, words, *columns), firsts, ends


def _read_numbers(words: Words, size: int, marks: Bytes, places: Places, past: Places) -> Numbers:
    """Read the varints of tokens that have one, and move their ends behind them and their strings."""
    numbers = np.zeros(len(marks), np.uint64)
    measured = np.flatnonzero(
        (marks == yson.STRING) | (marks == yson.INT64) | (marks == yson.UINT64)
    )
    if not len(measured):
        return numbers
    starts = places[measured] + 1
    found, sizes = words.varints(starts)
    ends = starts + sizes
    texts = marks[measured] == yson.STRING
    lengths = np.where(texts, unzigzag(found), 0)
    require(((lengths >= 0) & (lengths <= size - ends)).all())
    numbers[measured], past[measured] = found, ends + lengths
    return numbers


class Composites:
    """Arrow arrays out of tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._closing = tokens.closing()

    def array(  # noqa: PLR0911 - a case per kind
        self, found: Places, logical: types.LogicalType
    ) -> pa.Array:
        """Return values of a type as a plain array; raise `UnevenError` if one has another shape.

        Args:
            found: first tokens of the values, in order, all at one level.
        """
        bare = types.untagged(logical)
        kind = parsed_type_of(bare)
        match bare:
            case types.OptionalType(item) if not types.is_nested_optional(bare):
                return self.array(found, item)
            case types.SimpleType() | types.DecimalType():
                # Such a value is YSON of any shape, and not the string that it may be.
                require(not bare.scalar.holds_yson)
                return self._simple(found, kind)
        null = self._tokens.marks[found] == yson.ENTITY
        present = found[~null] if null.any() else found
        match bare:
            case types.ListType(item):
                items, counts = self._items(present)
                self._require_room(items, kind.value_type)
                return _lists(kind, null, counts, self.array(items, item))
            case types.DictType(key, value):
                pairs, counts = self._items(present)
                self._require_room(pairs, kind.item_type)
                parts = [
                    self.array(part, logical)
                    for part, logical in zip(self._parts(pairs, 2), (key, value), strict=True)
                ]
                # Arrow has no such maps.
                require(parts[0].null_count == 0)
                entries = pa.StructArray.from_arrays(
                    parts, fields=[kind.key_field, kind.item_field]
                )
                return _lists(kind, null, counts, entries)
            case types.OptionalType(item):
                return self._struct(kind, null, self._parts(present, 1), [item])
            case types.TupleType(elements):
                return self._struct(kind, null, self._parts(present, len(elements)), elements)
            case types.StructType(members):
                parts = self._members(present, [member.name.encode() for member in members])
                return self._struct(kind, null, parts, [member.type for member in members])
            case _:
                raise UnevenError

    def _simple(self, found: Places, kind: pa.DataType) -> pa.Array:
        tokens = self._tokens
        marks = tokens.marks[found]
        null = marks == yson.ENTITY
        if pa.types.is_null(kind):
            require(null.all())
            return pa.nulls(len(found))
        if pa.types.is_boolean(kind):
            true = marks == yson.TRUE
            require((null | true | (marks == yson.FALSE)).all())
            return from_numpy(true, null)
        marker = MARKERS[kind]
        require((null | (marks == marker)).all())
        numbers = tokens.numbers[found]
        if marker == yson.UINT64:
            return from_numpy(numbers, null)
        if marker == yson.INT64:
            return from_numpy(unzigzag(numbers), null)
        if marker == yson.DOUBLE:
            return from_numpy(tokens.words.at(tokens.places[found] + 1).view("<f8"), null)
        ends = tokens.ends[found]
        return strings(tokens.data, ends - np.where(null, 0, unzigzag(numbers)), ends, null)

    def _items(self, found: Places, opening: int = yson.OPEN_LIST) -> tuple[Places, Places]:
        """Return the first tokens of what lists hold, list after list, and how many each holds."""
        tokens = self._tokens
        require((tokens.marks[found] == opening).all())
        if not len(found):
            return found, found
        level = tokens.levels[found[0]] + 1
        begins = (tokens.levels == level) & (_STEPS[tokens.marks] >= 0)
        before = np.cumsum(begins)
        first, past = before[found], before[self._closing[found]]
        counts = past - first
        items = np.flatnonzero(begins)
        if len(items) != int(counts.sum()):
            shifts = np.repeat(first - (np.cumsum(counts) - counts), counts)
            items = items[shifts + np.arange(len(shifts))]
        require(opening == yson.OPEN_MAP or not tokens.keys[items].any())
        return items, counts

    def _require_room(self, items: Places, kind: pa.DataType) -> None:
        if len(items) * width(kind) > max(_FEWEST_BYTES, len(self._tokens.data)):
            raise CrowdedError

    def _parts(self, found: Places, count: int, opening: int = yson.OPEN_LIST) -> list[Places]:
        items, counts = self._items(found, opening)
        require((counts == count).all())
        return [items[place::count] for place in range(count)]

    def _members(self, found: Places, names: Sequence[bytes]) -> list[Places]:
        """Return the values of maps that all have these keys in this order."""
        tokens = self._tokens
        parts = self._parts(found, 2 * len(names), yson.OPEN_MAP)
        for name, keys, values in zip(names, parts[::2], parts[1::2], strict=True):
            require(tokens.keys[keys].all() and not tokens.keys[values].any())
            require((tokens.marks[keys] == yson.STRING).all())
            require((unzigzag(tokens.numbers[keys]) == len(name)).all())
            require(tokens.words.begin(tokens.ends[keys] - len(name), name).all())
        return parts[1::2]

    def _struct(
        self,
        kind: pa.DataType,
        null: Mask,
        parts: list[Places],
        logicals: Sequence[types.LogicalType],
    ) -> pa.Array:
        children = [
            self.array(part, logical) for part, logical in zip(parts, logicals, strict=True)
        ]
        valid = None
        if null.any():
            places = from_numpy(np.cumsum(~null) - 1, null)
            children = [child.take(places) for child in children]
            valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
        return pa.Array.from_buffers(kind, len(null), [valid], children=children)


def _lists(kind: pa.DataType, null: Mask, counts: Places, items: pa.Array) -> pa.Array:
    """Cut items into lists or maps; a null has none."""
    lengths = counts
    valid = None
    if null.any():
        lengths = np.zeros(len(null), np.int64)
        lengths[~null] = counts
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    edges = np.zeros(len(null) + 1, np.int32)
    np.cumsum(lengths, out=edges[1:])
    return pa.Array.from_buffers(kind, len(null), [valid, pa.py_buffer(edges)], children=[items])
