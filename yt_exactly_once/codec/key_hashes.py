"""Hashes of keys, for who must compare all keys of a batch and has too many to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.schema import ColumnSchema, TableSchema, WritePlan

KEY_HASHES = np.dtype([("one", "<u8"), ("other", "<u8")])
"""Two hashes of a row's key, 128 bits together."""

Hashes = np.ndarray[Any, Any]
"""One record per key, of type `KEY_HASHES`."""


def key_hashes(chunk: pa.RecordBatch, keys: WritePlan) -> Hashes:
    """Return the hashes of the keys of rows that are to be encoded, one record per row."""
    return _hashes(chunk.select(list(keys.names)), keys.columns)


def fragment_hashes(keys: pa.LargeBinaryArray) -> Hashes:
    """Return the hashes of keys that are encoded, one record per key."""
    columns = TableSchema.from_yt([{"name": "key", "type": "string"}]).columns
    return _hashes(pa.RecordBatch.from_arrays([keys], ["key"]), columns)


def distinct(hashes: Hashes) -> Hashes:
    """Return each key once.

    `np.unique` compares records one by one, a hundred times as slow as numbers. Most batches repeat no key.
    """
    ones = np.sort(hashes["one"])
    if (ones[1:] != ones[:-1]).all():
        return hashes
    found: Hashes = hashes[np.lexsort((hashes["other"], hashes["one"]))]
    is_first = np.append(True, found[1:] != found[:-1])
    return np.asarray(found[is_first])


def as_arrow(hashes: Hashes) -> pa.FixedSizeBinaryArray:
    """Return hashes as values that can be looked up among others."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(hashes))]
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(KEY_HASHES.itemsize), len(hashes), buffers
    )


def _hashes(rows: pa.RecordBatch, columns: Sequence[ColumnSchema]) -> Hashes:
    packed = np.empty(rows.num_rows, KEY_HASHES)
    for salt in KEY_HASHES.names or ():
        # The hash of a value depends on the name of its column.
        salted = [replace(column, name=f"{salt} {column.name}") for column in columns]
        packed[salt] = row_hashes(rows.rename_columns([one.name for one in salted]), salted)
    return packed
