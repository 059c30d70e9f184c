"""Columns of composite values that are valid: from positional YSON to the stored form, by vector.

The values of a column are read side by side, by their type: one part of all of them at a time. A column is
taken if every value is right for its type and spelled as the cluster would spell it. For any other column
there is no answer here: `composites` looks at its values one by one, and says what is wrong. The results are
the bytes that `composites` and `values.dump_yson` give together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import simple_values, types, values, yson_tokens
from yt_exactly_once.local.tables.yson_tokens import UnknownSpellingError, require

_VALUES_PER_PIECE = 4096
"""So that their tokens fit into the caches of a processor."""
_BYTES_PER_PIECE = 1 << 18
_NULLS = ("null", "void")
_MARKS = {
    **{name: (mark,) for name, mark in yson_tokens.MARKS.items()},
    **dict.fromkeys(_NULLS, (yson_tokens.ENTITY,)),
    "bool": (yson_tokens.FALSE, yson_tokens.TRUE),
}
_UNLIMITED = ("int64", "uint64")
_OPEN_MAP, _CLOSE_MAP = b"{}"
_DOUBLE = 9
"""Bytes of a number with its mark."""
_FEW = 32
LONG = 64
"""If few values have more items than this, they are read faster one by one."""


@dataclass(frozen=True, eq=False)
class StoredComposites:
    """Values of a composite column that are known to be valid, in their stored form.

    Attributes:
        array: binary YSON, null where a value is null.
    """

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, chosen: slice) -> StoredComposites:
        return StoredComposites(self.array[chosen])

    def to_pylist(self) -> list[Any]:
        """Return the values as a parser returns them."""
        return [None if blob is None else values.load_yson(blob) for blob in self.array.to_pylist()]


def stored(array: Any, logical: types.LogicalType) -> StoredComposites | None:
    """Return the stored form of positional YSON; None where values have to be looked at one by one.

    Args:
        logical: type of the column, with its optional if it has one.
    """
    present = array.drop_null() if array.null_count else array
    fitting = len(present) * _BYTES_PER_PIECE // max(1, present.nbytes)
    step = max(1, min(_VALUES_PER_PIECE, fitting))
    try:
        pieces = [
            _stored(present[start : start + step], logical)
            for start in range(0, len(present), step)
        ]
        # The bytes stay as they are where no piece has changed.
        if all(piece is None for piece in pieces):
            return StoredComposites(array)
        return StoredComposites(among_nulls(pa.concat_arrays(pieces), array))
    except (UnknownSpellingError, YtError, pa.ArrowInvalid):
        return None


def _stored(array: Any, logical: types.LogicalType) -> Any:
    """Return the stored form of values that are not null; None if they are in it already."""
    edges, data = _edges(array)
    begins = edges[:-1]
    # Null at the top of a value is no value.
    require(not (data[begins] == yson_tokens.ENTITY).any())
    reading = _Reading(data)
    require((reading.value(logical, begins) == edges[1:]).all())
    return reading.named(edges) if reading.structs else None


def among_nulls(present: Any, array: Any) -> Any:
    """Put values where an array has values."""
    if not array.null_count:
        return present
    places = np.full(len(array), len(present), np.int64)
    places[array.is_valid().to_numpy(zero_copy_only=False)] = np.arange(len(present))
    return pa.concat_arrays([present, pa.nulls(1, present.type)]).take(pa.array(places))


def _edges(array: Any) -> tuple[Any, Any]:
    """Return where values begin, and where the last one ends, in their bytes; and these."""
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    begin, end = int(edges[0]), int(edges[-1])
    held = bytearray(data[begin:end]) if data is not None else bytearray()
    held += yson_tokens.PADDING
    return edges - np.int32(begin), np.frombuffer(held, np.uint8)


class _Reading:
    """Values that are read side by side by their type, and what is to be changed so that structs become maps.

    Args:
        data: bytes of all values, followed by padding; lists that are structs get the brackets of maps.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._end = len(data) - len(yson_tokens.PADDING)
        self._rounds = 0
        self.structs: list[tuple[Any, Any]] = []
        self._members: dict[str, list[Any]] = {}

    def value(  # noqa: PLR0911 - a case per kind
        self, logical: types.LogicalType, places: Any
    ) -> Any:
        """Check a value at each place, and return where it ends.

        Raises:
            UnknownSpellingError: a value is not right, or not of a kind known here.
            YtError, ArrowInvalid: the same, from a check of all strings.
        """
        logical = types.untagged(logical)
        if isinstance(logical, str):
            return self._simple(logical, places)
        kind = logical["type_name"]
        if kind == "optional":
            return self._optional(logical["item"], places)
        if kind == "decimal":
            begins, ends = self._string(places)
            found = yson_tokens.between(self._data, begins, ends)
            simple_values.check_decimals(logical, found.to_pylist())
            return ends
        if kind == "list":
            return self._items(places, partial(self.value, logical["item"]))
        if kind == "dict":
            return self._items(places, partial(self._parts, logical))
        if kind == "tuple":
            return self._parts(logical, places)
        require(kind == "struct")
        ends = self._parts(logical, places)
        self.structs.append((places, ends - 1))
        return ends

    def _optional(self, item: types.LogicalType, places: Any) -> Any:
        item = types.untagged(item)
        if item in _NULLS or (isinstance(item, dict) and item["type_name"] == "optional"):
            item = {"type_name": "tuple", "elements": [{"type": item}]}
        null = self._data[places] == yson_tokens.ENTITY
        if not null.any():
            return self.value(item, places)
        ends = places + 1
        present = np.flatnonzero(~null)
        if len(present):
            ends[present] = self.value(item, places[present])
        return ends

    def _parts(self, logical: dict[str, Any], places: Any) -> Any:
        """Check lists that have a value of each part of a type."""
        names = [member["name"] for member in logical.get("members", ())]
        places = self._after(places, yson_tokens.OPEN)
        for number, part in enumerate(types.parts(logical)):
            if names:
                self._members.setdefault(names[number], []).append(places)
            places = self._after(self.value(part, places), yson_tokens.SEPARATOR)
        return self._after(places, yson_tokens.CLOSE)

    def _items(self, places: Any, item: Callable[[Any], Any]) -> Any:
        """Check lists of any length: in each round, the next item of those that have one."""
        places = self._after(places, yson_tokens.OPEN)
        ends, left = places + 1, np.arange(len(places))
        while True:
            closes = self._data[places] == yson_tokens.CLOSE
            if closes.any():
                ends[left[closes]] = places[closes] + 1
                left, places = left[~closes], places[~closes]
            if not len(left):
                return ends
            self._rounds += 1
            require(len(left) >= _FEW or self._rounds <= LONG)
            places = self._after(item(places), yson_tokens.SEPARATOR)

    def _after(self, places: Any, mark: int) -> Any:
        require((self._data[places] == mark).all())
        return places + 1

    def _simple(self, name: str, places: Any) -> Any:
        marks = self._data[places]
        wanted = _MARKS.get(name, ())
        require(
            len(wanted)
            and (marks == wanted[0] if len(wanted) == 1 else np.isin(marks, wanted)).all()
        )
        if wanted[0] == yson_tokens.STRING:
            return self._text(name, places)
        if name in simple_values.RANGES:
            numbers, sizes = yson_tokens.varints(self._data, places + 1)
            self._check_range(name, numbers)
            return self._inside(places + 1 + sizes)
        if name in types.FLOATING:
            ends = self._inside(places + _DOUBLE)
            if name == "float":
                self._check_floats(places + 1)
            return ends
        return places + 1

    def _inside(self, ends: Any) -> Any:
        require((ends <= self._end).all())
        return ends

    def _string(self, places: Any) -> tuple[Any, Any]:
        """Return where strings begin and end."""
        require((self._data[places] == yson_tokens.STRING).all())
        numbers, sizes = yson_tokens.varints(self._data, places + 1)
        # A length is a signed number, and never negative.
        require(not (numbers & np.uint64(1)).any() and (numbers <= np.uint64(2 * self._end)).all())
        begins = places + 1 + sizes
        return begins, self._inside(begins + (numbers >> np.uint64(1)).astype(np.int32))

    def _text(self, name: str, places: Any) -> Any:
        begins, ends = self._string(places)
        if name != "string":
            found = yson_tokens.between(self._data, begins, ends)
            if name == "utf8":
                found.cast(pa.large_string())
            else:
                simple_values.check_strings(name, found.to_pylist())
        return ends

    def _check_range(self, name: str, numbers: Any) -> None:
        if name in _UNLIMITED:
            return
        low, high = simple_values.RANGES[name]
        if name in types.SIGNED:
            numbers = yson_tokens.unzigzag(numbers)
        require(low <= int(numbers.min()) and int(numbers.max()) <= high)

    def _check_floats(self, places: Any) -> None:
        window = np.lib.stride_tricks.sliding_window_view(self._data, 8)
        numbers = np.abs(window[places].view("<f8")[:, 0])
        require(not (np.isfinite(numbers) & (numbers > simple_values.FLOAT_MAX)).any())

    def named(self, edges: Any) -> Any:
        """Return all values with the names of members before them.

        Args:
            edges: where values begin, and where the last one ends.
        """
        for begins, ends in self.structs:
            self._data[begins] = _OPEN_MAP
            self._data[ends] = _CLOSE_MAP
        # The bytes fall into pieces: each begins with a value or with a member.
        literals = [b"", *(values.dump_yson(name) + b"=" for name in self._members)]
        codes = np.full(self._end, -1, np.int32)
        codes[edges[:-1]] = 0
        for code, found in enumerate(self._members.values(), 1):
            codes[np.concatenate(found)] = code
        begun = np.flatnonzero(codes >= 0)
        codes = codes[begun]
        cut = pa.Array.from_buffers(
            pa.large_binary(),
            len(begun),
            [None, pa.py_buffer(np.append(begun, self._end)), pa.py_buffer(self._data)],
        )
        # Names and pieces in turn, copied at once: that is several times faster than to join each two.
        pool = pa.concat_arrays([pa.array(literals, pa.large_binary()), cut])
        turns = np.column_stack((codes, np.arange(len(begun)) + len(literals)))
        joined = pool.take(pa.array(turns.reshape(-1)))
        ends = np.frombuffer(joined.buffers()[1], np.int64)[: 2 * len(begun) + 1]
        starts = np.append(2 * np.flatnonzero(codes == 0), 2 * len(begun))
        buffers = [None, pa.py_buffer(ends[starts]), joined.buffers()[2]]
        whole = pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)
        return whole.cast(pa.binary())
