"""Hashes of rows by what their table stores, and sums of them: digests of many rows in any order.

A row has one hash, whether it is hashed before it is written or after it was read, and in whichever order its
columns come. A null adds nothing, so a column, or a member of a struct, that the table gets later changes no
hash. The hashes of different rows differ, but for accidents of 64 bits; an adversary could make them equal.
Ledgers keep digests: who changes how a hash is computed must change `HASH_VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.buffers import scalar, to_numpy
from yt_exactly_once.codec.scalars import scalar_named
from yt_exactly_once.codec.types import plain_scalar_of
from yt_exactly_once.codec.yson_writer import Shape, stored

if TYPE_CHECKING:
    import numpy.typing as npt

    from yt_exactly_once.codec.schema import ColumnSchema

    Hashes = npt.NDArray[np.uint64]

HASH_VERSION = 2
"""Of the hashes; digests of another version cannot be compared."""

_BITS = 64
_WORD = 8
_LONG = 512
"""What a value has beyond so many bytes is hashed by a library, value by value."""
_BLOCK = 16_384
"""Rows that are hashed at a time, so that what is in work stays in the processor's cache."""

_UUID = scalar_named("uuid")

# Constants of the finalizer of SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
"""By the number of bytes that a word has left."""


def row_hashes(batch: pa.RecordBatch, columns: Iterable[ColumnSchema]) -> Hashes:
    """Return one hash per row, over some columns in any order; a column that the batch lacks is null.

    Values must be such that their columns can take them: they are written, or were read.
    """
    known = [column for column in columns if column.name in batch.schema.names]
    found = np.zeros(batch.num_rows, np.uint64)
    for start in range(0, batch.num_rows, _BLOCK):
        block = batch.slice(start, _BLOCK)
        for column in known:
            _add_column(found[start : start + _BLOCK], column.values_in(block), column)
    return _mix(found)


def added(digest: int, hashes: Hashes) -> int:
    """Return the digest of more rows."""
    return combined(digest, int(hashes.sum(dtype=np.uint64)))


def combined(*digests: int) -> int:
    """Return the digest of all rows of some digests."""
    return sum(digests) % (1 << _BITS)


def seed_of(names: Iterable[str]) -> int:
    """Return a number that depends on the names of hashed columns: a null leaves no trace in a hash."""
    return _of_library(json.dumps(sorted(names)).encode())


def numbered(hashes: Hashes, numbers: npt.NDArray[np.int64], seed: int) -> Hashes:
    """Return what numbered rows add to a digest that knows which columns were hashed, see `seed_of`."""
    return _mix(numbers.view(np.uint64) * _STEP ^ hashes.view(np.uint64) ^ np.uint64(seed))


def spelled(digest: int) -> str:
    """Return a digest as it is kept."""
    return f"{digest:0{_BITS // 4}x}"


def _add_column(found: Hashes, array: pa.Array, column: ColumnSchema) -> None:
    plain = _plain(array, column)
    if plain.null_count == len(plain):
        return
    if pa.types.is_large_binary(plain.type):
        hashes = _of_bytes(plain, _key(column.name))
    else:
        first, *more = _words(plain)
        hashes = _mix(first + _key(column.name))
        for words in more:
            hashes = _mix(hashes + words)
    if plain.null_count:
        hashes[np.asarray(plain.is_null())] = 0
    found += hashes


@lru_cache(maxsize=1024)
def _key(name: str) -> np.uint64:
    return np.uint64(_of_library(name.encode()))


def _plain(array: pa.Array, column: ColumnSchema) -> pa.Array:
    """Return values as the table stores them; composite values as YSON."""
    known = plain_scalar_of(column.type)
    if known is None:
        return stored(array, column.type, Shape.HASHED)
    if known.is_nothing or pa.types.is_null(array.type):
        return pa.nulls(len(array))
    if pa.types.is_binary(known.plain):
        # Of these, a uuid alone is not stored as it may be given.
        plain = known.to_plain(array) if known is _UUID else array
        return plain.cast(pa.large_binary())
    return known.to_plain(array)


def _words(plain: pa.Array) -> list[Hashes]:
    """Return values of a fixed width as numbers of 64 bits; those of nulls do not matter."""
    kind = plain.type
    if pa.types.is_decimal(kind):
        width = kind.byte_width
        raw = np.frombuffer(
            plain.buffers()[1], "<u8", len(plain) * width // _WORD, plain.offset * width
        )
        return list(raw.reshape(len(plain), -1).T)
    if pa.types.is_boolean(kind):
        plain = plain.cast(pa.uint8())
    if plain.null_count:
        plain = pc.fill_null(plain, scalar(0, plain.type))
    values: Any = to_numpy(plain)
    if pa.types.is_floating(kind):
        values = values.astype(np.float64)
        # One zero and one NaN, as the cluster compares keys.
        return [np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)]
    return [values.astype(np.int64).view(np.uint64)]


def _of_bytes(array: pa.Array, key: np.uint64) -> Hashes:
    """Hash byte strings, word by word over all of them."""
    bounds = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * _WORD)
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    # Reading a word may pass the end.
    data = np.zeros(int(bounds[-1] - bounds[0]) + _WORD, np.uint8)
    if len(data) > _WORD:
        data[:-_WORD] = np.frombuffer(
            array.buffers()[2], np.uint8, len(data) - _WORD, int(bounds[0])
        )
    anywhere = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    hashes = lengths.view(np.uint64) * _STEP + key
    shortest, longest = int(lengths.min()), int(lengths.max())
    rows: Any = slice(None)
    for position in range(0, min(max(longest, 1), _LONG), _WORD):
        if position >= max(shortest, 1):
            rows = np.flatnonzero(lengths > position)
        if shortest == longest > 0:
            # As ids are: to step through them is faster than to look each one up.
            values = anywhere[position::shortest][: len(lengths)].copy()
        else:
            values = anywhere[starts[rows] + position]
        if shortest < position + _WORD:
            values &= _MASKS[np.minimum(lengths[rows] - position, _WORD)]
        hashes[rows] = _mix(hashes[rows] + values)
    for row in np.flatnonzero(lengths > _LONG).tolist():
        rest = data[starts[row] + _LONG : starts[row] + lengths[row]]
        hashes[row] ^= np.uint64(_of_library(rest.tobytes()))
    return hashes


def _of_library(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=_BITS // 8).digest(), "little")


def _mix(values: Hashes) -> Hashes:
    """Mix numbers of 64 bits in place; different ones stay different."""
    for shift, factor in _ROUNDS:
        values ^= values >> shift
        values *= factor
    values ^= values >> _LAST_SHIFT
    return values
