"""Descriptions of tables, and the creation of the few tables that the package owns.

Descriptions are read once per run, before the first row. Nothing here reads Cypress in every batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt.wrapper import YsonFormat
from yt.yson import YsonUint64

from yt_exactly_once import advice, errors
from yt_exactly_once.ytsaurus.browsing import (
    answers,
    attributes_of,
    attributes_of_all,
    or_raise,
    request,
)
from yt_exactly_once.ytsaurus.failures import translated

if TYPE_CHECKING:
    from yt_exactly_once.errors import ExactlyOnceError
    from yt_exactly_once.ytsaurus.client import Connection


_REPLICATED = frozenset({"replicated_table", "replication_log_table", "chaos_replicated_table"})
"""Types of objects whose rows are on several clusters, at positions and times of their own."""

_ORDINARY = "Pass the path of an ordinary dynamic table of this cluster, which is not replicated"

_NO_OBJECT = "0-0-0-0"

_MOUNT_PAUSE = 0.1
"""Seconds between two looks at tables that are being mounted."""

ALTERING = "yt_exactly_once_altering"
"""Attribute of a table that is unmounted for a moment, to be altered."""

TOMBSTONES = advice.TOMBSTONES_MARK
"""Attribute of a target with changes: the `id` of its tombstones, and the columns of its `sequence`."""

LETTERS = "yt_exactly_once_letters"
"""Attribute of a dead-letter table: its own object id. A copy has that of the table that was copied."""


@dataclass(frozen=True)
class TableInfo:
    """A dynamic table as Cypress describes it.

    Attributes:
        id: object id; changes when the table is recreated.
        is_sorted: sorted (keys) or ordered (a queue).
        tablet_state: `mounted`, `unmounted`, `frozen`, `mixed`, ...
        atomicity: `full`, or `none` for a table that takes part in no transaction.
        replicates: id of the table or card whose replica it is; empty for an ordinary table.
        schema: columns as in `@schema`: name, type, type_v3, required, sort_order, ...
        altering: the transaction of the process that is altering it, see `alteration`; empty for none.
        tombstones: object id of the table with its tombstones; empty unless its rows are changes.
        sequence: columns that order its changes.
    """

    path: str
    id: str
    is_sorted: bool
    tablet_count: int
    tablet_state: str
    schema: list[dict[str, Any]]
    atomicity: str = "full"
    replicates: str = ""
    altering: str = ""
    tombstones: str = ""
    sequence: tuple[str, ...] = ()

    def require_mounted(self) -> None:
        """Check that transactions can write rows; raise `TableError` if not."""
        if self.replicates:
            raise errors.ReplicatedTableError(
                f"The table is a replica of {self.replicates}, and only replication may write to it",
                remedy=_ORDINARY,
                path=self.path,
            )
        if self.atomicity != "full":
            raise errors.TableError(
                f"The table has atomicity={self.atomicity}, so its rows would be in no transaction",
                remedy=f"Run: {advice.make_atomic(self.path)}",
                path=self.path,
            )
        if self.tablet_state != "mounted":
            raise not_mounted(self.path, self.tablet_state)

    def require_no_changes(self) -> None:
        """Check that no sequence decides which rows count; raise `ConfigError` if one does."""
        if self.sequence:
            raise errors.ConfigError(
                f"The rows of the target are changes with the sequence {', '.join(self.sequence)}. Without "
                "the option changes a late row would replace a newer one",
                remedy="Give the target changes=Changes(sequence=...). Or, if nobody writes changes any "
                f"more, {advice.no_changes(self.path)}",
                target=self.path,
            )


def not_mounted(path: str, state: str) -> errors.TableNotMountedError:
    """Return the error of a table in a state in which it cannot be used."""
    return errors.TableNotMountedError(
        f"The table is {state}, not mounted", remedy=f"Run: {advice.mount(path, state)}", path=path
    )


def describe_table(
    connection: Connection, path: str, *, absent: str = "Check the path"
) -> TableInfo:
    """Describe a dynamic table.

    Args:
        absent: what to do if there is nothing.

    Raises:
        TableNotFoundError: nothing at the path, or something other than a table.
        ReplicatedTableError: it is replicated.
        TableNotDynamicError: the table is static.
        AccessError: the token is refused or lacks a permission.
        ClusterUnavailableError: the cluster does not answer.
    """
    return described(path, attributes_of(connection, path, ATTRIBUTES), absent)


ATTRIBUTES = (
    "type",
    "dynamic",
    "id",
    "sorted",
    "schema",
    "tablet_count",
    "tablet_state",
    "atomicity",
    "upstream_replica_id",
    ALTERING,
    TOMBSTONES,
)
"""What `described` needs."""


def described(
    path: str, attributes: Mapping[str, Any] | None, absent: str = "Check the path"
) -> TableInfo:
    """Return the same as `describe_table` of attributes that were read; `None` is for nothing at the path."""
    known = require_table(path, attributes, absent)
    if not known["dynamic"]:
        raise errors.TableNotDynamicError(
            "The table is static, but only dynamic tables take part in tablet transactions",
            remedy=f"Run: {advice.make_dynamic(path)}",
            path=path,
        )
    mark = known.get(TOMBSTONES, {})
    upstream = str(known.get("upstream_replica_id", _NO_OBJECT))
    return TableInfo(
        path=path,
        id=str(known["id"]),
        is_sorted=bool(known["sorted"]),
        tablet_count=int(known["tablet_count"]),
        tablet_state=str(known["tablet_state"]),
        schema=columns_of(known),
        atomicity=str(known.get("atomicity", "full")),
        replicates="" if upstream == _NO_OBJECT else upstream,
        altering=str(known.get(ALTERING, "")),
        tombstones=str(mark.get("id", "")),
        sequence=tuple(map(str, mark.get("sequence", ()))),
    )


def require_table(
    path: str, attributes: Mapping[str, Any] | None, absent: str = "Check the path"
) -> Mapping[str, Any]:
    """Return the attributes of a table.

    Raises:
        TableNotFoundError: they are of nothing, or no table.
        ReplicatedTableError: they are of a replicated table.
    """
    if attributes is None:
        raise errors.TableNotFoundError("There is no such table", remedy=absent, path=path)
    require_unreplicated(path, attributes)
    if attributes["type"] != "table":
        raise errors.TableNotFoundError(
            f"This is a {attributes['type']}, not a table", remedy="Check the path", path=path
        )
    return attributes


def require_unreplicated(path: str, attributes: Mapping[str, Any]) -> None:
    """Check by its type that an object is not replicated; raise `ReplicatedTableError` if it is."""
    kind = str(attributes["type"])
    if kind in _REPLICATED:
        raise errors.ReplicatedTableError(
            f"This is a {kind}, and only tables of one cluster are supported",
            remedy=_ORDINARY,
            path=path,
        )


def table_identity(connection: Connection, path: str) -> tuple[str, list[dict[str, Any]], int]:
    """Return the object id of the table at a path, its columns as `TableInfo` has them, and its tablets.

    Raises:
        TableNotFoundError: nothing is there.
        ClusterUnavailableError: the cluster does not answer.
    """
    return _identity(existing(connection, path, _IDENTIFYING))


def identities(
    connection: Connection, paths: Iterable[str]
) -> dict[str, tuple[str, list[dict[str, Any]], int]]:
    """Return the same of several tables, with few requests; those that are gone are left out."""
    found = attributes_of_all(connection, paths, _IDENTIFYING)
    known = {path: or_raise(one) for path, one in found.items()}
    return {path: _identity(one) for path, one in known.items() if one is not None}


_IDENTIFYING = ("id", "schema", "tablet_count")


def _identity(found: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]], int]:
    # A static table has no tablets.
    return str(found["id"]), columns_of(found), int(found.get("tablet_count", 0))


def existing(connection: Connection, path: str, names: Sequence[str]) -> Mapping[str, Any]:
    """Return attributes of a table, see `attributes_of`; raise `TableNotFoundError` if there is none."""
    return require_table(path, attributes_of(connection, path, ["type", *names]))


def set_attribute(connection: Connection, path: str, name: str, value: Any) -> None:
    """Set an attribute of an object.

    Raises:
        AccessError: it needs the permission to write.
        ClusterUnavailableError: the cluster does not answer.
    """
    with translated("set an attribute", path=path, attribute=name):
        connection.reader.set(f"{path}/@{name}", value)


def mark_letters(connection: Connection, path: str) -> None:
    """Give a dead-letter table its mark, unless it has one."""
    found = existing(connection, path, ["id", LETTERS])
    if LETTERS not in found:
        set_attribute(connection, path, LETTERS, str(found["id"]))


def columns_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns among the attributes of a table."""
    # An object that is not a table may have no schema.
    return [dict(column) for column in attributes.get("schema", ())]


def ensure_table(
    connection: Connection,
    path: str,
    schema: Sequence[Mapping[str, Any]],
    attributes: Mapping[str, Any],
) -> bool:
    """Create and mount a dynamic table, unless it exists and is mounted.

    Args:
        path: where; missing parents are created.
        schema: columns, used when the table is created.
        attributes: further attributes, used when the table is created.

    Returns:
        Whether this call created the table.
    """
    whole = {**attributes, "dynamic": True, "schema": list(schema)}
    return ensure_object(connection, "table", path, whole)


def ensure_object(
    connection: Connection, kind: str, path: str, attributes: Mapping[str, Any] | None = None
) -> bool:
    """Create and mount a `table`, `queue_consumer` or `queue_producer`; see `ensure_table`."""
    client, given = connection.reader, dict(attributes or {})
    with translated(f"create the {kind.replace('_', ' ')}", path=path):
        is_new = not client.exists(path)
        if is_new:
            client.create(kind, path, recursive=True, ignore_existing=True, attributes=given)
    info = describe_table(connection, path)
    if info.tablet_state == "frozen":
        info.require_mounted()
    if info.tablet_state != "mounted":
        mount_table(connection, path)
    return is_new


def create_tables(
    connection: Connection,
    attributes: Mapping[str, Mapping[str, Any]],
    unmounted: Sequence[str] = (),
) -> None:
    """Create dynamic tables, unless they exist, and mount them and others, with a few requests for all.

    Args:
        attributes: of each table that is created, by its path; missing parents are created.
        unmounted: tables that are there, and are mounted too.

    Raises:
        ExactlyOnceError: the first that cannot be created or mounted; the others may be.
        TableNotMountedError: one is not mounted in time.
    """
    given = {"type": "table", "recursive": True, "ignore_existing": True}
    made = {
        path: request("create", path=path, attributes={**one, "dynamic": True}, **given)
        for path, one in attributes.items()
    }
    for answer in answers(connection, made).values():
        or_raise(answer)
    waiting = [*dict.fromkeys([*attributes, *unmounted])]
    mounted = {path: request("mount_table", path=path) for path in waiting}
    for answer in answers(connection, mounted).values():
        or_raise(answer)
    deadline = time.monotonic() + connection.config.heavy_request_timeout.total_seconds()
    while waiting:
        found = attributes_of_all(connection, waiting, ["tablet_state"])
        states = {
            path: str((or_raise(one) or {}).get("tablet_state", "")) for path, one in found.items()
        }
        waiting = [path for path, state in states.items() if state != "mounted"]
        if waiting and time.monotonic() > deadline:
            raise not_mounted(waiting[0], states[waiting[0]])
        time.sleep(_MOUNT_PAUSE if waiting else 0)


def mount_table(connection: Connection, path: str, *, is_frozen: bool = False) -> None:
    """Mount a table, or unfreeze one that is frozen, and wait until it is."""
    with translated("mount the table", path=path):
        if is_frozen:
            connection.reader.unfreeze_table(path, sync=True)
        else:
            connection.reader.mount_table(path, sync=True)


def store_rows(
    connection: Connection,
    path: str,
    rows: Sequence[Mapping[str, Any]],
    removed: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a few rows of a sorted table, and delete others by their keys, outside any transaction."""
    with translated("write rows", path=path):
        connection.reader.insert_rows(path, list(rows))
        if removed:
            connection.reader.delete_rows(path, list(removed))


def rows_of(connection: Connection, path: str, limit: int) -> list[dict[str, Any]]:
    """Return some rows of a small dynamic table, at most so many, in any order."""
    with translated("read rows", path=path):
        return list(
            connection.reader.select_rows(f"* from [{path}] limit {limit}", format=YsonFormat())
        )


def had_rows(connection: Connection, path: str, tablet_count: int) -> bool:
    """Return whether a table has a row, or an ordered one, with tablets, has had one that was trimmed."""
    if not tablet_count:
        return bool(rows_of(connection, path, 1))
    with translated("look at tablets", path=path):
        infos = connection.reader.get_tablet_infos(path, list(range(tablet_count)))
    return any(int(info["total_row_count"]) for info in infos["tablets"])


def unsigned(number: int) -> Any:
    """Return a number that the cluster reads as unsigned."""
    return YsonUint64(number)


def missing_columns(
    columns: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> str:
    """Return the names of columns that a table lacks, or has in the wrong position of its key."""
    have, want = (
        {(one["name"], one.get("sort_order")) for one in each} for each in (columns, wanted)
    )
    return ", ".join(sorted(name for name, _ in want - have))


def expiring(connection: Connection, path: str) -> float | None:
    """Return after how many seconds the cluster removes rows of a table, if it does so by their age."""
    found = attributes_of(connection, path, ["max_data_ttl", "min_data_versions"]) or {}
    if found.get("max_data_ttl") is None or found.get("min_data_versions", 1):
        return None
    return int(found["max_data_ttl"]) / 1000


def require_columns(
    info: TableInfo,
    schema: Sequence[Mapping[str, Any]],
    purpose: str,
    error: type[ExactlyOnceError],
    remedy: str,
) -> None:
    """Check that an existing table has the columns its purpose needs; raise the error if it has not."""
    if missing := missing_columns(info.schema, schema):
        raise error(
            f"The table cannot serve as {purpose}: it lacks or misplaces {missing}",
            remedy=remedy,
            path=info.path,
        )
