"""Master transactions as commands; `transactions` calls these after looking at the type."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.mutations import once
from yt_exactly_once.local.cypress import master_transactions, prerequisites
from yt_exactly_once.local.cypress.ids import CELL_TAG
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import next_timestamp

if TYPE_CHECKING:
    from yt_exactly_once.local.commands.registry import Context


@once
def start(context: Context, connection: sqlite3.Connection) -> dict[str, Any]:
    """Start a master transaction."""
    parameters = context.parameters
    return {
        "transaction_id": master_transactions.start(
            connection,
            parent_id=arguments.identifier(parameters, "transaction_id"),
            timeout_ms=arguments.integer(parameters, "timeout", None),
            max_timeout_ms=_longest(context),
            deadline=arguments.moment(parameters, "deadline"),
            depends_on=prerequisites.check(connection, parameters),
            attributes=arguments.mapping(parameters.get("attributes") or {}, "attributes"),
            owner=context.user,
        )
    }


def ping(context: Context) -> dict[str, Any]:
    """Renew the lease of a master transaction; a null id is fine."""
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    ancestors = arguments.flag(context.parameters, "ping_ancestor_transactions")
    if transaction_id is not None:
        with context.proxy.store.write() as connection:
            master_transactions.ping(connection, transaction_id, ancestors=ancestors)
    return {}


def commit(context: Context) -> dict[str, Any]:
    """Commit a master transaction; one whose prerequisites do not hold is aborted."""
    try:
        answer: dict[str, Any] = _commit(context)
    except YtError as error:
        if error.contains(Code.PREREQUISITE_CHECK_FAILED):
            with context.proxy.store.write() as connection:
                master_transactions.abort(connection, _required(context))
        raise
    return answer


@once
def _commit(context: Context, connection: sqlite3.Connection) -> dict[str, Any]:
    transaction_id = _required(context)
    prerequisites.check(connection, context.parameters)
    master_transactions.commit(connection, transaction_id)
    timestamp = yson.YsonUint64(next_timestamp(connection))
    return {"primary_commit_timestamp": timestamp, "commit_timestamps": {str(CELL_TAG): timestamp}}


@once
def abort(context: Context, connection: sqlite3.Connection) -> None:
    """Abort a master transaction."""
    master_transactions.abort(connection, _required(context))


def set_timeout(
    context: Context, connection: sqlite3.Connection, transaction_id: str, value: Any
) -> None:
    """Change the lease of a master transaction, as far as the longest one."""
    timeout = arguments.integer({"timeout": value}, "timeout")
    if timeout <= 0:
        raise YtError('Error setting builtin attribute "timeout": it must be positive')
    master_transactions.set_timeout(connection, transaction_id, min(timeout, _longest(context)))


def _longest(context: Context) -> int:
    """Return the longest lease in milliseconds."""
    seconds: float = context.proxy.settings.feature("max_master_transaction_timeout_seconds")
    return int(seconds * 1000)


def _required(context: Context) -> str:
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if transaction_id is None:
        raise YtError("Transaction is required")
    return transaction_id
