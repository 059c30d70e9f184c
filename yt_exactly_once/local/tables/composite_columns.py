"""Columns of composite values that are valid: from positional YSON to the stored form, by vector.

A column is taken if every value is right for its type and spelled as the cluster would spell it. For any
other column there is no answer here: `composites` looks at its values one by one, and says what is wrong.
The results are the bytes that `composites` and `values.dump_yson` give together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import simple_values, types, values, yson_tokens
from yt_exactly_once.local.tables.yson_tokens import Tokens, UnknownSpellingError, require

_VALUES_PER_PIECE = 4096
"""So that their tokens fit into the caches of a processor."""
_BYTES_PER_PIECE = 1 << 18
_NULLS = ("null", "void")
_MARKS = {
    **{name: (mark,) for name, mark in yson_tokens.MARKS.items()},
    **dict.fromkeys(_NULLS, (yson_tokens.ENTITY,)),
    "bool": (yson_tokens.FALSE, yson_tokens.TRUE),
}
_OPEN_MAP, _CLOSE_MAP = b"{}"


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
        return StoredComposites(_among_nulls(pa.concat_arrays(pieces), array))
    except (UnknownSpellingError, YtError, pa.ArrowInvalid):
        return None


def _stored(array: Any, logical: types.LogicalType) -> Any:
    """Return the stored form of values that are not null; None if they are in it already."""
    begins, data = _edges(array)
    found = yson_tokens.tokens(data, begins[:-1], begins[1:])
    # Null at the top of a value is no value.
    require(not (found.marks[found.firsts] == yson_tokens.ENTITY).any())
    marked = _Marked(found, data)
    marked.check(logical, found.firsts)
    return marked.named() if marked.structs else None


def _among_nulls(present: Any, array: Any) -> Any:
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


@dataclass
class _Marked:
    """Tokens, and what is to be changed so that structs become maps.

    Attributes:
        tokens: of all values.
        data: their bytes; lists that are structs get the brackets of maps.
        structs: tokens that open structs.
        members: first tokens of members, by name.
    """

    tokens: Tokens
    data: Any
    structs: list[Any] = field(default_factory=list)
    members: list[tuple[str, Any]] = field(default_factory=list)

    def check(self, logical: types.LogicalType, found: Any) -> None:
        """Check values of a type.

        Args:
            logical: the type.
            found: first tokens of the values, all at one depth.

        Raises:
            UnknownSpellingError: a value is not right, or not of a kind known here.
            YtError, ArrowInvalid: the same, from a check of all strings.
        """
        logical = types.untagged(logical)
        if isinstance(logical, str):
            self._check_simple(logical, found)
            return
        kind = logical["type_name"]
        if kind == "optional":
            self._check_optional(logical["item"], found)
        elif kind == "decimal":
            self._check_decimals(logical, found)
        elif kind == "list":
            self.check(logical["item"], self._items(found)[0])
        elif kind == "dict":
            self._check_parts(logical, self._items(found)[0])
        elif kind == "tuple":
            self._check_parts(logical, found)
        elif kind == "struct":
            self.structs.append(found)
            self._check_parts(logical, found)
        else:
            raise UnknownSpellingError

    def _check_optional(self, item: types.LogicalType, found: Any) -> None:
        item = types.untagged(item)
        found = found[self.tokens.marks[found] != yson_tokens.ENTITY]
        if item in _NULLS or (isinstance(item, dict) and item["type_name"] == "optional"):
            (found,) = self._parts(found, 1)
        self.check(item, found)

    def _check_parts(self, logical: dict[str, Any], found: Any) -> None:
        """Check lists that have a value of each part of a type."""
        parts = types.parts(logical)
        names = [member["name"] for member in logical.get("members", ())]
        for place, items in enumerate(self._parts(found, len(parts))):
            if names:
                self.members.append((names[place], items))
            self.check(parts[place], items)

    def _items(self, found: Any) -> tuple[Any, Any]:
        require((self.tokens.marks[found] == yson_tokens.OPEN).all())
        return self.tokens.items(found)

    def _parts(self, found: Any, count: int) -> list[Any]:
        """Return the items of lists that all have so many, by their position."""
        items, counts = self._items(found)
        require((counts == count).all())
        return [items[place::count] for place in range(count)]

    def _check_simple(self, name: str, found: Any) -> None:
        marks = self.tokens.marks[found]
        wanted = _MARKS.get(name, ())
        require(np.isin(marks, wanted).all())
        if name in simple_values.RANGES:
            self._check_range(name, found)
        elif name == "float":
            self._check_floats(found)
        elif name == "utf8":
            self._strings(found).cast(pa.large_string())
        elif name in types.STRING_LIKE and name != "string":
            simple_values.check_strings(name, self._strings(found).to_pylist())

    def _check_range(self, name: str, found: Any) -> None:
        low, high = simple_values.RANGES[name]
        numbers = self.tokens.numbers[found]
        if name in types.SIGNED:
            numbers = yson_tokens.unzigzag(numbers)
        require(not len(numbers) or (low <= int(numbers.min()) and int(numbers.max()) <= high))

    def _check_floats(self, found: Any) -> None:
        window = np.lib.stride_tricks.sliding_window_view(self.data, 8)
        numbers = np.abs(window[self.tokens.places[found] + 1].view("<f8")[:, 0])
        require(not (np.isfinite(numbers) & (numbers > simple_values.FLOAT_MAX)).any())

    def _check_decimals(self, logical: dict[str, Any], found: Any) -> None:
        require((self.tokens.marks[found] == yson_tokens.STRING).all())
        simple_values.check_decimals(logical, self._strings(found).to_pylist())

    def _strings(self, found: Any) -> Any:
        """Return what strings hold."""
        ends = self.tokens.ends[found]
        begins = ends - (self.tokens.numbers[found] >> np.uint64(1)).astype(np.int64)
        return yson_tokens.between(self.data, begins, ends)

    def named(self) -> Any:
        """Return all values with the names of members before them."""
        found, data = self.tokens, self.data
        for structs in self.structs:
            data[found.places[structs]] = _OPEN_MAP
            data[found.places[found.closing[structs]]] = _CLOSE_MAP
        # The bytes fall into pieces: each begins with a value or with a member.
        literals = [b"", *(values.dump_yson(name) + b"=" for name, _ in self.members)]
        codes = np.full(len(found.marks), -1, np.int64)
        codes[found.firsts] = 0
        for code, (_, items) in enumerate(self.members, 1):
            codes[items] = code
        begun = np.flatnonzero(codes >= 0)
        edges = np.append(found.places[begun], len(data) - len(yson_tokens.PADDING))
        pieces = pa.Array.from_buffers(
            pa.large_binary(), len(begun), [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        heads = pa.array(literals, pa.large_binary()).take(pa.array(codes[begun]))
        joined = pc.binary_join_element_wise(heads, pieces, pa.scalar(b"", pa.large_binary()))
        ends = np.frombuffer(joined.buffers()[1], np.int64)[: len(begun) + 1]
        starts = np.append(np.flatnonzero(codes[begun] == 0), len(begun))
        buffers = [None, pa.py_buffer(ends[starts]), joined.buffers()[2]]
        whole = pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)
        return whole.cast(pa.binary())
