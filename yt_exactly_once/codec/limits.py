"""The limits of a dynamic table, checked before anything is sent, so that an error can name the row.

Lengths are those of the stored form: plain strings, and composite values as binary YSON by position.
The numbers are in `yt/yt/client/table_client/public.h`, the checks in `unversioned_row.cpp`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.matches import is_binary, is_string
from yt_exactly_once.codec.nested import LONGEST_CARRIED, carrier
from yt_exactly_once.codec.schema import ColumnSchema, WritePlan
from yt_exactly_once.codec.types import plain_scalar_of
from yt_exactly_once.codec.values import UnfitValueError, located
from yt_exactly_once.codec.yson_writer import Shape, fragments

LONGEST_VALUE = 16 << 20
"""Most bytes of a string, of a composite value, or of an `any` value."""

HEAVIEST_ROW = 128 << 20
"""A row must weigh less: its strings and composite values, 8 for a number, 1 for a boolean, and 1."""

TOO_LONG = f"it is longer than {LONGEST_VALUE >> 20} MiB"
TOO_HEAVY = f"the row is heavier than {HEAVIEST_ROW >> 20} MiB"

_NUMBER = 8


def check_given(array: pa.Array) -> None:
    """Check strings of a column that stores them as they are; raise `UnfitValueError` if one is too long."""
    if _has_bytes(array) and array.nbytes > LONGEST_VALUE:
        _require_short(array)


def check_encoded(encoded: pa.Array, array: pa.Array, column: ColumnSchema) -> None:
    """Check values of a column that stores YSON; raise `UnfitValueError` if one is too long.

    Args:
        encoded: as they are sent; by name they are never shorter than by position.
        array: the same values, as given.
    """
    if encoded.nbytes <= LONGEST_VALUE:
        return
    long = np.flatnonzero(_lengths(encoded) > LONGEST_VALUE)
    if len(long):
        with located(rows=long):
            _require_short(fragments(array.take(pa.array(long)), column.type, Shape.POSITIONAL))


def may_be_heavy(payload: bytes | memoryview, plan: WritePlan) -> bool:
    """Check whether an encoded payload is large enough to contain a row that is too heavy."""
    composites = sum(carrier(column.type) is not None for column in plan.columns)
    more = _NUMBER * len(plan.columns) + LONGEST_CARRIED * composites + 1
    return len(payload) + more >= HEAVIEST_ROW


def heavy_rows(batch: pa.RecordBatch, plan: WritePlan) -> list[int]:
    """Return the rows that are too heavy for a dynamic table.

    Args:
        batch: rows with values that all fit their columns.
    """
    weights = np.ones(batch.num_rows, np.int64)
    for column in plan.columns:
        weights += _weights(batch.column(column.name), column)
    return [int(row) for row in np.flatnonzero(weights >= HEAVIEST_ROW)]


def _weights(array: pa.Array, column: ColumnSchema) -> npt.NDArray[np.int64]:
    scalar = plain_scalar_of(column.type)
    if scalar is not None and _has_bytes(array):
        return _lengths(array)
    valid = np.asarray(array.is_valid(), bool)
    if scalar is not None:
        # A decimal of many digits weighs 32; such a difference decides nothing.
        return valid * (1 if pa.types.is_boolean(scalar.plain) else _NUMBER)
    return valid * _lengths(fragments(array, column.type, Shape.POSITIONAL))


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64)


def _require_short(array: pa.Array) -> None:
    long = np.flatnonzero(_lengths(array) > LONGEST_VALUE)
    if len(long):
        raise UnfitValueError(int(long[0]), TOO_LONG)


def _has_bytes(array: pa.Array) -> bool:
    kind = array.type
    return is_string(kind) or is_binary(kind) or bool(pa.types.is_fixed_size_binary(kind))
