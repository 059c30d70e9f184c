"""Arrow arrays and scalars from and to numpy, by their buffers alone.

pyarrow's own ways (`pa.array`, `pa.scalar`, `to_numpy`, Python values given to a kernel) import pandas on
their first use, which costs every fresh Spark worker more than the rest of its imports together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def from_numpy(values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of the values, null where the mask says so; numbers are shared, not copied."""
    kind = pa.from_numpy_dtype(values.dtype)
    data = _bits(values) if pa.types.is_boolean(kind) else pa.py_buffer(values)
    valid = None if null is None or not null.any() else _bits(~null)
    return pa.Array.from_buffers(kind, len(values), [valid, data])


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an array without nulls, shared with it."""
    assert array.null_count == 0
    kind = np.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def scalar(value: int | bytes | None, kind: pa.DataType) -> pa.Scalar:
    """Return one value, of an integer or a binary type; or a null of any type."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, int):
        return from_numpy(np.array([value], kind.to_pandas_dtype()))[0]
    width = np.int64 if pa.types.is_large_binary(kind) else np.int32
    bounds = np.array([0, len(value)], width)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bounds), pa.py_buffer(value)])[0]


def struct_array(
    kind: pa.DataType, null: npt.NDArray[np.bool_], children: list[pa.Array]
) -> pa.Array:
    """Return structs of the fields that the present ones have."""
    valid = None
    if null.any():
        positions = from_numpy(np.cumsum(~null) - 1, null)
        children = [child.take(positions) for child in children]
        valid = _bits(~null)
    return pa.Array.from_buffers(kind, len(null), [valid], children=children)


def list_array(
    kind: pa.DataType, null: npt.NDArray[np.bool_], lengths: Any, items: pa.Array
) -> pa.Array:
    """Cut items into lists or maps; the lengths are those of the present ones."""
    valid = None
    if null.any():
        present, lengths = lengths, np.zeros(len(null), np.int64)
        lengths[~null] = present
        valid = _bits(~null)
    edges = np.zeros(len(null) + 1, np.int32)
    np.cumsum(lengths, out=edges[1:])
    return pa.Array.from_buffers(kind, len(null), [valid, pa.py_buffer(edges)], children=[items])


def concatenated(arrays: list[pa.Array]) -> pa.Array:
    """Return one array of several; one alone is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
