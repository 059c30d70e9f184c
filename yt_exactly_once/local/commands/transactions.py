"""Start, ping, commit and abort: master transactions go to the tree, the others to the sticky pool."""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.commands.sessions import atomicity_of, once
from yt_exactly_once.local.cypress import master_transactions
from yt_exactly_once.local.cypress.ids import CELL_TAG, TYPES, is_id, type_number
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import next_timestamp
from yt_exactly_once.local.tablets.transactions import DEFAULT_TIMEOUT_SECONDS, TabletTransaction

_MILLISECOND = 1000


@command(
    "start_transaction",
    volatile=True,
    partial="tablet transactions take no start_timestamp_override",
)
def start_transaction(context: Context) -> Any:
    """Start a transaction of type `master` (default) or `tablet`."""
    kind = str(context.parameters.get("type") or "master")
    if kind == "master":
        return _start_master(context)
    if kind != "tablet":
        raise YtError(f'Error parsing parameter "type": "{kind}" is not one of master, tablet')
    return {"transaction_id": start_tablet_transaction(context).id}


@once
def _start_master(context: Context, connection: Connection) -> dict[str, Any]:
    parameters = context.parameters
    if arguments.identifier(parameters, "transaction_id_override") is not None:
        raise YtError("Cannot use externally provided id for master transactions")
    for name, only in (("atomicity", "full"), ("durability", "sync")):
        if str(parameters.get(name) or only) != only:
            raise YtError(f'{name.capitalize()} must be "{only}" for master transactions')
    return {
        "transaction_id": master_transactions.start(
            connection,
            parent_id=arguments.identifier(parameters, "transaction_id"),
            timeout_ms=arguments.integer(parameters, "timeout", None),
            max_timeout_ms=_longest(context),
            deadline=arguments.moment(parameters, "deadline"),
            depends_on=master_transactions.check_prerequisites(connection, parameters),
            attributes=arguments.mapping(parameters.get("attributes") or {}, "attributes"),
            owner=context.user,
        )
    }


def start_tablet_transaction(context: Context) -> TabletTransaction:
    """Start a tablet transaction with the parameters of `start_transaction`."""
    parameters = context.parameters
    _check_tablet_options(parameters)
    timeout = arguments.integer(parameters, "timeout", None)
    override = arguments.identifier(parameters, "transaction_id_override")
    wanted = TYPES["atomic_tablet_transaction"]
    if override is not None and (not is_id(override) or type_number(override) != wanted):
        raise YtError(f"Externally provided transaction id {override} has invalid type")
    return context.proxy.transactions.start(
        timeout=DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout / _MILLISECOND,
        atomicity=atomicity_of(context),
        transaction_id=override,
        user=context.user,
    )


@command("ping_transaction", volatile=True)
def ping_transaction(context: Context) -> Any:
    """Renew the lease of a transaction; a null id is fine."""
    sticky_id = _sticky_id(context)
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if sticky_id is not None:
        context.proxy.transactions.get(sticky_id)
    elif transaction_id is not None:
        ancestors = arguments.flag(context.parameters, "ping_ancestor_transactions")
        with context.proxy.store.write() as connection:
            master_transactions.ping(connection, transaction_id, ancestors=ancestors)
    return {}


@command("commit_transaction", volatile=True)
def commit_transaction(context: Context) -> Any:
    """Commit a transaction; a tablet transaction is gone afterwards whatever happens.

    So is a master transaction whose prerequisites do not hold.
    """
    sticky_id = _sticky_id(context)
    if sticky_id is not None:
        wanted = master_transactions.prerequisites(context.parameters)
        return _committed(context.proxy.transactions.commit(sticky_id, wanted))
    try:
        return _commit_master(context)
    except YtError as error:
        if error.contains(Code.PREREQUISITE_CHECK_FAILED):
            with context.proxy.store.write() as connection:
                master_transactions.abort(connection, _required(context))
        raise


@once
def _commit_master(context: Context, connection: Connection) -> dict[str, Any]:
    transaction_id = _required(context)
    master_transactions.check_prerequisites(connection, context.parameters)
    master_transactions.commit(connection, transaction_id)
    return _committed(next_timestamp(connection))


def _committed(at: int) -> dict[str, Any]:
    timestamp = YsonUint64(at)
    return {"primary_commit_timestamp": timestamp, "commit_timestamps": {str(CELL_TAG): timestamp}}


@command("abort_transaction", volatile=True)
def abort_transaction(context: Context) -> Any:
    """Abort a transaction; nothing is in the way that `force` would overcome."""
    arguments.flag(context.parameters, "force")
    sticky_id = _sticky_id(context)
    if sticky_id is None:
        return _abort_master(context)
    context.proxy.transactions.abort(sticky_id)
    return {}


@once
def _abort_master(context: Context, connection: Connection) -> None:
    master_transactions.abort(connection, _required(context))


def set_timeout(context: Context, connection: Connection, transaction_id: str, value: Any) -> None:
    """Change the lease of a master transaction, as far as the longest one."""
    timeout = arguments.integer({"timeout": value}, "timeout")
    if timeout <= 0:
        raise YtError('Error setting builtin attribute "timeout": it must be positive')
    master_transactions.set_timeout(connection, transaction_id, min(timeout, _longest(context)))


def _longest(context: Context) -> int:
    """Return the longest lease of a master transaction in milliseconds."""
    seconds: float = context.proxy.features["max_master_transaction_timeout_seconds"]
    return int(seconds * _MILLISECOND)


def _sticky_id(context: Context) -> str | None:
    """Return the id that a command names, if the sticky pool may know it; else masters have to answer."""
    given = arguments.identifier(context.parameters, "transaction_id")
    if given is None or not is_id(given) or master_transactions.is_master(given):
        return None
    return given.lower()


def _required(context: Context) -> str:
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if transaction_id is None:
        raise YtError("Transaction is required")
    return transaction_id


def _check_tablet_options(parameters: dict[str, Any]) -> None:
    if arguments.flag(parameters, "suppress_start_timestamp_generation"):
        raise YtError("Cannot suppress start timestamp generation for tablet transaction")
    if parameters.get("coordinator_master_cell_tag") is not None:
        raise YtError("Cannot specify a master coordinator for tablet transaction")
    if parameters.get("replicate_to_master_cell_tags"):
        raise YtError("Cannot request replication to master cells for tablet transaction")
    if arguments.identifier(parameters, "transaction_id") is not None:
        raise YtError("Tablet transaction cannot have a parent")
    if master_transactions.prerequisites(parameters):
        raise YtError("Tablet transaction cannot have prerequisites")
    if parameters.get("start_timestamp_override"):
        raise YtError(
            '"start_timestamp_override" is not supported by the embedded cluster; '
            "start the transaction without it"
        )
