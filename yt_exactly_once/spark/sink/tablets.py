"""The tablets of a new table: how many, and where each of a sorted one begins. No PySpark is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yt_exactly_once.codec.schema import ColumnSchema, TableSchema
from yt_exactly_once.codec.types import scalar_of
from yt_exactly_once.config import check_positive
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.ytsaurus.tables import unsigned


def tablets_of(
    path: str,
    columns: Sequence[Mapping[str, Any]],
    tablet_count: int | None,
    pivot_keys: Sequence[Sequence[Any]] | None,
) -> dict[str, Any]:
    """Return the attributes that give a new table its tablets; raise `ConfigError` if it cannot have them.

    Args:
        columns: as in `@schema`.
        tablet_count: see `create_table`.
        pivot_keys: see `create_table`.
    """
    key_columns = TableSchema.from_yt(columns).key_columns
    if pivot_keys is not None and (tablet_count is not None or not key_columns):
        raise ConfigError(
            "pivot_keys are for sorted tables, and say how many tablets there are",
            remedy="Leave out tablet_count, and give key_columns",
            path=path,
        )
    if pivot_keys is not None:
        return {"pivot_keys": [_pivot(key, key_columns) for key in pivot_keys]}
    if tablet_count is None:
        return {}
    check_positive(tablet_count, "tablet_count")
    if not key_columns:
        return {"tablet_count": tablet_count}
    first = scalar_of(key_columns[0].type)
    if first is None or first.bounds is None or not first.is_integer:
        raise ConfigError(
            f"The range of {key_columns[0].type} cannot be cut into {tablet_count} tablets",
            remedy="Give pivot_keys, or begin the key with a column of an integer type",
            path=path,
            column=key_columns[0].name,
        )
    low, high = first.bounds
    cuts = [low + (high - low + 1) * number // tablet_count for number in range(1, tablet_count)]
    return {"pivot_keys": [[], *(_pivot([cut], key_columns) for cut in cuts)]}


def _pivot(key: Sequence[Any], key_columns: Sequence[ColumnSchema]) -> list[Any]:
    """Return a first key as the cluster wants it, which distinguishes signed from unsigned numbers."""
    scalars = [scalar_of(column.type) for column in key_columns]
    return [
        unsigned(value)
        if isinstance(value, int) and kind and kind.is_integer and kind.is_unsigned
        else value
        for value, kind in zip(key, scalars, strict=False)
    ]
