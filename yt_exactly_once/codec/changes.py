"""Which rows of a batch are written and which keys are deleted, when a column of the DataFrame says so.

The order of the rows decides: the last row of a key wins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.key_hashes import as_arrow, fragment_hashes
from yt_exactly_once.codec.rows import Fragments, coordinates, decode, row_fragments
from yt_exactly_once.codec.schema import TableSchema, WritePlan, arrow_schema_of
from yt_exactly_once.codec.values import first_true
from yt_exactly_once.errors import EncodingError


class Changes(NamedTuple):
    """What a batch does to its keys; deletes come before writes.

    Attributes:
        keys: every key, once, as a fragment of YSON.
        deleted: keys that any row deletes.
        written: rows to write, in their order.
    """

    keys: Fragments
    deleted: Fragments
    written: pa.RecordBatch


def changes(batch: pa.RecordBatch, keys: WritePlan, marker: str) -> Changes:
    """Split a batch into the last rows of keys and keys to delete; raise `EncodingError` for a null marker.

    Args:
        marker: a boolean column, true where the row's key is to be deleted.
    """
    marked = batch.column(marker)
    missing = first_true(marked.is_null())
    if missing is not None:
        raise EncodingError(
            f"The delete marker {marker} is null",
            remedy=f"Decide what null means, for example with coalesce({marker}, false)",
            column=marker,
            target=keys.target,
            **coordinates(batch, missing),
        )
    encoded = row_fragments(batch, keys).dictionary_encode()
    codes, distinct = np.asarray(encoded.indices), encoded.dictionary
    doomed = np.unique(codes[np.asarray(marked)])
    _, from_the_end = np.unique(codes[::-1], return_index=True)
    last = np.zeros(len(codes), bool)
    last[len(codes) - 1 - from_the_end] = True
    written = batch.filter(pc.and_not(pa.array(last), marked))
    return Changes(distinct, distinct.take(pa.array(doomed)), written)


def keys_besides(
    wanted: Fragments | pa.FixedSizeBinaryArray, rows: bytes, keys: WritePlan
) -> Fragments:
    """Return the keys of a table that are not among the wanted ones.

    Args:
        wanted: keys, as `row_fragments` encodes them, or their hashes.
        rows: the keys of the table, as YSON.
    """
    schema = arrow_schema_of(TableSchema(keys.columns), binary_strings=True)
    there = row_fragments(decode(rows, schema), keys)
    is_hashed = pa.types.is_fixed_size_binary(wanted.type)
    compared = as_arrow(fragment_hashes(there)) if is_hashed else there
    return there.filter(pc.invert(pc.is_in(compared, value_set=wanted)))
