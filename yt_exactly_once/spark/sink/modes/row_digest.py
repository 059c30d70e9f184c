"""A digest of rows and of their numbers: it shows whether a replay gives the rows that were pushed.

Spark hashes each row, and a task folds the hashes and the numbers of its rows into a sum. The sum does not
depend on how the rows are cut into chunks, and it can be continued from where an earlier task left it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyspark.sql.functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from yt_exactly_once.codec.reserved import RESERVED_PREFIX
from yt_exactly_once.spark.schema import named_column

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Numbers = np.ndarray[Any, Any]

ROW_HASH_COLUMN = f"{RESERVED_PREFIX}row_hash"
"""DataFrame column with the hash of what is written of a row."""

_BITS = 64
_MODULUS = 1 << _BITS

# Constants of the finalizer of SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def row_hash(schema: StructType, names: Collection[str]) -> Column:
    """Return a column with the hash of some columns of a DataFrame, in any order.

    Args:
        schema: of the DataFrame.
        names: which columns.
    """
    parts = [part for name in sorted(names) for part in _parts(schema[name].dataType, name)]
    return sf.xxhash64(*parts)


def seed_of(names: Collection[str]) -> int:
    """Return a number that depends on the names of the hashed columns, which the hash leaves out."""
    text = json.dumps(sorted(names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_BITS // 8).digest(), "little")


def mixed(hashes: Numbers, numbers: Numbers, seed: int) -> Numbers:
    """Return, for each row, what it adds to the digest.

    Args:
        hashes: one per row.
        numbers: one per row.
        seed: from `seed_of`.
    """
    value = numbers.view(np.uint64) * _STEP
    value ^= hashes.view(np.uint64) ^ np.uint64(seed)
    first, second, third = _SHIFTS
    value = (value ^ (value >> first)) * _FIRST_FACTOR
    value = (value ^ (value >> second)) * _SECOND_FACTOR
    return value ^ (value >> third)


def added(digest: int, parts: Numbers) -> int:
    """Return a digest with more rows in it."""
    return (digest + int(parts.sum(dtype=np.uint64))) % _MODULUS


def spelled(digest: int) -> str:
    """Return a digest as it is kept in a session."""
    return f"{digest:0{_BITS // 4}x}"


def _parts(kind: DataType, name: str) -> list[Column]:
    return _hashable(named_column(name), kind)


def _hashable(value: Column, kind: DataType) -> list[Column]:
    """Return columns that Spark can hash, and that distinguish nulls.

    Spark does not hash maps, and leaves nulls out: `(null, 1)` and `(1, null)` would have one hash.
    """
    if isinstance(kind, MapType):

        def entry(pair: Column) -> Column:
            members = _hashable(pair["value"], kind.valueType)
            return sf.struct(pair["key"], *members)

        value = sf.transform(sf.map_entries(value), entry)
    elif isinstance(kind, ArrayType):
        element = kind.elementType
        value = sf.transform(value, lambda each: sf.struct(*_hashable(each, element)))
    elif isinstance(kind, StructType):
        members = [
            part
            for field in kind.fields
            for part in _hashable(value.getField(field.name), field.dataType)
        ]
        return [*members, value.isNull()]
    return [value, value.isNull()]
