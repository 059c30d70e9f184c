"""Binary YSON of whole arrays of plain values: pieces side by side, no loop over rows.

What a column becomes is a list of pieces. Each row is what it has of the first piece, of the second one, and
so on. `join` copies the bytes of all pieces once. Nothing here knows of logical types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yt_exactly_once.codec import yson_marks as yson
from yt_exactly_once.codec.buffers import from_numpy, to_numpy
from yt_exactly_once.codec.values import located

Offsets: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = npt.NDArray[np.uint8]

BYTES = pa.large_binary()


class Picked(NamedTuple):
    """A piece of bytes of any length.

    Attributes:
        pool: strings without nulls.
        at: which of them each row has; `None` where row and string have the same number.
    """

    pool: pa.LargeBinaryArray
    at: Offsets | None = None


Pieces: TypeAlias = list[bytes | Matrix | Picked]
"""Of rows: the same bytes in every row, as many bytes in every row, or others."""


def join(pieces: Pieces, rows: int) -> pa.LargeBinaryArray:
    """Concatenate row by row."""
    merged = list(_merged(pieces, rows))
    if len(merged) == 1 and not isinstance(merged[0], bytes):
        pool, at = _picked(merged[0])
        return pool if at is None else pool.take(from_numpy(at))
    pools: list[pa.Array] = []
    picks, each = np.empty((rows, len(merged)), np.int64), np.arange(rows)
    taken = 0
    for number, piece in enumerate(merged):
        pool, at = _picked(piece)
        np.add(each if at is None else at, taken, out=picks[:, number])
        pools.append(pool)
        taken += len(pool)
    copied = pa.concat_arrays(pools).take(from_numpy(picks.reshape(-1)))
    return _array(_bounds(copied)[:: len(merged)], copied.buffers()[2])


def _merged(pieces: Pieces, rows: int) -> Iterator[bytes | Matrix | Picked]:
    """Make one piece of neighbours that are as long in every row."""
    for is_picked, run in groupby(pieces, lambda piece: isinstance(piece, Picked)):
        some: list[Any] = list(run)
        if is_picked:
            yield from some
        elif all(isinstance(piece, bytes) for piece in some):
            yield b"".join(some)
        else:
            cells = [
                np.frombuffer(piece, np.uint8)[None] if isinstance(piece, bytes) else piece
                for piece in some
            ]
            matrix = np.empty((rows, sum(piece.shape[1] for piece in cells)), np.uint8)
            end = 0
            for piece in cells:
                start, end = end, end + piece.shape[1]
                matrix[:, start:end] = piece
            yield matrix


def among_nulls(array: pa.Array, encode: Callable[[pa.Array], Pieces], null: bytes) -> Pieces:
    """Encode the present values alone, and put other bytes where the array is null."""
    valid = array.is_valid()
    present = np.flatnonzero(to_numpy(valid.cast(pa.uint8())))
    with located(rows=present):
        pieces = encode(array.filter(valid))
    found: Pieces = []
    for piece in pieces:
        pool, at = _picked(piece)
        spread = np.full(len(array), len(pool))
        spread[present] = np.arange(len(present)) if at is None else at
        # The first piece stands for the null, the others are nothing.
        found.append(Picked(pa.concat_arrays([pool, _literal(b"" if found else null)]), spread))
    return found


def literals(*values: bytes) -> pa.LargeBinaryArray:
    """Return strings as an array."""
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    return _array(bounds, b"".join(values))


@lru_cache(maxsize=1024)
def _literal(value: bytes) -> pa.LargeBinaryArray:
    return literals(value)


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


# Each encodes an array without nulls.


def integers(array: pa.Array) -> Pieces:
    """Encode integers, signed or not as their type is."""
    values = to_numpy(array)
    if pa.types.is_unsigned_integer(array.type):
        return [_varints(values.astype(np.uint64, copy=False), yson.UINT64)]
    return [_varints(_zigzag(values.astype(np.int64, copy=False)), yson.INT64)]


def doubles(array: pa.Array) -> Pieces:
    """Encode floating-point numbers, NaN and the infinities included."""
    return _doubles(to_numpy(array.cast(pa.float64())))


def canonical_doubles(array: pa.Array) -> Pieces:
    """Encode floating-point numbers, both zeros alike and every NaN alike, as the cluster compares keys."""
    values = to_numpy(array.cast(pa.float64()))
    return _doubles(np.where(np.isnan(values), np.nan, values + 0.0))


def _doubles(values: npt.NDArray[np.float64]) -> Pieces:
    raw = values.astype("<f8", copy=False).view(np.uint8)
    return [bytes((yson.DOUBLE,)), raw.reshape(-1, 8)]


def booleans(array: pa.Array) -> Pieces:
    """Encode booleans."""
    return [np.uint8(yson.FALSE) + to_numpy(array.cast(pa.uint8())).reshape(-1, 1)]


def strings(array: pa.Array) -> Pieces:
    """Encode byte strings and texts."""
    texts = array.cast(BYTES)
    lengths = np.diff(_bounds(texts))
    longest = int(lengths.max(initial=0))
    if longest < len(lengths):
        # There are fewer lengths than strings.
        heads = _varints(_zigzag(np.arange(longest + 1)), yson.STRING).pool
        return [Picked(heads, 2 * lengths), Picked(texts)]
    return [_varints(_zigzag(lengths), yson.STRING), Picked(texts)]


def fixed_strings(array: pa.Array) -> Pieces:
    """Encode byte strings that all have one length."""
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return [string_literal(b"\0" * width)[:-width], raw.reshape(-1, width)]


def nothing(_array: pa.Array) -> Pieces:
    """Encode values of a type that has none but null."""
    return [b"#"]


def held(array: pa.Array) -> tuple[Offsets, slice]:
    """Return where each list or map begins and ends among what all of them hold, and where that is."""
    offsets = to_numpy(array.offsets).astype(np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - start, slice(start, end)


def spans(items: Pieces, offsets: Offsets) -> Picked:
    """Concatenate the items between each offset and the next."""
    found = join(items, int(offsets[-1]))
    return Picked(_array(_bounds(found)[offsets], found.buffers()[2]))


def joined(fragments: pa.LargeBinaryArray) -> bytes:
    """Return all fragments one after another, as the body of one request."""
    bounds, data = _bounds(fragments), fragments.buffers()[2]
    return b"" if data is None else bytes(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def _array(bounds: Offsets, data: Any) -> pa.LargeBinaryArray:
    """Return the strings between bounds in bytes."""
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data)
    held = pa.py_buffer(b"" if data is None else data)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds)), held]
    return pa.Array.from_buffers(BYTES, len(bounds) - 1, buffers)


def _picked(piece: bytes | Matrix | Picked) -> tuple[pa.LargeBinaryArray, Any]:
    """Return the strings of a piece, and which of them each row has, or all rows; `None` as there."""
    if isinstance(piece, bytes):
        return _literal(piece), 0
    if isinstance(piece, Picked):
        return piece
    return _array(np.arange(len(piece) + 1) * piece.shape[1], piece), None


def _bounds(strings: pa.LargeBinaryArray) -> Offsets:
    if len(strings) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(strings.buffers()[1], np.int64, len(strings) + 1, strings.offset * 8)


def _zigzag(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


_GROUP = 7
_WORD = 8
_LONGEST = 10
_SPREAD = [
    (np.uint64(bits), np.uint64(kept), np.uint64(moved))
    for bits, kept, moved in (
        (4, 0x000000000FFFFFFF, 0x00FFFFFFF0000000),
        (2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000),
        (1, 0x007F007F007F007F, 0x3F803F803F803F80),
    )
]
_FLAGS = np.array(
    [int.from_bytes(b"\x80" * count, "little") for count in range(_WORD + 1)], np.uint64
)
"""Of a further byte, by how many bytes follow the first one."""


def _varints(values: npt.NDArray[np.uint64], marker: int) -> Picked:
    """Encode as a marker and 7-bit groups, low ones first, every byte but the last flagged."""
    further = np.zeros(len(values), np.int64)
    largest = int(values.max(initial=0))
    for shift in range(_GROUP, 64, _GROUP):
        if largest >> shift == 0:
            break
        further += values >= np.uint64(1 << shift)
    width = 1 + (_WORD if largest >> _WORD * _GROUP == 0 else _LONGEST)
    cells = np.empty((len(values), width), np.uint8)
    cells[:, 0] = marker
    # Halves of a word move apart until each byte has seven bits.
    words = values & np.uint64((1 << _WORD * _GROUP) - 1)
    for bits, kept, moved in _SPREAD:
        words = (words & kept) | ((words & moved) << bits)
    words |= _FLAGS[np.minimum(further, _WORD)]
    cells[:, 1 : 1 + _WORD] = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _WORD)
    if width > 1 + _WORD:
        rest = values >> np.uint64(_WORD * _GROUP)
        cells[:, -2] = (rest & np.uint64(0x7F)) | (
            (further > _WORD).astype(np.uint64) << np.uint64(_GROUP)
        )
        cells[:, -1] = rest >> np.uint64(_GROUP)
    # The bytes of each value, and what is left of its cell, in turn.
    bounds = np.arange(2 * len(values) + 1) // 2 * width
    bounds[1::2] += 2 + further
    return Picked(_array(bounds, cells), np.arange(0, 2 * len(values), 2))
