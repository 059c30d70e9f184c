"""The tombstones beside a target with changes: keys that were deleted, each with its sequence.

They say what is true of the source, whatever happens to the target. So they stay right if the target is
emptied and written again from the same source.

The target is marked with the object id of its tombstones, and with the sequence that orders its changes.
A copy of the target has the mark too. Without it an empty table would silently take the place of one that is
gone, and late changes would bring keys back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once import advice, errors
from yt_exactly_once.ytsaurus.alteration import Columns, alter_columns, settled_table
from yt_exactly_once.ytsaurus.browsing import attributes_of, attributes_of_all
from yt_exactly_once.ytsaurus.tables import (
    TOMBSTONES,
    TableInfo,
    describe_table,
    ensure_table,
    set_attribute,
)

if TYPE_CHECKING:
    from yt_exactly_once.config import Changes
    from yt_exactly_once.ytsaurus.client import Connection

_OF_A_COLUMN = ("name", "type", "type_v3", "required", "sort_order", "expression")
_OF_THE_TARGET = ("pivot_keys", "tablet_cell_bundle")
"""One transaction must be able to write as many rows beside the target as into it."""


def tombstones_of(target: str) -> str:
    """Return where the tombstones of a target are."""
    return f"{target}_tombstones"


def targets_with_tombstones(connection: Connection, targets: Sequence[str]) -> list[str]:
    """Return the targets that have tombstones, or had some; those that cannot be looked at are left out."""
    paths = [*targets, *map(tombstones_of, targets)]
    looked = attributes_of_all(connection, paths, [TOMBSTONES])
    found = {path: one for path, one in looked.items() if isinstance(one, dict)}
    return [
        one for one in targets if TOMBSTONES in found.get(one, ()) or tombstones_of(one) in found
    ]


def tombstone_schema(
    schema: Sequence[Mapping[str, Any]], sequence: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the columns of tombstones: the key of the target, and the columns of the sequence."""
    return [
        {name: column[name] for name in _OF_A_COLUMN if name in column}
        for column in schema
        if column.get("sort_order") or column["name"] in sequence
    ]


def ensure_tombstones(
    connection: Connection,
    target: str,
    changes: Changes,
    attributes: Mapping[str, Any] | None = None,
) -> bool:
    """Create and mount the tombstones of a target, and mark it; return whether this call created them.

    A column of the sequence that has become wider in the target becomes so here.

    Args:
        attributes: further ones, used when the table is created.

    Raises:
        TableNotFoundError: the tombstones that the target was written with are gone, or replaced.
        TableError: the table that is there has other columns, is frozen, or is no dynamic table.
    """
    path, info = tombstones_of(target), describe_table(connection, target)
    require_same_tombstones(info, _id_of(connection, path), changes.sequence)
    given = {
        **(attributes or {}),
        **(attributes_of(connection, target, _OF_THE_TARGET) or {}),
        "min_data_versions": 0,
        "max_data_versions": 1,
        "max_data_ttl": int(changes.tombstone_ttl.total_seconds() * 1000),
    }
    wanted = tombstone_schema(info.schema, changes.sequence)
    created = ensure_table(connection, path, wanted, given)
    _widen(connection, settled_table(connection, path), wanted)
    found = require_tombstones(connection, info, changes.sequence)
    if not info.tombstones:
        mark = {"id": found.id, "sequence": [*changes.sequence]}
        set_attribute(connection, target, TOMBSTONES, mark)
    return created


def check_tombstones(connection: Connection, target: str, changes: Changes) -> None:
    """Check what `ensure_tombstones` checks, and raise what it raises; create nothing."""
    info = describe_table(connection, target)
    found = _id_of(connection, tombstones_of(target))
    require_same_tombstones(info, found, changes.sequence)
    if found:
        require_tombstones(connection, info, changes.sequence)


def has_its_tombstones(connection: Connection, target: str) -> bool:
    """Return whether a target has the tombstones that it is marked with."""
    info = describe_table(connection, target)
    return info.tombstones != "" and info.tombstones == _id_of(connection, tombstones_of(target))


def require_same_tombstones(
    target: TableInfo, found: str, sequence: Sequence[str] | None = None
) -> None:
    """Check that a target has the tombstones that it was written with, if it was written with some.

    Args:
        found: object id of the table that is beside it; empty without one.
        sequence: by which changes are compared now; `None` if only the sink knows.

    Raises:
        TableNotFoundError: they are gone, or replaced.
        TableError: the target was written with another sequence.
    """
    if not target.tombstones:
        return
    if target.tombstones != found:
        what, path = "were replaced by another table" if found else "are gone", target.path
        raise errors.TableNotFoundError(
            f"The tombstones of the target {what}: a late change would bring a deleted key back",
            remedy=advice.other_tombstones(path, tombstones_of(path)),
            path=tombstones_of(path),
            target=path,
        )
    if sequence is not None and (*sequence,) != target.sequence:
        before, now = (", ".join(names) for names in (target.sequence, sequence))
        raise errors.TableError(
            f"The sequence of the target was {before}, and is {now} now: what it has would be compared in "
            "another way",
            remedy=advice.other_sequence(target.path),
            path=target.path,
        )


def require_tombstones(
    connection: Connection, target: TableInfo, sequence: Sequence[str] | None = None
) -> TableInfo:
    """Check that the table beside a target can keep its tombstones, and describe it.

    Args:
        sequence: columns of the sequence; `None` if only the sink knows them.

    Raises:
        TableError: it cannot, or is no dynamic table.
    """
    info = describe_table(connection, tombstones_of(target.path))
    own = [str(column["name"]) for column in info.schema if not column.get("sort_order")]
    wanted = tombstone_schema(target.schema, own if sequence is None else sequence)
    if misfits := _misfits(info.schema, wanted):
        raise errors.TableError(
            f"The table cannot serve as the tombstones of {target.path}: {', '.join(misfits)}, or what is in "
            "its place, is not as in the target",
            remedy=advice.new_tombstones(target.path, info.path),
            path=info.path,
        )
    return info


def require_room(connection: Connection, target: str, deletes: int, limit: int) -> None:
    """Check that one transaction can write so many tombstones; raise `BatchTooLargeError` otherwise.

    Args:
        limit: most rows for a tablet.
    """
    if deletes <= limit:
        return
    tablets = describe_table(connection, tombstones_of(target)).tablet_count
    if deletes > limit * tablets:
        raise errors.BatchTooLargeError(
            f"The batch has {deletes} deletes, its tombstones table has {tablets} tablets, and one "
            f"transaction takes {limit} rows per tablet",
            remedy=f"Run: {with_tablets_of_target(connection, target)}",
            path=tombstones_of(target),
            target=target,
        )


def with_tablets_of_target(connection: Connection, target: str) -> str:
    """Return how the tombstones get the tablets of a target, which was resharded without them."""
    found = attributes_of(connection, target, ["pivot_keys"]) or {}
    starts = (yson.dumps(key, yson_format="text").decode() for key in found.get("pivot_keys", [[]]))
    return advice.reshard_at(tombstones_of(target), starts)


def _id_of(connection: Connection, path: str) -> str:
    """Return the object id of what is at a path; empty if nothing is."""
    return str((attributes_of(connection, path, ["id"]) or {}).get("id", ""))


def _misfits(have: Sequence[Mapping[str, Any]], want: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of columns that are missing, differ, or cannot be left out; all keys if one does."""
    keys, wanted_keys = (
        [one["name"] for one in some if one.get("sort_order")] for some in (have, want)
    )
    if keys != wanted_keys:
        return list(dict.fromkeys([*wanted_keys, *keys]))
    types, wanted = ({one["name"]: _type_of(one) for one in some} for some in (have, want))
    more = [one["name"] for one in have if one["name"] not in wanted and one.get("required")]
    return [name for name in wanted if types.get(name) != wanted[name]] + more


def _type_of(column: Mapping[str, Any]) -> Any:
    """Return the type of a column; the cluster gives both spellings for every column."""
    return column.get("type_v3", (column.get("type"), column.get("required")))


def _widen(connection: Connection, info: TableInfo, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Give values the types that they have in the target; what the cluster refuses stays as it is."""
    types = {column["name"]: column for column in wanted if not column.get("sort_order")}

    def change(columns: Columns) -> Columns:
        return [dict(types.get(column["name"], column)) for column in columns]

    if _misfits(info.schema, wanted) and not _misfits(change(info.schema), wanted):
        with suppress(errors.RequestRefusedError):
            alter_columns(connection, info.path, change)
