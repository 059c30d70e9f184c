"""What the tree asks of dynamic tables: one place where it reaches into `tablets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.queues import registrations
from yt_exactly_once.local.tables import layout
from yt_exactly_once.local.tables.schema import REGISTRATIONS_SCHEMA, TableSchema, parse_schema
from yt_exactly_once.local.tablets import attributes, states, tables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from yt_exactly_once.local.cypress.tree import Node


def static_schema(raw: Any) -> Any:
    """Return the schema of a static table in its full spelling; `None` stands for any row.

    Raises:
        YtError: the schema is malformed.
    """
    if raw is None:
        return TableSchema((), strict=False).to_yson()
    return parse_schema(raw).to_yson()


def create_table(
    connection: sqlite3.Connection, node_id: str, attributes: dict[str, Any]
) -> dict[str, Any]:
    """Create the storage of a dynamic table; return the attributes to store."""
    return tables.create_table(connection, node_id, attributes)


def create_system_tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Create the dynamic tables that a cluster begins with, mounted; return ids by path."""
    layout.initialize(connection)
    node_id = registrations.TABLE_ID
    tables.create_table(connection, node_id, {"schema": REGISTRATIONS_SCHEMA.to_yson()})
    created = layout.load_layout(connection, node_id, registrations.TABLE_PATH)
    states.change_state(connection, created, "mounted", {})
    return {registrations.TABLE_PATH: node_id}


def drop_table(connection: sqlite3.Connection, node_id: str) -> None:
    """Drop the storage of a dynamic table."""
    tables.drop_table(connection, node_id)


def copy_table(connection: sqlite3.Connection, source_id: str, target_id: str) -> None:
    """Copy the storage of a dynamic table."""
    tables.copy_table(connection, source_id, target_id)


def describe_tablet(connection: sqlite3.Connection, tablet_id: str) -> dict[str, Any] | None:
    """Return the attributes of a tablet, `table_id` with them; None when there is none."""
    return attributes.describe_tablet(connection, tablet_id)


def check_movable(connection: sqlite3.Connection, node_id: str) -> None:
    """Refuse to move a dynamic table that is not unmounted; other nodes may move."""
    tables.check_movable(connection, node_id)


def table_attributes(connection: sqlite3.Connection, node: Node) -> dict[str, Callable[[], Any]]:
    """Return the computed attributes of a dynamic table."""
    return tables.table_attributes(connection, node)


def set_table_attribute(
    connection: sqlite3.Connection, node: Node, name: str, value: Any, *, in_transaction: bool
) -> bool:
    """Let a dynamic table handle the change of an attribute; tell whether it did."""
    return tables.set_table_attribute(connection, node, name, value, in_transaction=in_transaction)


def check_removal(
    connection: sqlite3.Connection, node: Node, name: str, *, in_transaction: bool
) -> None:
    """Let a dynamic table refuse the removal of an attribute."""
    tables.check_removal(connection, node, name, in_transaction=in_transaction)
