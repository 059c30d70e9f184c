"""Binary YSON of whole arrays of plain values: one fragment of bytes per row, no loop over rows.

Fragments are `large_binary` arrays without nulls; joining them is one pass of copies. Nothing here
knows of logical types.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.buffers import scalar, to_numpy
from yt_exactly_once.codec.values import located

Offsets = npt.NDArray[np.int64]

BYTES = pa.large_binary()
ENTITY = scalar(b"#", BYTES)
_NOTHING = scalar(b"", BYTES)
_TRUE = scalar(b"\x05", BYTES)
_FALSE = scalar(b"\x04", BYTES)
_GROUP = 7


def join(*pieces: pa.Array | bytes) -> pa.Array:
    """Concatenate row by row; bytes are repeated in every row."""
    given: list[Any] = []
    for are_bytes, run in groupby(pieces, lambda piece: isinstance(piece, bytes)):
        some = list(run)
        given += [scalar(b"".join(some), BYTES)] if are_bytes else some
    return pc.binary_join_element_wise(*given, _NOTHING)


def constant(fragment: bytes, rows: int) -> pa.Array:
    """Repeat one fragment."""
    return pa.repeat(scalar(fragment, BYTES), rows)


def or_entity(fragments: pa.Array, source: pa.Array) -> pa.Array:
    """Put the entity where the source is null."""
    if source.null_count == 0:
        return fragments
    return pc.if_else(source.is_valid(), fragments, ENTITY)


def around_nulls(array: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Encode the present values alone, and put the entity where the array is null."""
    present = array.is_valid()
    rows = np.flatnonzero(np.asarray(present))
    with located(rows=rows):
        encoded = encode(array.filter(present))
    positions = np.full(len(array), len(rows))
    positions[rows] = np.arange(len(rows))
    return pa.concat_arrays([encoded, pa.array([b"#"], BYTES)]).take(pa.array(positions))


def string_literal(value: bytes) -> bytes:
    """Encode one string."""
    return bytes((yson.STRING,)) + _varint(len(value) << 1) + value


def integer_literal(value: int) -> bytes:
    """Encode one signed integer that is not negative."""
    return bytes((yson.INT64,)) + _varint(value << 1)


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number >> _GROUP:
        groups.append(number & 0x7F | 0x80)
        number >>= _GROUP
    return bytes((*groups, number))


def integers(array: pa.Array) -> pa.Array:
    """Encode integers, signed or not as their type is."""
    if pa.types.is_unsigned_integer(array.type):
        return _varints(_numbers(array, np.uint64), yson.UINT64)
    return _varints(_zigzag(_numbers(array, np.int64)), yson.INT64)


def doubles(array: pa.Array) -> pa.Array:
    """Encode floating-point numbers, NaN and the infinities included."""
    return _doubles(_numbers(array.cast(pa.float64()), np.float64))


def canonical_doubles(array: pa.Array) -> pa.Array:
    """Encode floating-point numbers, both zeros alike and every NaN alike, as the cluster compares keys."""
    values = _numbers(array.cast(pa.float64()), np.float64)
    return _doubles(np.where(np.isnan(values), np.nan, values + 0.0))


def _doubles(values: npt.NDArray[np.float64]) -> pa.Array:
    matrix = np.empty((len(values), 9), np.uint8)
    matrix[:, 0] = yson.DOUBLE
    matrix[:, 1:] = values.astype("<f8", copy=False).view(np.uint8).reshape(-1, 8)
    return _fragments(matrix, np.full(len(values), 9))


def booleans(array: pa.Array) -> pa.Array:
    """Encode booleans; null stays null."""
    return pc.if_else(array, _TRUE, _FALSE)


def strings(array: pa.Array) -> pa.Array:
    """Encode byte strings and texts."""
    filled = pc.fill_null(array.cast(BYTES), _NOTHING)
    lengths = to_numpy(pc.binary_length(filled)).astype(np.int64)
    return join(_varints(_zigzag(lengths), yson.STRING), filled)


def fixed_strings(array: pa.Array) -> pa.Array:
    """Encode byte strings that all have one length."""
    width = array.type.byte_width
    return join(string_literal(b"\0" * width)[:-width], array.cast(pa.binary()).cast(BYTES))


def nothing(array: pa.Array) -> pa.Array:
    """Encode values of a type that has none but null."""
    return constant(b"#", len(array))


def held(array: pa.Array) -> tuple[Offsets, slice]:
    """Return where each list or map begins and ends among what all of them hold, and where that is."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - start, slice(start, end)


def spans(items: pa.Array, offsets: Offsets) -> pa.Array:
    """Concatenate the items between each offset and the next, sharing their bytes."""
    bounds, data = _bounds(items)[offsets], items.buffers()[2]
    return pa.Array.from_buffers(BYTES, len(offsets) - 1, [None, pa.py_buffer(bounds), data])


def joined(fragments: pa.Array) -> bytes:
    """Return all fragments one after another, as the body of one request."""
    bounds, data = _bounds(fragments), fragments.buffers()[2]
    return b"" if data is None else bytes(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def _bounds(fragments: pa.Array) -> npt.NDArray[np.int64]:
    if len(fragments) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(fragments.buffers()[1], np.int64, len(fragments) + 1, fragments.offset * 8)


def _numbers(array: pa.Array, kind: Any) -> npt.NDArray[Any]:
    filled = pc.fill_null(array, scalar(0, array.type)) if array.null_count else array
    return to_numpy(filled).astype(kind, copy=False)


def _zigzag(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _varints(values: npt.NDArray[np.uint64], marker: int) -> pa.Array:
    """Encode as a marker and 7-bit groups, low ones first, every byte but the last flagged."""
    sizes = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for shift in range(_GROUP, 64, _GROUP):
        if largest >> shift == 0:
            break
        sizes += values >= np.uint64(1 << shift)
    longest = int(sizes.max(initial=1))
    matrix = np.empty((len(values), 1 + longest), np.uint8)
    matrix[:, 0] = marker
    rest = values
    for position in range(1, 1 + longest):
        group = (rest & np.uint64(0x7F)).astype(np.uint8)
        matrix[:, position] = group | ((sizes > position).astype(np.uint8) << np.uint8(_GROUP))
        rest = rest >> np.uint64(_GROUP)
    return _fragments(matrix, sizes + 1)


def _fragments(matrix: npt.NDArray[np.uint8], sizes: npt.NDArray[Any]) -> pa.Array:
    """Keep the first bytes of each row of the matrix, as many as its size says."""
    width = matrix.shape[1]
    offsets = np.zeros(len(matrix) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) != matrix.size:
        matrix = matrix[np.arange(width) < sizes[:, None]]
    return pa.Array.from_buffers(
        BYTES, len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(matrix.reshape(-1))]
    )
