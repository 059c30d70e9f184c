"""Rows of binary YSON as columns, without a Python object per value.

It takes rows as client libraries write them: maps with the same keys in the same order, a separator after
every item, plain values of the types of their columns. Every byte is accounted for, so no key can be there
twice. There is no answer for other rows: a parser reads them, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from yt import yson

from yt_exactly_once.local.tables import yson_tokens
from yt_exactly_once.local.tables.columnar import ColumnarRows
from yt_exactly_once.local.tables.large_values import LARGE, PARSE_ERRORS
from yt_exactly_once.local.tables.values import dump_yson
from yt_exactly_once.local.tables.yson_tokens import UnknownSpellingError, require

_MOST_BYTES = 1 << 31
_MARKS = {**yson_tokens.MARKS, "boolean": yson_tokens.TRUE}
_OPEN, _CLOSE = b"{}"
_EMPTY = b"{};"


def scan(data: bytes, schema: Sequence[Mapping[str, Any]]) -> ColumnarRows | None:
    """Return rows, or None where they must be parsed.

    Args:
        schema: see `registry.RowReader`.
    """
    if len(data) >= _MOST_BYTES:
        return None
    kinds = {str(column["name"]): _MARKS.get(str(column.get("type"))) for column in schema}
    try:
        keys = _first_keys(data)
        if not keys:
            count = len(data) // len(_EMPTY)
            return ColumnarRows({}, count) if data == _EMPTY * count else None
        rows = _Rows(data, b"{" + next(iter(keys.values())))
        columns = {}
        for name, key in keys.items():
            mark = kinds.get(name)
            if mark is None:
                return None
            rows.pass_over(key)
            columns[name] = rows.values(mark)
            rows.pass_over(b";")
        rows.pass_over(b"};")
        rows.check_gaps()
    except (UnknownSpellingError, IndexError, pa.ArrowException, *PARSE_ERRORS):
        return None
    return ColumnarRows(columns, rows.count)


def _first_keys(data: bytes) -> dict[str, bytes]:
    """Return the names of the columns of the first row, each with the bytes before its value."""
    # It becomes objects, so it must not be large.
    rows = yson.load(
        BytesIO(data[:LARGE]),
        yson_type="list_fragment",
        encoding=None,
        always_create_attributes=False,
    )
    first: Any = next(rows, None)
    require(isinstance(first, dict))
    return {name.decode(): dump_yson(name) + b"=" for name in first}


class _Rows:
    """Rows that are read side by side: `_places` is where each has been read to."""

    def __init__(self, data: bytes, opening: bytes) -> None:
        self._size = len(data)
        self._data = np.frombuffer(data + yson_tokens.PADDING + bytes(len(opening)), np.uint8)
        self._starts = self._find(opening)
        require(not self._starts[0])
        self._ends = np.append(self._starts[1:], self._size)
        self._places = self._starts + 1
        self.count = len(self._starts)

    def _find(self, opening: bytes) -> Any:
        """Return where rows may begin; if a string looks like a row, that shows as a gap."""
        data = self._data
        found = np.flatnonzero(data[: self._size] == _OPEN)
        follows = (data[found - 1] == yson_tokens.SEPARATOR) & (data[found - 2] == _CLOSE)
        found = found[follows | (found == 0)]
        return found[self._are(found, opening)]

    def _are(self, places: Any, literal: bytes) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(self._data, len(literal))
        return (windows[places] == np.frombuffer(literal, np.uint8)).all(axis=1)

    def pass_over(self, literal: bytes) -> None:
        """Step over what all rows have."""
        require(self._are(self._places, literal).all())
        self._places = self._places + len(literal)
        require(int(self._places.max(initial=0)) <= self._size)

    def values(self, mark: int) -> Any:
        """Step over a value of each row and return all of them as an array."""
        places, data = self._places, self._data
        marks = data[places]
        null = marks == yson_tokens.ENTITY
        if mark == yson_tokens.TRUE:
            true = marks == yson_tokens.TRUE
            require((null | true | (marks == yson_tokens.FALSE)).all())
            self._places = self._advanced(places + 1)
            return pa.array(true, mask=null)
        require((null | (marks == mark)).all())
        if mark == yson_tokens.DOUBLE:
            windows = np.lib.stride_tricks.sliding_window_view(data, 8)
            self._places = self._advanced(places + np.where(null, 1, 9))
            return pa.array(
                windows[np.minimum(places + 1, self._size)].view("<f8")[:, 0], mask=null
            )
        numbers, sizes = np.zeros(len(places), np.uint64), np.zeros(len(places), np.int64)
        present = np.flatnonzero(~null)
        numbers[present], sizes[present] = yson_tokens.varints(data, places[present] + 1)
        ends = self._advanced(places + 1 + sizes)
        if mark != yson_tokens.STRING:
            self._places = ends
            signed = yson_tokens.unzigzag(numbers) if mark == yson_tokens.INT64 else numbers
            return pa.array(signed, mask=null)
        # A length is a signed number, and never negative.
        require(not (numbers & np.uint64(1)).any())
        require((numbers <= np.uint64(2 * self._size)).all())
        self._places = self._advanced(ends + (numbers >> np.uint64(1)).astype(np.int64))
        return yson_tokens.between(data, ends, self._places, null).cast(pa.binary())

    def _advanced(self, places: Any) -> Any:
        """Check that no value reaches into the next row: so nothing is copied twice, whatever the bytes."""
        require((places < self._ends).all())
        return places

    def check_gaps(self) -> None:
        """Check that each row begins where the one before has ended."""
        require(np.array_equal(self._places, self._ends))
