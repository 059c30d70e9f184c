"""Start, ping, commit and abort: master transactions go to the tree, the others to the sticky pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yt.yson import YsonUint64

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import master_transactions
from yt_exactly_once.local.commands.registry import command
from yt_exactly_once.local.commands.sessions import atomicity_of
from yt_exactly_once.local.cypress import prerequisites
from yt_exactly_once.local.cypress.ids import CELL_TAG, TYPES, is_id, type_number
from yt_exactly_once.local.cypress.master_transactions import is_master
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tablets.transactions import DEFAULT_TIMEOUT_SECONDS, TransactionPool

if TYPE_CHECKING:
    from yt_exactly_once.local.commands.registry import Context
    from yt_exactly_once.local.tablets.transactions import TabletTransaction

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
        _check_master_options(context.parameters)
        return master_transactions.start(context)
    if kind != "tablet":
        raise YtError(f'Error parsing parameter "type": "{kind}" is not one of master, tablet')
    return {"transaction_id": start_tablet_transaction(context).id}


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

    def ping(pool: TransactionPool, transaction_id: str) -> dict[str, Any]:
        pool.get(transaction_id)
        return {}

    return _dispatch(context, ping, master_transactions.ping)


@command("commit_transaction", volatile=True)
def commit_transaction(context: Context) -> Any:
    """Commit a transaction; a tablet transaction is gone afterwards whatever happens."""

    def commit(pool: TransactionPool, transaction_id: str) -> dict[str, Any]:
        wanted = prerequisites.transactions(context.parameters)
        timestamp = YsonUint64(pool.commit(transaction_id, wanted))
        return {
            "primary_commit_timestamp": timestamp,
            "commit_timestamps": {str(CELL_TAG): timestamp},
        }

    return _dispatch(context, commit, master_transactions.commit)


@command("abort_transaction", volatile=True)
def abort_transaction(context: Context) -> Any:
    """Abort a transaction; nothing is in the way that `force` would overcome."""
    arguments.flag(context.parameters, "force")

    def abort(pool: TransactionPool, transaction_id: str) -> dict[str, Any]:
        pool.abort(transaction_id)
        return {}

    return _dispatch(context, abort, master_transactions.abort)


def _dispatch(
    context: Context,
    sticky: Callable[[TransactionPool, str], dict[str, Any]],
    master: Callable[[Context], dict[str, Any]],
) -> dict[str, Any]:
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if transaction_id is None or not is_id(transaction_id) or is_master(transaction_id):
        return master(context)
    return sticky(context.proxy.transactions, transaction_id.lower())


def _check_master_options(parameters: dict[str, Any]) -> None:
    if arguments.identifier(parameters, "transaction_id_override") is not None:
        raise YtError("Cannot use externally provided id for master transactions")
    for name, only in (("atomicity", "full"), ("durability", "sync")):
        if str(parameters.get(name) or only) != only:
            raise YtError(f'{name.capitalize()} must be "{only}" for master transactions')


def _check_tablet_options(parameters: dict[str, Any]) -> None:
    if arguments.flag(parameters, "suppress_start_timestamp_generation"):
        raise YtError("Cannot suppress start timestamp generation for tablet transaction")
    if parameters.get("coordinator_master_cell_tag") is not None:
        raise YtError("Cannot specify a master coordinator for tablet transaction")
    if parameters.get("replicate_to_master_cell_tags"):
        raise YtError("Cannot request replication to master cells for tablet transaction")
    if arguments.identifier(parameters, "transaction_id") is not None:
        raise YtError("Tablet transaction cannot have a parent")
    if prerequisites.transactions(parameters):
        raise YtError("Tablet transaction cannot have prerequisites")
    if parameters.get("start_timestamp_override"):
        raise YtError(
            '"start_timestamp_override" is not supported by the embedded cluster; '
            "start the transaction without it"
        )
