"""What is written into `yson` columns, whatever its Arrow type: YSON given as bytes, and plain YSON.

Bytes are YSON already and become binary; everything else becomes plain YSON, structs and maps as YSON maps.
Arrays have no nulls at their top: the caller writes those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import yson_parts as parts
from yt_exactly_once.codec.buffers import to_numpy
from yt_exactly_once.codec.matches import is_binary, is_list
from yt_exactly_once.codec.values import UnfitValueError
from yt_exactly_once.codec.yson_text import REPEATED_KEY, UnfitYsonError, comparable, to_binary

if TYPE_CHECKING:
    Encode = Callable[[pa.Array], pa.Array]


def any_values(array: pa.Array) -> pa.Array:
    """Encode values; raise `UnfitValueError` for bytes that are not one YSON value, or a key twice."""
    return _given(array, to_binary) if is_binary(array.type) else _plain(array, parts.doubles)


def any_keys(array: pa.Array) -> pa.Array:
    """Encode keys, with equal bytes where the cluster takes them for one; raise as for values."""
    if is_binary(array.type):
        return _given(array, lambda value: comparable(to_binary(value)))
    return _plain(array, parts.canonical_doubles)


def _given(array: pa.Array, binary: Callable[[bytes], bytes]) -> pa.Array:
    given = array.to_pylist()
    made = [_one(row, value, binary) for row, value in enumerate(given)]
    if any(one is not value for one, value in zip(made, given, strict=True)):
        array = pa.array(made, parts.BYTES)
    return array.cast(parts.BYTES)


def _one(row: int, value: bytes, binary: Callable[[bytes], bytes]) -> bytes:
    if value.lstrip().startswith(b"<"):
        raise UnfitValueError(row, "a column value cannot have attributes at its top")
    try:
        return binary(value)
    except UnfitYsonError as error:
        raise UnfitValueError(row, str(error)) from error


def _plain(array: pa.Array, floating: Encode) -> pa.Array:  # noqa: PLR0911 - a line per kind
    kind = array.type
    if pa.types.is_null(kind):
        return parts.nothing(array)
    if array.null_count:
        return parts.around_nulls(array, lambda present: _plain(present, floating))
    if pa.types.is_integer(kind):
        return parts.integers(array)
    if pa.types.is_floating(kind):
        return floating(array)
    if pa.types.is_boolean(kind):
        return parts.booleans(array)
    if pa.types.is_map(kind):
        return _map(array, floating)
    if pa.types.is_struct(kind):
        return parts.join(parts.constant(b"{", len(array)), *_members(array, floating), b"}")
    if is_list(kind):
        offsets, items = parts.contents(array)
        return parts.join(
            b"[", parts.spans(parts.join(_plain(items, floating), b";"), offsets), b"]"
        )
    return parts.strings(array)


def _map(array: pa.Array, floating: Encode) -> pa.Array:
    offsets, keys, values = parts.entries(array)
    _require_distinct(keys, offsets)
    pairs = parts.join(parts.strings(keys), b"=", _plain(values, floating), b";")
    return parts.join(b"{", parts.spans(pairs, offsets), b"}")


def _require_distinct(keys: pa.Array, offsets: parts.Offsets) -> None:
    """Check that no map has a key twice: a reader of the YSON would see only one of the two values."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = to_numpy(keys.dictionary_encode().indices).astype(np.int64)
    _, first, count = np.unique(
        rows * (len(keys) + 1) + codes, return_index=True, return_counts=True
    )
    repeated = first[count > 1]
    if len(repeated):
        raise UnfitValueError(int(rows[repeated.min()]), REPEATED_KEY)


def _members(array: pa.Array, floating: Encode) -> Iterable[pa.Array | bytes]:
    for place, field in enumerate(array.type):
        yield parts.string_literal(field.name.encode()) + b"="
        yield _plain(array.field(place), floating)
        yield b";"
