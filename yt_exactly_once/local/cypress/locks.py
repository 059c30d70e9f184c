"""Locks of master transactions: who may change what, and what a snapshot keeps still.

A change takes its lock by itself; the `lock` command takes one on demand. A change outside of any
transaction takes none but must not meet one.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from yt_exactly_once.local.cypress import chunks, clock, dynamic
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.layout import TRUNK, VERSIONED
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import scalar, scalars

SNAPSHOT = "snapshot"
SHARED = "shared"
EXCLUSIVE = "exclusive"
MODES = frozenset((SNAPSHOT, SHARED, EXCLUSIVE))
_HELD = "node_id = ? AND state = 'acquired'"
_COLUMNS = "id, node_id, tx, mode, child_key, attribute_key, state, explicit, created, acquired"


@dataclass(frozen=True)
class Lock:
    """One lock, acquired or waiting."""

    id: str
    node_id: str
    tx: str
    mode: str
    child_key: str | None = None
    attribute_key: str | None = None
    state: str = "acquired"
    explicit: bool = False
    created: float = 0.0
    acquired: float | None = None


def acquire(
    view: View,
    node_id: str,
    mode: str = EXCLUSIVE,
    *,
    child_key: str | None = None,
    attribute_key: str | None = None,
) -> None:
    """Take the lock that a change needs; outside of a transaction only check.

    Raises:
        YtError: 402 when another transaction holds a lock in the way, 400 when this one or a
            parent holds a snapshot.
    """
    wanted = Lock("", node_id, view.tx, mode, child_key, attribute_key)
    error = _conflict(view, wanted)
    if error is not None:
        raise error
    if view.tx == TRUNK:
        return
    for held in _select(view.connection, _HELD, node_id):
        if held.tx == view.tx and (
            held.mode == EXCLUSIVE
            or (held.mode, held.child_key, held.attribute_key) == (mode, child_key, attribute_key)
        ):
            return
    _insert(view.connection, wanted)


def add_node(
    view: View, node_type: str, given: Mapping[str, Any], node_id: str | None = None
) -> str:
    """Record a new object and return its id; a transaction that creates one holds it exclusively.

    It is found by path once an entry leads to it.
    """
    node_id = node_id or make_id(node_type)
    view.connection.execute("INSERT INTO cypress_nodes VALUES (?, ?)", (node_id, node_type))
    if view.tx != TRUNK:
        _insert(view.connection, Lock("", node_id, view.tx, EXCLUSIVE))
    view.put_attributes(node_id, {**clock.birth(view), **given})
    return node_id


def take(
    view: View,
    node_id: str,
    mode: str,
    *,
    child_key: str | None = None,
    attribute_key: str | None = None,
    waitable: bool = False,
) -> Lock:
    """Take a lock on demand; raise 400, 401 or 402 on a conflict, unless the caller agreed to wait."""
    wanted = Lock("", node_id, view.tx, mode, child_key, attribute_key, explicit=True)
    error = _conflict(view, wanted)
    if error is not None:
        if not waitable:
            raise error
        return _insert(view.connection, replace(wanted, state="pending"))
    if mode == SNAPSHOT and node_id not in frozen_nodes(view.connection, view.tx):
        _freeze(view, node_id)
    return _insert(view.connection, wanted)


def release_explicit(view: View, node_id: str) -> None:
    """Drop the locks that `take` gave to a transaction; refuse where it has changed the node."""
    for held in _select(view.connection, "node_id = ?", node_id):
        if held.tx != view.tx or not held.explicit:
            continue
        if held.mode == SNAPSHOT:
            drop_versions(view.connection, node_id, view.tx)
        elif _has_changes(view, node_id):
            raise YtError(
                f'Node #{node_id} is modified by transaction "{view.tx}" and cannot be unlocked'
            )
        view.connection.execute("DELETE FROM cypress_locks WHERE id = ?", (held.id,))
    _grant_pending(view.connection, [node_id])


def drop_versions(connection: sqlite3.Connection, node_id: str, tx: str) -> None:
    """Forget what a transaction has of a node."""
    for table, column in VERSIONED.items():
        connection.execute(f"DELETE FROM {table} WHERE {column} = ? AND tx = ?", (node_id, tx))


def of_node(view: View, node_id: str) -> list[Lock]:
    """Return the locks on a node, waiting ones last."""
    held = _select(view.connection, "node_id = ?", node_id)
    return sorted(held, key=lambda lock: lock.state != "acquired")


def describe(lock: Lock) -> dict[str, Any]:
    """Return the attributes of a lock."""
    times = {"creation_time": lock.created, "acquisition_time": lock.acquired}
    return {
        "id": lock.id,
        "type": "lock",
        "state": lock.state,
        "mode": lock.mode,
        "node_id": lock.node_id,
        "transaction_id": lock.tx,
        "implicit": not lock.explicit,
        **{name: clock.spell_unix(at) for name, at in times.items() if at is not None},
        **{k: v for k in ("child_key", "attribute_key") if (v := getattr(lock, k)) is not None},
    }


def find(connection: sqlite3.Connection, lock_id: str) -> Lock | None:
    """Return a lock by its id."""
    return next(iter(_select(connection, "id = ?", lock_id)), None)


def all_(connection: sqlite3.Connection) -> list[Lock]:
    """Return every lock."""
    return _select(connection, "true")


def of_transaction(connection: sqlite3.Connection, tx: str) -> list[Lock]:
    """Return the locks of a transaction."""
    return _select(connection, "tx = ?", tx)


def frozen_nodes(connection: sqlite3.Connection, tx: str) -> set[str]:
    """Return the nodes that a transaction holds snapshots of."""
    query = "SELECT node_id FROM cypress_locks WHERE tx = ? AND mode = ? AND state = 'acquired'"
    return set(scalars(connection, query, tx, SNAPSHOT))


def _select(connection: sqlite3.Connection, condition: str, *values: str) -> list[Lock]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM cypress_locks WHERE {condition} ORDER BY created", values
    )
    return [Lock(*row) for row in rows]


def hand_over(connection: sqlite3.Connection, tx: str, parent_tx: str) -> None:
    """Give the locks of an ended transaction to its parent, waiting ones too.

    Snapshots end, and so do all locks where the parent is the trunk.
    """
    nodes = [lock.node_id for lock in of_transaction(connection, tx)]
    ended = (tx, SNAPSHOT, parent_tx == TRUNK)
    connection.execute("DELETE FROM cypress_locks WHERE tx = ? AND (mode = ? OR ?)", ended)
    connection.execute("UPDATE cypress_locks SET tx = ? WHERE tx = ?", (parent_tx, tx))
    _grant_pending(connection, nodes)


def _insert(connection: sqlite3.Connection, lock: Lock) -> Lock:
    now = time.time()
    made = replace(
        lock, id=make_id("lock"), created=now, acquired=now if lock.state == "acquired" else None
    )
    connection.execute(
        "INSERT INTO cypress_locks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(made)
    )
    return made


def _conflict(view: View, wanted: Lock) -> YtError | None:
    for held in _select(view.connection, _HELD, wanted.node_id):
        frozen = SNAPSHOT in {held.mode, wanted.mode} and held.mode != wanted.mode
        if held.tx == wanted.tx and frozen:
            code, how = Code.SAME_TRANSACTION_LOCK_CONFLICT, "already taken by same transaction"
        elif held.tx in view.chain:
            if held.tx == wanted.tx or not frozen or wanted.mode == SNAPSHOT:
                continue
            code, how = Code.SAME_TRANSACTION_LOCK_CONFLICT, "already taken by parent transaction"
        elif _incompatible(held, wanted):
            code, how = Code.CONCURRENT_TRANSACTION_LOCK_CONFLICT, "taken by concurrent transaction"
        elif wanted.mode == SNAPSHOT and frozen and wanted.tx in chain(view.connection, held.tx):
            how = "already taken by a descendant transaction"
            code = Code.DESCENDANT_TRANSACTION_LOCK_CONFLICT
        else:
            continue
        return _error(view, wanted, held, code, how)
    return None


def _incompatible(held: Lock, wanted: Lock) -> bool:
    if SNAPSHOT in {held.mode, wanted.mode}:
        return False
    if EXCLUSIVE in {held.mode, wanted.mode}:
        return True
    same_child = held.child_key is not None and held.child_key == wanted.child_key
    same_attribute = held.attribute_key is not None and held.attribute_key == wanted.attribute_key
    return same_child or same_attribute


def _error(view: View, wanted: Lock, held: Lock, code: Code, how: str) -> YtError:
    path = view.path(wanted.node_id)
    text = f'Cannot take "{wanted.mode}" lock for node {path} since "{held.mode}" lock is {how}'
    for kind, key in (("child", wanted.child_key), ("attribute", wanted.attribute_key)):
        if key is not None and code == Code.CONCURRENT_TRANSACTION_LOCK_CONFLICT:
            text = (
                f'Cannot take lock for {kind} "{key}" of node {path} since this {kind} is locked by'
                " concurrent transaction"
            )
    return YtError(f"{text} {held.tx}", code, {"winner_transaction": {"id": held.tx}})


def _has_changes(view: View, node_id: str) -> bool:
    queries = (
        f"SELECT 1 FROM {of} WHERE {column} = ? AND tx = ?" for of, column in VERSIONED.items()
    )
    return any(scalar(view.connection, query, node_id, view.tx) for query in queries)


def _freeze(view: View, node_id: str) -> None:
    """Copy what a view sees of a node into versions of its own transaction."""
    if view.node_type(node_id) in {"map_node", "list_node"}:
        view.freeze_children(node_id)
    attributes = view.attributes(node_id)
    if attributes.get("dynamic"):
        attributes |= dynamic.tables().moments(view.connection, node_id)
    value = view.value(node_id)
    listed = chunks.chunks(view, node_id)
    view.put_attributes(node_id, attributes)
    if value is not None:
        view.put_value(node_id, value)
    if listed:
        chunks.replace(view, node_id, listed)


def _grant_pending(connection: sqlite3.Connection, node_ids: list[str]) -> None:
    for node_id in dict.fromkeys(node_ids):
        for waiting in _select(connection, "node_id = ? AND state = 'pending'", node_id):
            view = View(connection, chain(connection, waiting.tx))
            if _conflict(view, waiting) is None:
                if waiting.mode == SNAPSHOT:
                    _freeze(view, node_id)
                connection.execute(
                    "UPDATE cypress_locks SET state = 'acquired', acquired = ? WHERE id = ?",
                    (time.time(), waiting.id),
                )


def chain(connection: sqlite3.Connection, tx: str) -> tuple[str, ...]:
    """Return a transaction, its ancestors and the trunk, whether they are alive or not."""
    found = []
    current = tx
    while current != TRUNK:
        found.append(current)
        query = "SELECT parent_id FROM master_transactions WHERE id = ?"
        current = scalar(connection, query, current) or TRUNK
    return (*found, TRUNK)
