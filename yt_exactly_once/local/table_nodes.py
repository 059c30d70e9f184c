"""Dynamic tables as nodes of the tree: what `cypress.dynamic` asks for, from `tablets` and `queues`."""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.queues import consumers
from yt_exactly_once.local.queues.status import queue_attributes
from yt_exactly_once.local.tables.schema import REGISTRATIONS_SCHEMA
from yt_exactly_once.local.tablets.attributes import describe_tablet, table_attributes
from yt_exactly_once.local.tablets.attributes import moments as moments_of
from yt_exactly_once.local.tablets.catalog import find_layout, initialize, load_layout
from yt_exactly_once.local.tablets.lifecycle import check_change, check_movable, copy, create, drop
from yt_exactly_once.local.tablets.states import change_state

__all__ = [
    "attributes",
    "check_change",
    "check_movable",
    "copy",
    "create",
    "describe_tablet",
    "drop",
    "moments",
]


def create_system_tables(connection: Connection) -> dict[str, str]:
    """Create the dynamic tables that a cluster begins with, mounted; return ids by path."""
    initialize(connection)
    node_id = consumers.REGISTRATIONS_ID
    create(connection, node_id, {"schema": REGISTRATIONS_SCHEMA.to_yson()})
    created = load_layout(connection, node_id, consumers.REGISTRATIONS_PATH)
    change_state(connection, created, "mounted", {})
    return {consumers.REGISTRATIONS_PATH: node_id}


def moments(connection: Connection, node_id: str) -> dict[str, Any]:
    """Return the attributes of a dynamic table that a snapshot lock keeps still."""
    return moments_of(connection, load_layout(connection, node_id, node_id))


def attributes(connection: Connection, node: Node) -> dict[str, Callable[[], Any]]:
    """Return the computed attributes of a dynamic table by name; empty for other nodes."""
    layout = find_layout(connection, node.id, node.id)
    if layout is None:
        return {}
    own = table_attributes(connection, node, layout)
    return own | queue_attributes(connection, node, layout)
