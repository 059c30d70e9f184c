"""Columns of dynamic tables as Arrow arrays: from what a client sent to what is stored, and back.

Owns the stored type of every column: 64-bit integers and doubles, booleans, and bytes for everything else,
composites as binary YSON. Arrays are checked by vector if no single value must be looked at. `encoding`
checks all others, and says what is wrong.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import simple_values, types, values, written
from yt_exactly_once.local.tables.columnar import LazyRows, Row, listed
from yt_exactly_once.local.tables.composite_columns import StoredComposites
from yt_exactly_once.local.tables.encoding import DEFAULT_CONVERSIONS, Conversions, encode_column
from yt_exactly_once.local.tables.large_values import MAX_STRING_LENGTH
from yt_exactly_once.local.tables.schema import Column

_UNLIMITED = frozenset(("int64", "uint64"))
ARROW_TYPES = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.binary(),
    "null": pa.null(),
    "any": pa.binary(),
}


def arrow_type(column: Column) -> Any:
    """Return the type of the stored values of a column."""
    return ARROW_TYPES[column.kind]


def encode(
    column: Column, given: Any, conversions: Conversions = DEFAULT_CONVERSIONS
) -> tuple[Any, YtError | None]:
    """Bring the values of one column to their stored form.

    Args:
        given: a list of decoded values, an Arrow array of a stored type, or `StoredComposites`.

    Returns:
        An Arrow array, or a list where a value is `Written`; and what a commit has to complain about,
        if anything.

    Raises:
        YtError: the request itself is refused.
    """
    if isinstance(given, StoredComposites):
        if are_fine(column, given):
            return given.array, None
    elif not isinstance(given, list) and is_fine(column, given):
        return given, None
    stored, error = encode_column(column, listed(given), conversions)
    if error is not None:
        return None, error
    return stored if written.any_of(column, stored) else of_stored(column, stored), None


def of_stored(column: Column, stored: list[Any]) -> Any:
    """Return an array of values in the form in which SQLite keeps them, see `values`.

    Raises:
        YtError: the values of one column take more than an array holds.
    """
    kind = arrow_type(column)
    if pa.types.is_uint64(kind):
        return pa.array(stored, pa.int64()).view(kind)
    if pa.types.is_float64(kind) and values.NAN in stored:
        stored = [float(value) if value == values.NAN else value for value in stored]
    if pa.types.is_boolean(kind):
        return pa.array(stored, pa.int8()).cast(kind)
    made = pa.array(stored, kind)
    if isinstance(made, pa.ChunkedArray):
        raise YtError(
            f'Values of column "{column.name}" take more than 2 GiB in one request;'
            " send the rows in several requests"
        )
    return made


def nulls(kind: Any, count: int) -> Any:
    """Return nulls as an array of a stored type; those of several columns share their bytes."""
    if pa.types.is_null(kind):
        return pa.nulls(count)
    buffers = [_zeros(8 * (count + 1))] * (3 if pa.types.is_binary(kind) else 2)
    return pa.Array.from_buffers(kind, count, buffers, null_count=count)


@lru_cache(maxsize=1)
def _zeros(size: int) -> Any:
    # Pages that are only read take no memory.
    return pa.py_buffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def has_nan(array: Any) -> bool:
    """Tell whether an array has a number that is none, which SQLite does not keep."""
    return bool(pa.types.is_float64(array.type) and pc.any(pc.is_nan(array)).as_py())


def as_kept(array: Any) -> Any:
    """Return an array with the numbers that SQLite keeps, of which there are only signed ones."""
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int64())
    return array.view(pa.int64()) if pa.types.is_uint64(array.type) else array


def to_stored(array: Any) -> list[Any]:
    """Return a stored column in the form in which SQLite keeps it."""
    found = listed(as_kept(array))
    if has_nan(array):
        return [values.NAN if value != value else value for value in found]  # noqa: PLR0124
    return found


def are_fine(column: Column, given: StoredComposites) -> bool:
    """Tell whether composites are stored as they are; if not, they have to be looked at one by one."""
    if column.required and given.array.null_count:
        return False
    return bool(lengths(given.array).max(initial=0) <= MAX_STRING_LENGTH)


def is_fine(column: Column, array: Any) -> bool:
    """Tell whether an array is stored as it is; if not, its values have to be looked at one by one."""
    if array.type != arrow_type(column) or (column.required and array.null_count):
        return False
    kind = column.wire_type
    if kind in simple_values.RANGES:
        return kind in _UNLIMITED or _in_range(kind, array)
    if kind == "float":
        limit = simple_values.FLOAT_MAX
        finite = pc.filter(array, pc.is_finite(array))
        return not pc.any(pc.greater(pc.abs(finite), limit)).as_py()
    if kind in ("double", "boolean", "null", "void"):
        return True
    return _are_strings(column, array)


def _in_range(kind: str, array: Any) -> bool:
    low, high = simple_values.RANGES[kind]
    found = pc.min_max(array).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)


def _are_strings(column: Column, array: Any) -> bool:
    kind = column.wire_type
    if isinstance(types.value_type(column.type_v3), dict):
        return False
    if kind == "uuid":
        found = lengths(array.drop_null())
        return bool((found == simple_values.UUID_LENGTH).all())
    data = array.buffers()[2]
    # Bytes of all values together are counted faster than those of each.
    if data and data.size > MAX_STRING_LENGTH < lengths(array).max(initial=0):
        return False
    if kind == "utf8":
        try:
            array.cast(pa.string())
        except pa.ArrowInvalid:
            return False
    return kind in ("utf8", "string")


def weigh(columns: Sequence[Column], arrays: Sequence[Any], count: int, added: int = 0) -> Any:
    """Return the data weight of every row: one number where all weigh the same. A request fits into 32 bits.

    Args:
        added: weight of each row that is not in the columns.
    """
    fixed = 1 + added
    weights: Any = None
    for column, array in zip(columns, arrays, strict=True):
        weight = column.weight
        if isinstance(array, list):
            more: Any = np.array([0 if value is None else len(value) for value in array])
        elif array.null_count == count:
            continue
        elif weight is None:
            more = lengths(array)
        elif array.null_count:
            more = pc.is_valid(array).to_numpy(zero_copy_only=False) * np.int8(weight)
        else:
            fixed += weight
            continue
        weights = np.zeros(count, np.int32) if weights is None else weights
        weights += more
    if weights is None:
        return np.broadcast_to(np.int64(fixed), count)
    weights += np.int32(fixed)
    return weights


def joined_weights(parts: Sequence[Any]) -> Any:
    """Put weights behind each other, which stay one number where all rows weigh the same."""
    if len(parts) == 1:
        return parts[0]
    distinct = {int(part[0]) if part.strides == (0,) else None for part in parts if len(part)}
    only = distinct.pop() if len(distinct) == 1 else None
    if only is None:
        return np.concatenate(parts)
    return np.broadcast_to(np.int64(only), sum(map(len, parts)))


def concatenated(pieces: Sequence[Any]) -> Any:
    """Put the values of a column behind each other: arrays, or lists where a value is `Written`."""
    if len(pieces) == 1:
        return pieces[0]
    if any(isinstance(piece, list) for piece in pieces):
        return list(chain.from_iterable(map(listed, pieces)))
    return pa.concat_arrays(pieces)


def lengths(array: Any) -> Any:
    """Return the length of every string; a null has none."""
    if not len(array):
        return np.empty(0, np.int64)
    begin = array.offset
    edges = np.frombuffer(array.buffers()[1], np.int32)[begin : begin + len(array) + 1]
    found = np.diff(edges)
    if array.null_count:
        found = found * pc.is_valid(array).to_numpy(zero_copy_only=False)
    return found


class StoredRows(LazyRows):
    """Rows as they are stored; formats write them by vector, and a row is made when it is looked at.

    Args:
        columns: what a row consists of, in order.
    """

    def __init__(self, columns: Sequence[Column], arrays: Sequence[Any], count: int) -> None:
        self.columns = tuple(columns)
        self.arrays = list(arrays)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def _slice(self, chosen: slice) -> StoredRows:
        count = len(range(*chosen.indices(self._count)))
        return StoredRows(self.columns, [array[chosen] for array in self.arrays], count)

    def __iter__(self) -> Iterator[Row]:
        stored = zip(*map(to_stored, self.arrays), strict=True)
        return iter(values.decode_rows(self.columns, list(stored)))
