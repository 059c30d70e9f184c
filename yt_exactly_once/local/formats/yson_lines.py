"""Lines of binary YSON, one per row, written by whole columns.

Numbers, and what all rows have in common, form a matrix of bytes with one line per row. Each row uses a part
of its line. Strings are joined in between. The bytes are those that `yson.dumps` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.tables.values import dump_yson

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.schema import Column
    from yt_exactly_once.local.tables.vectors import StoredRows

_ROWS_PER_PIECE = 8192
"""So that a matrix fits into the caches of a processor."""

NULL = b"#"
_STRING, _INT64, _DOUBLE, _UINT64 = b"\x01", b"\x02", b"\x03", b"\x06"
_FALSE = 4
_BITS = 7
_MORE = 0x80


class Lines:
    """Lines of bytes, one per row, that grow from left to right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._constant = bytearray()
        self._fields: list[tuple[Any, Any]] = []
        self._parts: list[Any] = []

    def put(self, text: bytes) -> None:
        """Append the same bytes to every line."""
        self._constant += text

    def put_matrix(self, matrix: Any, used: Any = None) -> None:
        """Append a matrix of bytes to the lines; `used` tells which bytes of it count, if not all."""
        self._end_constant()
        self._fields.append((matrix, used))

    def put_strings(self, strings: Any) -> None:
        """Append strings of any length, without nulls."""
        self._end_matrix()
        self._parts.append(strings)

    def put_values(self, array: Any) -> None:
        """Append numbers of 64 bits, booleans or strings, each as a value of YSON."""
        if pa.types.is_null(array.type) or array.null_count == len(array):
            self.put(NULL)
        elif pa.types.is_binary(array.type):
            _put_strings(self, array)
        elif pa.types.is_boolean(array.type):
            truth = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
            _put_marked(self, (truth + np.uint8(_FALSE))[:, None], None, array)
        elif pa.types.is_float64(array.type):
            numbers = np.ascontiguousarray(pc.fill_null(array, 0.0).to_numpy(), "<f8")
            matrix = np.empty((len(array), 9), np.uint8)
            matrix[:, 0] = _DOUBLE[0]
            matrix[:, 1:] = numbers.view(np.uint8).reshape(-1, 8)
            _put_marked(self, matrix, None, array)
        else:
            numbers = pc.fill_null(array, 0).to_numpy()
            if pa.types.is_uint64(array.type):
                _put_numbers(self, _UINT64, numbers, array)
            else:
                _put_numbers(self, _INT64, _zigzag(numbers), array)

    def strings(self) -> Any:
        """Return the lines as an array."""
        self._end_matrix()
        if len(self._parts) > 1:
            self._parts = [pc.binary_join_element_wise(*self._parts, b"")]
        return self._parts[0]

    def joined(self) -> bytes:
        """Return the lines one after the other."""
        only = self.strings()
        begin, end = (only.offset, only.offset + len(only))
        _, offsets, data = only.buffers()
        edges = np.frombuffer(offsets, np.int32)
        joined: bytes = data[int(edges[begin]) : int(edges[end])].to_pybytes()
        return joined

    def _end_constant(self) -> None:
        if self._constant:
            text = np.frombuffer(bytes(self._constant), np.uint8)
            self._fields.append((np.broadcast_to(text, (self._count, len(text))), None))
            self._constant.clear()

    def _end_matrix(self) -> None:
        self._end_constant()
        if not self._fields:
            return
        width = sum(matrix.shape[1] for matrix, _ in self._fields)
        lines = np.empty((self._count, width), np.uint8)
        is_fixed = all(used is None for _, used in self._fields)
        counted = None if is_fixed else np.ones((self._count, width), bool)
        place = 0
        for matrix, used in self._fields:
            end = place + matrix.shape[1]
            lines[:, place:end] = matrix
            if counted is not None and used is not None:
                counted[:, place:end] = used
            place = end
        if counted is None:
            lengths = np.full(self._count, width, np.int32)
        else:
            lengths = counted.sum(axis=1, dtype=np.int32)
            lines = lines[counted]
        self._fields = []
        edges = np.zeros(self._count + 1, np.int32)
        np.cumsum(lengths, out=edges[1:])
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(lines)]
        self._parts.append(pa.Array.from_buffers(pa.binary(), self._count, buffers))


def _zigzag(numbers: Any) -> Any:
    """Map signed numbers to unsigned ones, small ones to small ones."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _varints(numbers: Any) -> tuple[Any, Any]:
    """Return unsigned numbers as lines of seven bits per byte, and which bytes of them count."""
    width = max(1, -(-int(numbers.max()).bit_length() // _BITS))
    matrix = np.empty((len(numbers), width), np.uint8)
    used = np.empty((len(numbers), width), bool)
    used[:, 0] = True
    rest = numbers
    for place in range(width):
        following = rest >> np.uint64(_BITS)
        goes_on = following != 0
        matrix[:, place] = (rest & np.uint64(_MORE - 1)) | (goes_on * np.uint64(_MORE))
        if place + 1 < width:
            used[:, place + 1] = goes_on
        rest = following
    return matrix, None if used.all() else used


def _put_numbers(lines: Lines, marker: bytes, numbers: Any, array: Any) -> None:
    if not array.null_count and numbers.min() == numbers.max():
        matrix, _ = _varints(numbers[:1])
        lines.put(marker + matrix.tobytes())
        return
    matrix, used = _varints(numbers)
    marked = np.empty((len(numbers), matrix.shape[1] + 1), np.uint8)
    marked[:, 0] = marker[0]
    marked[:, 1:] = matrix
    if used is not None:
        used = np.concatenate([np.ones((len(numbers), 1), bool), used], axis=1)
    _put_marked(lines, marked, used, array)


def _put_marked(lines: Lines, matrix: Any, used: Any, array: Any) -> None:
    """Append values that begin with a marker, which a null replaces by its own."""
    if array.null_count:
        is_null = pc.is_null(array).to_numpy(zero_copy_only=False)
        matrix[is_null, 0] = NULL[0]
        if used is None:
            used = np.ones(matrix.shape, bool)
        used[is_null, 1:] = False
    lines.put_matrix(matrix, used)


def _put_strings(lines: Lines, array: Any) -> None:
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
    _put_numbers(lines, _STRING, _zigzag(lengths), array)
    lines.put_strings(pc.fill_null(array, b"") if array.null_count else array)


def dump_rows(rows: StoredRows) -> Iterator[bytes]:
    """Yield stored rows as a list fragment, piece by piece."""
    names = [dump_yson(column.name) + b"=" for column in rows.columns]
    for start in range(0, len(rows), _ROWS_PER_PIECE):
        part = rows[start : start + _ROWS_PER_PIECE]
        layout = Lines(len(part))
        layout.put(b"{")
        for name, column, array in zip(names, part.columns, part.arrays, strict=True):
            layout.put(name)
            _put_column(layout, column, array)
            layout.put(b";")
        layout.put(b"};")
        yield layout.joined()


def _put_column(lines: Lines, column: Column, array: Any) -> None:
    if column.wire_type != "any" or array.null_count == len(array):
        lines.put_values(array)
    else:
        # These are stored as YSON.
        lines.put_strings(pc.fill_null(array, NULL) if array.null_count else array)
