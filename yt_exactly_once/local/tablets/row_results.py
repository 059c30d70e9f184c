"""Many rows from one SQL statement as columns, without a Python object per value.

The counterpart of `row_images`: SQLite writes the rows into a table in memory, and the pages of this table
are read by vector. Every byte that is read has the form that SQLite writes here; rows of any other form
are fetched as Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.yson_tokens import between
from yt_exactly_once.local.tablets.row_images import BITS, INTERIOR, LEAF, MORE, PAGE_BYTES

_SCHEMA = "outgoing"
_MOST_BYTES = (1 << 31) - 1
"""Of all pages, so that 32 bits number their bytes."""

_LOCAL_BYTES = PAGE_BYTES - 35
"""A longer row continues on pages of its own."""

_LEAF_HEAD, _INTERIOR_HEAD = 8, 12
_ZERO, _ONE, _REAL, _FIRST_STRING = 8, 9, 7, 12
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0])
"""Bytes of a value by its type, up to the strings."""


class _OtherFormError(Exception):
    """A row or a value is not in the form that is read here."""


def fetch(connection: Connection, query: str, columns: Sequence[Column]) -> list[Any]:
    """Return the rows of a query as stored arrays, one per column, all of one length.

    Args:
        connection: within a transaction, which may be one that only reads.
        columns: at least one.

    Raises:
        YtError: the values of one column take more than an array holds.
    """
    if not hasattr(connection, "serialize"):
        return of_rows(columns, connection.execute(query).fetchall())
    table = _prepare(connection, len(columns))
    try:
        connection.execute(f"INSERT INTO {_SCHEMA}.{table} {query}")
        (root,) = connection.execute(
            f"SELECT rootpage FROM {_SCHEMA}.sqlite_master WHERE name = ?", (table,)
        ).fetchone()
        try:
            rows = _Rows(connection.serialize(name=_SCHEMA), root, len(columns))
            return [rows.column(number, column) for number, column in enumerate(columns)]
        except _OtherFormError:
            found = connection.execute(f"SELECT * FROM {_SCHEMA}.{table} ORDER BY rowid")
            return of_rows(columns, found.fetchall())
    finally:
        # The end of the transaction gives the memory back.
        connection.execute(f"DELETE FROM {_SCHEMA}.{table}")


def _prepare(connection: Connection, width: int) -> str:
    """Return the name of a table of so many columns."""
    if _SCHEMA not in {name for _, name, _ in connection.execute("PRAGMA database_list")}:
        # Not an image: what a transaction writes into one is not there before its end.
        connection.execute(f"ATTACH ':memory:' AS {_SCHEMA}")
        connection.execute(f"PRAGMA {_SCHEMA}.page_size = {PAGE_BYTES}")
        connection.execute(f"PRAGMA {_SCHEMA}.auto_vacuum = FULL")
    names = ", ".join(f"v{number}" for number in range(width))
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_SCHEMA}.rows{width} ({names})")
    return f"rows{width}"


def of_rows(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return rows as SQLite keeps them as stored arrays, one per column."""
    stored = zip(*rows, strict=True) if rows else [()] * len(columns)
    return [
        vectors.of_stored(column, list(each)) for column, each in zip(columns, stored, strict=True)
    ]


class _Rows:
    """The rows of a table, read side by side.

    Args:
        root: number of the first page of the table.
    """

    def __init__(self, image: bytes, root: int, width: int) -> None:
        _require(len(image) <= _MOST_BYTES)
        self._data = np.frombuffer(image, np.uint8)
        cells = np.concatenate(list(_cells(image, root)))
        lengths, sizes = self._varints(cells)
        _require(int(lengths.max(initial=0)) <= _LOCAL_BYTES)
        _, more = self._varints(cells + sizes)
        head = cells + sizes + more
        # A page is filled from its end on; arrays have what lies first in memory first.
        self._order = np.argsort(cells, kind="stable")
        self._ranks = np.empty_like(self._order)
        self._ranks[self._order] = np.arange(len(cells))
        size, at = self._varints(head)
        place = head + size
        at = head + at
        self._values: list[tuple[Any, Any, Any]] = []
        for _ in range(width):
            kinds, sizes = self._varints(at)
            at = at + sizes
            lengths = np.where(
                kinds < _FIRST_STRING,
                _SIZES[np.minimum(kinds, len(_SIZES) - 1)],
                (kinds - _FIRST_STRING) >> 1,
            )
            self._values.append((kinds, place, place + lengths))
            place = place + lengths
        _require(np.array_equal(at, head + size))

    def column(self, number: int, column: Column) -> Any:
        """Return an array of the stored type of a column."""
        kinds, begins, ends = self._values[number]
        kind = vectors.arrow_type(column)
        null = kinds == 0
        if pa.types.is_null(kind):
            _require(bool(null.all()))
            return pa.nulls(len(kinds))
        if pa.types.is_binary(kind):
            _require(bool((null | ((kinds >= _FIRST_STRING) & (kinds & 1 == 0))).all()))
            return self._strings(begins, ends, null)
        if pa.types.is_float64(kind):
            _require(bool((null | (kinds == _REAL)).all()))
            return pa.array(self._eight_bytes(ends, ">f8").astype(np.float64), mask=null)
        _require(bool(((kinds < _REAL) | (kinds == _ZERO) | (kinds == _ONE)).all()))
        found = pa.array(self._integers(kinds, ends), mask=null)
        return found.cast(kind) if pa.types.is_boolean(kind) else found.view(kind)

    def _integers(self, kinds: Any, ends: Any) -> Any:
        unused = 64 - 8 * _SIZES[kinds]
        numbers = self._eight_bytes(ends, ">i8").astype(np.int64)
        # Numbers without bytes are in their types.
        shift = np.minimum(unused, 63)
        return np.where(unused == 64, kinds == _ONE, (numbers << shift) >> shift)  # noqa: PLR2004

    def _eight_bytes(self, ends: Any, kind: str) -> Any:
        """Return the numbers that end at places; shorter ones have other bytes in front."""
        windows = np.lib.stride_tricks.sliding_window_view(self._data, 8)
        return windows[ends - 8].view(kind)[:, 0]

    def _strings(self, begins: Any, ends: Any, null: Any) -> Any:
        begins, ends = begins[self._order], ends[self._order]
        return between(self._data, begins, ends, null, self._ranks).cast(pa.binary())

    def _varints(self, places: Any) -> tuple[Any, Any]:
        """Return the numbers that begin at places, high bits first, and how many bytes each takes."""
        found = self._data[places]
        numbers = (found & (MORE - 1)).astype(np.int64)
        sizes = np.ones(len(places), np.int64)
        longer = np.flatnonzero(found >= MORE)
        while len(longer):
            found = self._data[places[longer] + sizes[longer]]
            sizes[longer] += 1
            numbers[longer] = (numbers[longer] << BITS) | (found & (MORE - 1))
            longer = longer[found >= MORE]
        return numbers, sizes


def _cells(image: bytes, root: int) -> Iterator[Any]:
    """Yield where the rows of each page begin, in their order."""
    starts = [(root - 1) * PAGE_BYTES]
    while image[starts[0]] == INTERIOR:
        starts = [child for start in starts for child in _children(image, start)]
    for start in starts:
        _require(image[start] == LEAF)
        yield _places(image, start, _LEAF_HEAD) + start


def _children(image: bytes, start: int) -> list[int]:
    """Return where the pages below an interior page begin."""
    places = [start + int(place) for place in _places(image, start, _INTERIOR_HEAD)]
    # The last child is in the head of the page.
    numbers = (int.from_bytes(image[at : at + 4], "big") for at in (*places, start + _LEAF_HEAD))
    return [(number - 1) * PAGE_BYTES for number in numbers]


def _places(image: bytes, start: int, head: int) -> Any:
    """Return where the cells of a page are in it."""
    count = int.from_bytes(image[start + 3 : start + 5], "big")
    return np.frombuffer(image, ">u2", count, start + head).astype(np.int64)


def _require(condition: bool) -> None:
    if not condition:
        raise _OtherFormError
