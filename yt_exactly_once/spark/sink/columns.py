"""The columns of a DataFrame on their way to what writes them: `sent` there, and `restored` by position.

Both are for tasks and for the driver in their place. Names that columns have on the way say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yt_exactly_once.codec.schema import RESERVED_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARTITION_COLUMN = f"{RESERVED_PREFIX}partition"
"""DataFrame column with the Spark partition of a row, behind all others."""


def sent(frame: DataFrame, names: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    """Return some columns of a DataFrame, perhaps under other names.

    Spark looks columns up by name, takes a dot for a path into a struct, and ignores case. So where that
    matters they travel under plain names.

    Args:
        wanted: those that are kept, in the same order.
    """
    # Every step costs Spark an analysis of its own.
    plain, renamed = list(names), frame
    if not _are_plain(names):
        plain = [f"c{index}" for index in range(len(names))]
        renamed = frame.toDF(*plain)
    kept = [alias for alias, name in zip(plain, names, strict=True) if name in wanted]
    return renamed if len(kept) == len(plain) else renamed.select(*kept)


def restored(rows: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
    """Return rows of what `sent` returned under their real names, without their Spark partition."""
    if rows.schema.names[-1] == PARTITION_COLUMN:
        rows = rows.remove_column(len(rows.schema) - 1)
    return rows.rename_columns(list(wanted))


def _are_plain(names: Sequence[str]) -> bool:
    """Return whether Spark finds each of the columns by its name."""
    words = all(name.isascii() and name.isidentifier() for name in names)
    return words and len({name.lower() for name in names}) == len(names)
