"""Many rows for one SQL statement: an image of a database, which SQLite opens in memory.

A value that is bound to a statement costs a call from Python, which takes longer than SQLite needs to write
it. So rows are laid out by vector as the file of a database with one table, and statements read this table.
The format never changes: https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.tables import vectors

MANY_ROWS = 500
"""From so many on an image is faster than parameters."""

TABLE = "incoming.rows"
"""The table of the image, rows in their order; `column` names its columns."""

_KEYS_PER_STATEMENT = 500
_SCHEMA = "incoming"
PAGE_BYTES = 65_536
_MOST_BYTES = 65_000
"""Of a row; a longer one would need pages of its own."""

_MOST_PAGES = 6_000
"""So that one page refers to all others."""

LEAF, INTERIOR = 0x0D, 0x05
_NULL, _INTEGER, _REAL = 0, 6, 7
BITS = 7
MORE = 0x80
_LENGTH_BYTES, _ROWID_BYTES, _HEADER_BYTES, _STRING_BYTES = 3, 4, 2, 3


def column(number: int) -> str:
    """Return the SQL name of a column; no table has one of that name."""
    return f'"${number}"'


def portions(keys: Sequence[bytes]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Yield the marks of parameters and the keys for them, as many as one statement takes."""
    for start in range(0, len(keys), _KEYS_PER_STATEMENT):
        portion = keys[start : start + _KEYS_PER_STATEMENT]
        yield ", ".join("?" * len(portion)), portion


@contextmanager
def opened(connection: Connection, image: bytearray) -> Iterator[None]:
    """Open the rows of an image as the table `TABLE` for a while, within a transaction or not."""
    if _SCHEMA not in {name for _, name, _ in connection.execute("PRAGMA database_list")}:
        connection.execute(f"ATTACH ':memory:' AS {_SCHEMA}")
    connection.deserialize(image, name=_SCHEMA)
    try:
        yield
    finally:
        # Not detached, which is impossible within a transaction; but the memory is free.
        connection.deserialize(_EMPTY, name=_SCHEMA)


def image_of(columns: Sequence[Any]) -> bytearray | None:
    """Return rows, given as stored arrays, for `opened`; None where they must be bound instead."""
    if len(columns[0]) < MANY_ROWS or not hasattr(Connection, "deserialize"):
        return None
    if any(map(vectors.has_nan, columns)):
        # It is kept as a text.
        return None
    count = len(columns[0])
    try:
        cells = _cells(list(map(vectors.as_kept, columns)), count)
    except pa.ArrowException:
        # A column may be larger than an array.
        return None
    if cells is None:
        return None
    edges = np.frombuffer(cells.buffers()[1], np.int32)[: count + 1].astype(np.int64)
    data = memoryview(cells.buffers()[2])
    starts = _starts(np.cumsum(np.diff(edges) + 2))
    if len(starts) > _MOST_PAGES:
        return None
    pages = len(starts) - 1
    # The first page is of the definition; the second one is the only leaf, or refers to all of them.
    first = 1 if pages == 1 else 2
    image = bytearray(PAGE_BYTES * (first + pages))
    for number, (start, end) in enumerate(pairwise(starts), first):
        body = data[int(edges[start]) : int(edges[end])]
        places = (edges[start:end] - edges[start] + PAGE_BYTES - len(body)).astype(">u2")
        _put_page(image, number, LEAF, places, body)
    if pages > 1:
        _put_root(image, starts)
    _put_definition(image, first + pages, len(columns))
    return image


def _starts(sums: Any) -> list[int]:
    """Return the first row of each page, and the number of rows; sums are of bytes that rows take."""
    starts, passed = [0], 0
    while starts[-1] < len(sums):
        starts.append(int(np.searchsorted(sums, passed + PAGE_BYTES - 8, side="right")))
        passed = int(sums[starts[-1] - 1])
    return starts


def _cells(arrays: Sequence[Any], count: int) -> Any:
    """Return each row as a cell of a leaf page: length, row id, types of values, values."""
    header: list[Any] = []
    bodies: list[Any] = []
    lengths = np.zeros(count, np.int64)
    for array in arrays:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_binary(array.type):
            sizes = pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
            header.append(_varint(np.where(valid, 12 + 2 * sizes, _NULL), _STRING_BYTES))
            bodies.append(_bodies(array, sizes))
            lengths += sizes
        elif pa.types.is_null(array.type):
            header.append(np.full((count, 1), _NULL, np.uint8))
        else:
            mark = _REAL if pa.types.is_float64(array.type) else _INTEGER
            header.append((valid * np.uint8(mark))[:, None])
            numbers = pc.fill_null(array, 0).to_numpy()
            matrix = numbers.astype(numbers.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, 8)
            bodies.append(
                pc.if_else(array.is_valid(), _strings(matrix), b"") if array.null_count else matrix
            )
            lengths += 8 * valid
    size = _HEADER_BYTES + sum(part.shape[1] for part in header)
    lengths += size
    if int(lengths.max()) > _MOST_BYTES:
        return None
    rowids = np.arange(1, count + 1)
    before = [_varint(lengths, _LENGTH_BYTES), _varint(rowids, _ROWID_BYTES)]
    before += [_varint(np.full(count, size), _HEADER_BYTES), *header]
    parts = [
        _strings(np.concatenate(list(run), axis=1))
        if is_matrix
        else pc.binary_join_element_wise(*run, b"")
        for is_matrix, run in groupby([*before, *bodies], lambda part: isinstance(part, np.ndarray))
    ]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _bodies(array: Any, sizes: Any) -> Any:
    """Return strings, those of one length as a matrix."""
    width = int(sizes[0])
    if array.null_count or width == 0 or (sizes != width).any():
        return pc.fill_null(array, b"") if array.null_count else array
    start = int(np.frombuffer(array.buffers()[1], np.int32)[array.offset])
    return np.frombuffer(array.buffers()[2], np.uint8, len(array) * width, start).reshape(-1, width)


def _strings(matrix: Any) -> Any:
    """Return the lines of a matrix of bytes as an array."""
    count, width = matrix.shape
    edges = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _varint(numbers: Any, size: int) -> Any:
    """Write numbers in so many bytes of seven bits, high ones first; leading zeros are allowed."""
    matrix = np.empty((len(numbers), size), np.uint8)
    for place in range(size):
        matrix[:, place] = (numbers >> (BITS * (size - 1 - place))) & (MORE - 1)
    matrix[:, :-1] |= MORE
    return matrix


def _put_page(
    image: bytearray,
    number: int,
    kind: int,
    places: Any,
    body: Any,
    more: bytes = b"",
    head: int = 0,
) -> None:
    """Write a page: where its cells are after `head` bytes at the beginning, the cells at the end."""
    past = PAGE_BYTES * (number + 1)
    start = PAGE_BYTES - len(body)
    before = (
        struct.pack(">BHHHB", kind, 0, len(places), start & 0xFFFF, 0) + more + places.tobytes()
    )
    begin = past - PAGE_BYTES + head
    image[begin : begin + len(before)] = before
    image[past - len(body) : past] = body


def _put_root(image: bytearray, starts: list[int]) -> None:
    """Write the page that says up to which row each leaf page goes."""
    ends = np.array(starts[1:-1])
    numbers = np.arange(3, 3 + len(ends)).astype(">u4").view(np.uint8).reshape(-1, 4)
    cells = np.concatenate([numbers, _varint(ends, _ROWID_BYTES)], axis=1)
    places = (PAGE_BYTES - cells.size + np.arange(0, cells.size, cells.shape[1])).astype(">u2")
    _put_page(image, 1, INTERIOR, places, cells.tobytes(), struct.pack(">I", len(starts) + 1))


def _put_definition(image: bytearray, pages: int, width: int) -> None:
    """Write the first page: the header of the file, and the definition of a table of so many columns."""
    names = ", ".join(map(column, range(width))) or "none"
    sql = f"CREATE TABLE rows ({names})".encode()
    texts = (b"table", b"rows", b"rows", sql)
    marks = [_varint(np.array([13 + 2 * len(text)]), _STRING_BYTES).tobytes() for text in texts]
    record = b"".join([*marks[:3], b"\x01", marks[3]])
    size = _HEADER_BYTES + len(record)
    record = _varint(np.array([size]), _HEADER_BYTES).tobytes() + record
    record += b"".join([*texts[:3], b"\x02", sql])
    cell = _varint(np.array([len(record)]), _LENGTH_BYTES).tobytes() + b"\x01" + record
    header = struct.pack(
        ">16sHBBBBBBIIIIIIIIIIII20xII",
        b"SQLite format 3\0",
        1,  # a page of 65 536 bytes
        *(1, 1, 0, 64, 32, 32),
        1,
        pages,
        *(0, 0),
        1,
        4,
        *(0, 0),
        1,  # UTF-8
        *(0, 0, 0),
        1,
        3_040_000,
    )
    image[: len(header)] = header
    places = np.array([PAGE_BYTES - len(cell)], ">u2")
    _put_page(image, 0, LEAF, places, cell, head=len(header))


_EMPTY = bytearray(2 * PAGE_BYTES)
_put_definition(_EMPTY, 2, 0)
_put_page(_EMPTY, 1, LEAF, np.empty(0, ">u2"), b"")
