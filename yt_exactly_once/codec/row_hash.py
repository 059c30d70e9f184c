"""Hashes of rows by their values, to compare two tables without keeping their rows.

Two rows with equal values in columns of equal types have equal hashes, wherever they were read from. The
hashes of different rows differ, but for accidents of 64 bits; an adversary could make them equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(31)


def row_hashes(batch: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """Return one hash per row, over some columns in this order."""
    found = np.zeros(batch.num_rows, dtype=np.uint64)
    for name in names:
        found = (found ^ (found >> _SHIFT)) * _FACTOR + _column(batch.column(name))
    mixed: Hashes = (found ^ (found >> _SHIFT)) * _FACTOR
    return mixed


def _column(array: pa.Array) -> Hashes:
    nulls = np.asarray(array.is_null())
    hashes: Hashes = pd.util.hash_array(_values(array), categorize=False)
    return np.where(nulls, _NULL, hashes)


def _values(array: pa.Array) -> npt.NDArray[Any]:
    """Return values that pandas can hash; those of nulls do not matter."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8()).fill_null(0))
    if pa.types.is_temporal(kind):
        wide = kind.bit_width > np.iinfo(np.int32).bits
        array, kind = array.cast(pa.int64() if wide else pa.int32()), pa.int64()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(array.fill_null(0))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(
            array.cast(pa.large_binary()).fill_null(b"").to_numpy(zero_copy_only=False)
        )
    texts = [repr(value) for value in array.to_pylist()]
    return np.array(texts, dtype=object)
