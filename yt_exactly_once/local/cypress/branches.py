"""The end of a master transaction: its versions merged into the parent, or thrown away.

Objects that nothing leads to any more are destroyed here, in the same write.
"""

from __future__ import annotations

import sqlite3

from yt_exactly_once.local.cypress import chunks, clock, dynamic, locks
from yt_exactly_once.local.cypress.layout import TRUNK, VERSIONED
from yt_exactly_once.local.cypress.view import View


def merge(connection: sqlite3.Connection, tx: str, parent_tx: str) -> None:
    """Make the versions of a transaction those of its parent."""
    frozen = locks.frozen_nodes(connection, tx)
    for node_id in frozen:
        locks.drop_versions(connection, node_id, tx)
    orphans = _merge_entries(connection, tx, parent_tx)
    clock.restamp(connection, tx)
    _merge_attributes(connection, tx, parent_tx)
    changed = connection.execute(
        "SELECT node_id FROM cypress_contents WHERE tx = ?", (tx,)
    ).fetchall()
    for (node_id,) in changed:
        chunks.merge(connection, node_id, tx, parent_tx)
    locks.hand_over(connection, tx, parent_tx)
    for node_id in {*orphans, *frozen}:
        destroy_if_unreachable(connection, node_id)


def discard(connection: sqlite3.Connection, tx: str) -> None:
    """Throw the versions of a transaction away."""
    frozen = locks.frozen_nodes(connection, tx)
    created = connection.execute(
        "SELECT child_id FROM cypress_entries WHERE tx = ? AND child_id IS NOT NULL", (tx,)
    ).fetchall()
    for table in VERSIONED:
        connection.execute(f"DELETE FROM {table} WHERE tx = ?", (tx,))
    locks.release(connection, tx)
    for node_id in {*frozen, *(child_id for (child_id,) in created)}:
        destroy_if_unreachable(connection, node_id)


def destroy_if_unreachable(connection: sqlite3.Connection, node_id: str) -> None:
    """Destroy an object unless a path leads to it or a snapshot lock holds it."""
    row = connection.execute("SELECT type FROM cypress_nodes WHERE id = ?", (node_id,)).fetchone()
    held = connection.execute(
        "SELECT 1 FROM cypress_entries WHERE child_id = ?1"
        " UNION ALL SELECT 1 FROM cypress_locks WHERE node_id = ?1 AND mode = 'snapshot'",
        (node_id,),
    ).fetchone()
    if row is None or held:
        return
    children = connection.execute(
        "SELECT DISTINCT child_id FROM cypress_entries"
        " WHERE parent_id = ? AND child_id IS NOT NULL",
        (node_id,),
    ).fetchall()
    if row[0] == "table" and _is_dynamic(connection, node_id):
        dynamic.tables().drop(connection, node_id)
    of_node = {**VERSIONED, "cypress_locks": "node_id", "cypress_accesses": "node_id"}
    for table, column in {**of_node, "cypress_nodes": "id"}.items():
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (node_id,))
    for (child_id,) in children:
        destroy_if_unreachable(connection, child_id)


def _is_dynamic(connection: sqlite3.Connection, node_id: str) -> bool:
    versions = connection.execute(
        "SELECT DISTINCT tx FROM cypress_attributes WHERE node_id = ?", (node_id,)
    ).fetchall()
    return any(View(connection, (tx,)).attribute(node_id, "dynamic") for (tx,) in versions)


def _merge_entries(connection: sqlite3.Connection, tx: str, parent_tx: str) -> set[str]:
    """Merge the children of map nodes; return those that may have become unreachable."""
    orphans: set[str] = set()
    entries = connection.execute(
        "SELECT parent_id, name, child_id FROM cypress_entries WHERE tx = ?", (tx,)
    ).fetchall()
    connection.execute("DELETE FROM cypress_entries WHERE tx = ?", (tx,))
    for parent_id, name, child_id in entries:
        old = connection.execute(
            "SELECT child_id FROM cypress_entries WHERE parent_id = ? AND name = ? AND tx = ?",
            (parent_id, name, parent_tx),
        ).fetchone()
        if old and old[0] is not None and old[0] != child_id:
            orphans.add(old[0])
        View(connection, (parent_tx,)).put_child(parent_id, name, child_id)
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
