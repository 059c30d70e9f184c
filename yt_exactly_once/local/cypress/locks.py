"""Locks of master transactions: who may change what, and what a snapshot keeps still.

A change takes its lock by itself; the `lock` command takes one on demand. A change outside of any
transaction takes none but must not meet one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress import chunks, clock, dynamic
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.layout import TRUNK, VERSIONED
from yt_exactly_once.local.cypress.view import FROZEN, View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import scalar

SNAPSHOT = "snapshot"
SHARED = "shared"
EXCLUSIVE = "exclusive"
MODES = frozenset((SNAPSHOT, SHARED, EXCLUSIVE))
_ACQUIRED = "acquired"


@dataclass(frozen=True)
class Lock:
    """One lock, acquired or waiting."""

    id: str
    node_id: str
    tx: str
    mode: str
    child_key: str | None = None
    attribute_key: str | None = None
    state: str = _ACQUIRED
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
    held = find(view.connection, node_id=node_id, tx=view.tx, state=_ACQUIRED)
    same = mode, child_key, attribute_key
    if not any(
        each.mode == EXCLUSIVE or (each.mode, each.child_key, each.attribute_key) == same
        for each in held
    ):
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


def take(view: View, wanted: Lock, *, waitable: bool) -> Lock:
    """Take a lock on demand; raise 400, 401 or 402 on a conflict, unless the caller agreed to wait."""
    error = _conflict(view, wanted)
    if error is not None:
        if not waitable:
            raise error
        return _insert(view.connection, replace(wanted, state="pending"))
    if wanted.mode == SNAPSHOT and wanted.node_id not in frozen_nodes(view.connection, view.tx):
        _freeze(view, wanted.node_id)
    return _insert(view.connection, wanted)


def release_explicit(view: View, node_id: str) -> None:
    """Drop the locks that `take` gave to a transaction; refuse where it has changed the node."""
    for held in find(view.connection, node_id=node_id, tx=view.tx, explicit=True):
        if held.mode == SNAPSHOT:
            drop_versions(view.connection, node_id, view.tx)
        elif _has_changes(view, node_id):
            raise YtError(
                f'Node #{node_id} is modified by transaction "{view.tx}" and cannot be unlocked'
            )
        view.connection.execute("DELETE FROM cypress_locks WHERE id = ?", (held.id,))
    _grant_pending(view.connection, [node_id])


def drop_versions(connection: Connection, node_id: str, tx: str) -> None:
    """Forget what a transaction has of a node."""
    for table, column in VERSIONED.items():
        connection.execute(f"DELETE FROM {table} WHERE {column} = ? AND tx = ?", (node_id, tx))


def of_node(view: View, node_id: str) -> list[Lock]:
    """Return the locks on a node, waiting ones last."""
    held = find(view.connection, node_id=node_id)
    return sorted(held, key=lambda lock: lock.state != _ACQUIRED)


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


def find(connection: Connection, **wanted: Any) -> list[Lock]:
    """Return the locks whose fields have the wanted values, the oldest first."""
    condition = " AND ".join(f"{name} = :{name}" for name in wanted) or "true"
    rows = connection.execute(
        f"SELECT * FROM cypress_locks WHERE {condition} ORDER BY created", wanted
    )
    return [Lock(*row) for row in rows]


def frozen_nodes(connection: Connection, tx: str) -> set[str]:
    """Return the nodes that a transaction holds snapshots of."""
    return {lock.node_id for lock in find(connection, tx=tx, mode=SNAPSHOT, state=_ACQUIRED)}


def hand_over(connection: Connection, tx: str, parent_tx: str) -> None:
    """Give the locks of an ended transaction to its parent, waiting ones too.

    Snapshots end, and so do all locks where the parent is the trunk.
    """
    nodes = [lock.node_id for lock in find(connection, tx=tx)]
    ended = (tx, SNAPSHOT, parent_tx == TRUNK)
    connection.execute("DELETE FROM cypress_locks WHERE tx = ? AND (mode = ? OR ?)", ended)
    connection.execute("UPDATE cypress_locks SET tx = ? WHERE tx = ?", (parent_tx, tx))
    _grant_pending(connection, nodes)


def _insert(connection: Connection, lock: Lock) -> Lock:
    now = time.time()
    made = replace(
        lock, id=make_id("lock"), created=now, acquired=now if lock.state == _ACQUIRED else None
    )
    connection.execute(
        "INSERT INTO cypress_locks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(made)
    )
    return made


def _conflict(view: View, wanted: Lock) -> YtError | None:
    for held in find(view.connection, node_id=wanted.node_id, state=_ACQUIRED):
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
        for name, child_id in {**view.children(node_id), FROZEN: None}.items():
            view.put_child(node_id, name, child_id)
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


def _grant_pending(connection: Connection, node_ids: list[str]) -> None:
    for node_id in dict.fromkeys(node_ids):
        for waiting in find(connection, node_id=node_id, state="pending"):
            view = View(connection, chain(connection, waiting.tx))
            if _conflict(view, waiting) is None:
                if waiting.mode == SNAPSHOT:
                    _freeze(view, node_id)
                connection.execute(
                    "UPDATE cypress_locks SET state = 'acquired', acquired = ? WHERE id = ?",
                    (time.time(), waiting.id),
                )


def chain(connection: Connection, tx: str) -> tuple[str, ...]:
    """Return a transaction, its ancestors and the trunk, whether they are alive or not."""
    found = []
    current = tx
    while current != TRUNK:
        found.append(current)
        query = "SELECT parent_id FROM master_transactions WHERE id = ?"
        current = scalar(connection, query, current) or TRUNK
    return (*found, TRUNK)
