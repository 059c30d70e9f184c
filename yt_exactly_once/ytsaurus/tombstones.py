"""The tombstones beside a target with changes: keys that were deleted, each with its sequence.

It says what is true of the source, whatever happens to the target. So it stays right if the target is emptied
and written again from the same source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.tables import describe_table, ensure_table, require_columns

if TYPE_CHECKING:
    from yt_exactly_once.config import Changes
    from yt_exactly_once.ytsaurus.client import Connection

_OF_A_COLUMN = ("name", "type", "type_v3", "required", "sort_order", "expression")
_OF_THE_TARGET = ("pivot_keys", "tablet_cell_bundle")
"""One transaction must be able to write as many rows beside the target as into it."""


def tombstones_of(target: str) -> str:
    """Return where the tombstones of a target are."""
    return f"{target}_tombstones"


def tombstone_schema(
    schema: Sequence[Mapping[str, Any]], sequence: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the columns of tombstones: the key of the target, and the columns of the sequence."""
    return [
        {name: column[name] for name in _OF_A_COLUMN if name in column}
        for column in schema
        if column.get("sort_order") or column["name"] in sequence
    ]


def ensure_tombstones(connection: Connection, target: str, changes: Changes) -> bool:
    """Create and mount the tombstones of a target; return whether this call did.

    Raises:
        ConfigError: the table that is there has other columns.
        TableError: it is frozen, or no dynamic table.
    """
    path, schema = tombstones_of(target), describe_table(connection, target).schema
    of_target = attributes_of(connection, target, _OF_THE_TARGET) or {}
    ttl = int(changes.tombstone_ttl.total_seconds() * 1000)
    expiring = {"min_data_versions": 0, "max_data_versions": 1, "max_data_ttl": ttl}
    wanted = tombstone_schema(schema, changes.sequence)
    created = ensure_table(connection, path, wanted, {**of_target, **expiring})
    require_tombstones(connection, target, changes)
    return created


def require_tombstones(connection: Connection, target: str, changes: Changes) -> None:
    """Check that the table beside a target can keep its tombstones; raise `ConfigError` if it cannot."""
    info = describe_table(connection, tombstones_of(target))
    wanted = tombstone_schema(describe_table(connection, target).schema, changes.sequence)
    require_columns(
        info,
        wanted,
        f"the tombstones of {target}",
        ConfigError,
        remedy=f"Remove it if no change is late: yt remove {info.path}. The sink creates it again. Changes "
        "that are older than a delete then bring keys back",
    )
