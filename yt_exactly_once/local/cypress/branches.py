"""The end of a master transaction: its versions merged into the parent, or thrown away.

Objects that nothing leads to any more are destroyed here, in the same write.
"""

from __future__ import annotations

import sqlite3

from yt_exactly_once.local.cypress import chunks, clock, dynamic, locks
from yt_exactly_once.local.cypress.layout import TRUNK, VERSIONED
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.store import scalar, scalars


def merge(connection: sqlite3.Connection, tx: str, parent_tx: str) -> None:
    """Make the versions of a transaction those of its parent."""
    frozen = locks.frozen_nodes(connection, tx)
    for node_id in frozen:
        locks.drop_versions(connection, node_id, tx)
    orphans = _merge_entries(connection, tx, parent_tx)
    clock.restamp(connection, tx)
    _merge_attributes(connection, tx, parent_tx)
    for node_id in scalars(connection, "SELECT node_id FROM cypress_contents WHERE tx = ?", tx):
        chunks.merge(connection, node_id, tx, parent_tx)
    locks.hand_over(connection, tx, parent_tx)
    for node_id in {*orphans, *frozen}:
        destroy_if_unreachable(connection, node_id)


def discard(connection: sqlite3.Connection, tx: str) -> None:
    """Throw the versions of a transaction away."""
    frozen = locks.frozen_nodes(connection, tx)
    created = scalars(
        connection, "SELECT child_id FROM cypress_entries WHERE tx = ? AND child_id IS NOT NULL", tx
    )
    for table in VERSIONED:
        connection.execute(f"DELETE FROM {table} WHERE tx = ?", (tx,))
    locks.release(connection, tx)
    for node_id in {*frozen, *created}:
        destroy_if_unreachable(connection, node_id)


def destroy_if_unreachable(connection: sqlite3.Connection, node_id: str) -> None:
    """Destroy an object unless a path leads to it or a snapshot lock holds it."""
    node_type = View(connection).node_type(node_id)
    held = scalar(
        connection,
        "SELECT 1 FROM cypress_entries WHERE child_id = ?1"
        " UNION ALL SELECT 1 FROM cypress_locks WHERE node_id = ?1 AND mode = 'snapshot'",
        node_id,
    )
    if node_type is None or held:
        return
    children = scalars(
        connection,
        "SELECT DISTINCT child_id FROM cypress_entries"
        " WHERE parent_id = ? AND child_id IS NOT NULL",
        node_id,
    )
    if node_type == "table" and _is_dynamic(connection, node_id):
        dynamic.tables().drop(connection, node_id)
    of_node = {**VERSIONED, "cypress_locks": "node_id", "cypress_accesses": "node_id"}
    for table, column in {**of_node, "cypress_nodes": "id"}.items():
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (node_id,))
    for child_id in children:
        destroy_if_unreachable(connection, child_id)


def _is_dynamic(connection: sqlite3.Connection, node_id: str) -> bool:
    query = "SELECT DISTINCT tx FROM cypress_attributes WHERE node_id = ?"
    versions = (View(connection, (tx,)) for tx in scalars(connection, query, node_id))
    return any(version.attribute(node_id, "dynamic") for version in versions)


def _merge_entries(connection: sqlite3.Connection, tx: str, parent_tx: str) -> set[str]:
    """Merge the children of map nodes; return those that may have become unreachable."""
    orphans: set[str] = set()
    entries = connection.execute(
        "SELECT parent_id, name, child_id FROM cypress_entries WHERE tx = ?", (tx,)
    ).fetchall()
    connection.execute("DELETE FROM cypress_entries WHERE tx = ?", (tx,))
    for parent_id, name, child_id in entries:
        parent = View(connection, (parent_tx,))
        query = "SELECT child_id FROM cypress_entries WHERE parent_id = ? AND name = ? AND tx = ?"
        old = scalar(connection, query, parent_id, name, parent_tx)
        if old not in {None, child_id}:
            orphans.add(old)
        parent.put_child(parent_id, name, child_id)
    return orphans


def _merge_attributes(connection: sqlite3.Connection, tx: str, parent_tx: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO cypress_attributes"
        " SELECT node_id, ?, name, value FROM cypress_attributes WHERE tx = ?",
        (parent_tx, tx),
    )
    connection.execute("DELETE FROM cypress_attributes WHERE tx = ?", (tx,))
    if parent_tx == TRUNK:
        connection.execute("DELETE FROM cypress_attributes WHERE tx = '' AND value IS NULL")
