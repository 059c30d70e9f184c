"""Master transactions: nested, alive while pinged, found on every proxy.

It owns life cycle and leases. What a transaction changed lives beside it as versions of the tree: its end
merges them into the parent or throws them away. Objects that nothing leads to any more are destroyed then.
Prerequisites are transactions that must be alive, and revisions that nodes must have, for a command to run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import chunks, clock, dynamic, locks, tree, ypath
from yt_exactly_once.local.cypress.ids import TYPES, is_id, make_id, type_number
from yt_exactly_once.local.cypress.layout import TRUNK, VERSIONED
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.store import scalar, scalars

DEFAULT_TIMEOUT_MS = 15_000
MAX_TIMEOUT_MS = 10**12
MAX_DEPTH = 32
_DEADLINE = "deadline"
_DEPENDS_ON, _REVISIONS = "prerequisite_transaction_ids", "prerequisite_revisions"
MASTER_TYPES = frozenset((TYPES["transaction"], TYPES["nested_transaction"]))


def chain(connection: Connection, transaction_id: str) -> tuple[str, ...]:
    """Return a transaction, its ancestors and the trunk; raise 11000 when it has ended."""
    if not is_id(transaction_id):
        raise YtError(f'"{transaction_id}" is not a valid object id')
    if not is_master(transaction_id):
        raise YtError(f"{transaction_id} is not a valid master transaction id")
    found = locks.chain(connection, transaction_id.lower())
    living = "SELECT 1 FROM master_transactions WHERE id = ? AND expires > ?"
    if not all(scalar(connection, living, each, time.time()) for each in found[:-1]):
        raise no_such(transaction_id)
    return found


def view_of(
    connection: Connection, transaction_id: str | None, user: str, *, is_quiet: bool = False
) -> View:
    """Return the tree as a transaction sees it, for a user; without a transaction, the trunk."""
    seen = (TRUNK,) if transaction_id is None else chain(connection, transaction_id)
    return View(connection, seen, user, is_quiet)


def check_prerequisites(connection: Connection, parameters: dict[str, Any]) -> list[str]:
    """Refuse (1000) a command whose prerequisites do not hold; return transactions that must live."""
    wanted = prerequisites(parameters)
    check_alive(connection, wanted)
    revisions = parameters.get(_REVISIONS) or []
    if not isinstance(revisions, list):
        raise YtError(f'Error parsing parameter "{_REVISIONS}": expected a list')
    for given in revisions:
        _check_revision(connection, arguments.mapping(given, _REVISIONS))
    return wanted


def prerequisites(parameters: dict[str, Any]) -> list[str]:
    """Return the transactions that a command needs alive."""
    return arguments.texts(parameters.get(_DEPENDS_ON) or [], _DEPENDS_ON)


def check_alive(connection: Connection, wanted: Iterable[str]) -> None:
    """Refuse when a master transaction has ended, with 1000 and its id."""
    for transaction_id in wanted:
        try:
            chain(connection, transaction_id)
        except YtError as error:
            raise _failed(f"transaction {transaction_id} is missing", error) from error


def _check_revision(connection: Connection, given: dict[str, Any]) -> None:
    path = ypath.parse(given.get("path"), _REVISIONS)
    expected = arguments.integer(given, "revision", unsigned=True)
    # Of the trunk, whatever transaction the command belongs to.
    view = View(connection)
    try:
        position = tree.reach(view, path)
    except YtError as error:
        raise _failed(f"failed to resolve path {path.text}", error) from error
    found = int(view.attribute(position.id, "revision") or 0)
    if found != expected:
        raise _failed(f"node {path.text} revision mismatch: expected {expected:x}, found {found:x}")


def _failed(reason: str, *causes: YtError) -> YtError:
    message = f"Prerequisite check failed: {reason}"
    return YtError(message, Code.PREREQUISITE_CHECK_FAILED, inner=causes)


def is_master(transaction_id: str) -> bool:
    """Tell whether a text is the id of a master transaction."""
    return is_id(transaction_id) and type_number(transaction_id) in MASTER_TYPES


def no_such(transaction_id: str) -> YtError:
    """Return the error for an unknown, ended or expired transaction."""
    return YtError(f"No such transaction {transaction_id}", Code.NO_SUCH_TRANSACTION)


def start(
    connection: Connection,
    *,
    parent_id: str | None,
    timeout_ms: int | None,
    max_timeout_ms: int = MAX_TIMEOUT_MS,
    deadline: datetime | None = None,
    depends_on: Sequence[str] = (),
    attributes: dict[str, Any],
    owner: str,
) -> str:
    """Start a transaction and return its id; `depends_on` are those that it does not outlive."""
    depth = 1 if parent_id is None else len(chain(connection, parent_id))
    if depth > MAX_DEPTH:
        raise YtError("Transaction depth limit reached", limit=MAX_DEPTH)
    lease = timeout_ms or DEFAULT_TIMEOUT_MS
    if not 0 < lease <= MAX_TIMEOUT_MS:
        raise YtError(
            f'Error parsing parameter "timeout": it must be between 1 and {MAX_TIMEOUT_MS}'
        )
    lease = min(lease, max_timeout_ms)
    transaction_id = make_id("transaction" if parent_id is None else "nested_transaction")
    for builtin in {_DEADLINE, _DEPENDS_ON} & attributes.keys():
        raise YtError(f'Builtin attribute "{builtin}" cannot be set; give it as a parameter')
    stored = {"start_time": clock.now(), "owner": owner, **attributes}
    if deadline is not None:
        stored[_DEADLINE] = clock.spell(deadline)
    if depends_on:
        stored[_DEPENDS_ON] = [other.lower() for other in depends_on]
    connection.execute(
        "INSERT INTO master_transactions VALUES (?, ?, ?, ?, ?)",
        (
            transaction_id,
            (parent_id or TRUNK).lower(),
            lease,
            _expiry(lease, stored),
            dump_yson(stored),
        ),
    )
    return transaction_id


def ping(connection: Connection, transaction_id: str, *, ancestors: bool) -> None:
    """Renew a lease, of the ancestors too on request."""
    for current in chain(connection, transaction_id)[: -1 if ancestors else 1]:
        lease, stored = connection.execute(
            "SELECT timeout, attributes FROM master_transactions WHERE id = ?", (current,)
        ).fetchone()
        connection.execute(
            "UPDATE master_transactions SET expires = ? WHERE id = ?",
            (_expiry(lease, load_yson(stored, "attributes")), current),
        )


def set_timeout(connection: Connection, transaction_id: str, timeout_ms: int) -> None:
    """Change the lease of a transaction, which starts again now."""
    chain(connection, transaction_id)
    connection.execute(
        "UPDATE master_transactions SET timeout = ? WHERE id = ?",
        (timeout_ms, transaction_id.lower()),
    )
    ping(connection, transaction_id, ancestors=False)


def _expiry(lease_ms: int, attributes: dict[str, Any]) -> float:
    """Return the unix time at which a transaction that is alive now ends without a ping."""
    expires = time.time() + lease_ms / 1000
    deadline = attributes.get(_DEADLINE)
    if deadline is None:
        return expires
    return min(expires, datetime.fromisoformat(deadline).timestamp())


def commit(connection: Connection, transaction_id: str) -> None:
    """Make the changes of a transaction visible in its parent.

    Nested ones are aborted, and so are those that had it as a prerequisite.
    """
    _, parent_id, *_ = chain(connection, transaction_id)
    _end(connection, transaction_id.lower(), parent_id)


def abort(connection: Connection, transaction_id: str) -> None:
    """Throw the changes of a transaction away; nested ones are aborted first."""
    chain(connection, transaction_id)
    _end(connection, transaction_id.lower())


def expire(connection: Connection) -> None:
    """Abort the transactions whose lease ran out; called before every change of the tree."""
    for transaction_id in overdue(connection):
        _end(connection, transaction_id)


def overdue(connection: Connection) -> list[str]:
    """Return the transactions whose lease ran out that are still here."""
    return _ids(connection, "expires <= ?", time.time())


def describe(connection: Connection, transaction_id: str) -> dict[str, Any] | None:
    """Return the attributes of a live transaction."""
    row = connection.execute(
        "SELECT parent_id, timeout, expires, attributes FROM master_transactions WHERE id = ?",
        (transaction_id.lower(),),
    ).fetchone()
    if row is None or row[2] <= time.time():
        return None
    parent_id, timeout, expires, stored = row
    pinged = datetime.fromtimestamp(expires - timeout / 1000, UTC)
    return {
        "id": transaction_id.lower(),
        "type": "transaction" if parent_id == TRUNK else "nested_transaction",
        "parent_id": parent_id or "0-0-0-0",
        "timeout": timeout,
        "last_ping_time": clock.spell(pinged),
        "state": "active",
        "nested_transaction_ids": _nested(connection, transaction_id),
        **load_yson(stored, "attributes"),
    }


def all_ids(connection: Connection) -> list[str]:
    """Return the ids of the live transactions."""
    return _ids(connection, "expires > ?", time.time())


def _nested(connection: Connection, transaction_id: str) -> list[str]:
    return _ids(connection, "parent_id = ?", transaction_id.lower())


def _ids(connection: Connection, condition: str, value: Any) -> list[str]:
    return scalars(
        connection, f"SELECT id FROM master_transactions WHERE {condition} ORDER BY id", value
    )


def _end(connection: Connection, transaction_id: str, parent_id: str | None = None) -> None:
    """End a transaction, into its parent or without a trace, with those that it does not leave alone."""
    for nested in _nested(connection, transaction_id):
        _end(connection, nested)
    if parent_id is None:
        _discard(connection, transaction_id)
    else:
        _merge(connection, transaction_id, parent_id)
    connection.execute("DELETE FROM master_transactions WHERE id = ?", (transaction_id,))
    # One of them may have ended together with an earlier one; to end it again changes nothing.
    for other in dependent(connection, transaction_id):
        _end(connection, other)


def dependent(connection: Connection, transaction_id: str) -> list[str]:
    """Return the transactions that have this one as a prerequisite."""
    living = connection.execute("SELECT id, attributes FROM master_transactions").fetchall()
    return [
        other
        for other, stored in living
        if transaction_id.lower() in load_yson(stored, "attributes").get(_DEPENDS_ON, [])
    ]


def _merge(connection: Connection, tx: str, parent_tx: str) -> None:
    """Make the versions of a transaction those of its parent."""
    frozen = locks.frozen_nodes(connection, tx)
    for node_id in frozen:
        locks.drop_versions(connection, node_id, tx)
    orphans = scalars(
        connection,
        "SELECT old.child_id FROM cypress_entries new JOIN cypress_entries old"
        " USING (parent_id, name) WHERE new.tx = ? AND old.tx = ? AND old.child_id IS NOT NULL"
        " AND old.child_id IS NOT new.child_id",
        tx,
        parent_tx,
    )
    clock.restamp(connection, tx)
    for table, fact in (("cypress_entries", "child_id"), ("cypress_attributes", "value")):
        connection.execute(f"UPDATE OR REPLACE {table} SET tx = ? WHERE tx = ?", (parent_tx, tx))
        # What a transaction has removed is marked; the trunk just lacks it.
        connection.execute(f"DELETE FROM {table} WHERE tx = '' AND {fact} IS NULL")
    for node_id in scalars(connection, "SELECT node_id FROM cypress_contents WHERE tx = ?", tx):
        chunks.merge(connection, node_id, tx, parent_tx)
    locks.hand_over(connection, tx, parent_tx)
    for node_id in {*orphans, *frozen}:
        destroy_if_unreachable(connection, node_id)


def _discard(connection: Connection, tx: str) -> None:
    """Throw the versions of a transaction away."""
    frozen = locks.frozen_nodes(connection, tx)
    created = scalars(
        connection, "SELECT child_id FROM cypress_entries WHERE tx = ? AND child_id IS NOT NULL", tx
    )
    for table in VERSIONED:
        connection.execute(f"DELETE FROM {table} WHERE tx = ?", (tx,))
    locks.hand_over(connection, tx, TRUNK)
    for node_id in {*frozen, *created}:
        destroy_if_unreachable(connection, node_id)


def destroy_if_unreachable(connection: Connection, node_id: str) -> None:
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
    query = "SELECT 1 FROM cypress_attributes WHERE node_id = ? AND name = 'dynamic' AND value = ?"
    if node_type == "table" and scalar(connection, query, node_id, dump_yson(True)):
        dynamic.tables().drop(connection, node_id)
    of_node = {**VERSIONED, "cypress_locks": "node_id", "cypress_accesses": "node_id"}
    for table, column in {**of_node, "cypress_nodes": "id"}.items():
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (node_id,))
    for child_id in children:
        destroy_if_unreachable(connection, child_id)
