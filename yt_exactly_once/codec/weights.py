"""How many bytes the values of rows take, and nothing else: the same however Arrow has batched the rows.

`nbytes` is not the same: it counts null masks, which a batch without nulls lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yt_exactly_once.codec.buffers import to_numpy

_OFFSET = 4
"""Bytes that tell where a value of any length ends."""


def weight(rows: pa.RecordBatch) -> int:
    """Return the bytes of all rows, which takes as long for one as for many."""
    return int(_of_all(rows.columns, rows.num_rows))


def weights(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return for each row the bytes of all rows up to it."""
    ends: npt.NDArray[np.int64] = _of_all(rows.columns, np.arange(1, rows.num_rows + 1))
    return ends


def _of_all(arrays: list[pa.Array], count: Any) -> Any:
    return sum((_of_first(array, count) for array in arrays), 0 * count)


def _of_first(array: pa.Array, count: Any) -> Any:
    """Return the bytes of so many first values; the count is a number, or an array of them."""
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return 0 * count
    if pa.types.is_struct(kind):
        return _of_all([array.field(position) for position in range(kind.num_fields)], count)
    if pa.types.is_boolean(kind):
        return count
    if _has_bytes(kind):
        width = np.dtype(np.int64 if _is_large(kind) else np.int32)
        start = array.offset * width.itemsize
        offsets = np.frombuffer(array.buffers()[1], width, len(array) + 1, start)
        return _OFFSET * count + (offsets[count].astype(np.int64) - offsets[0])
    if not pa.types.is_nested(kind):
        return count * kind.byte_width
    offsets = to_numpy(array.offsets).astype(np.int64)
    held = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    inner = offsets[count] - offsets[0]
    return _OFFSET * count + _of_all([child.slice(offsets[0]) for child in held], inner)


def _has_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
