"""Methods of transactions."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.transactions import start_tablet_transaction
from yt_exactly_once.local.cypress import master_transactions
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method, plain
from yt_exactly_once.local.store import last_timestamp

_MASTER, _TABLET = 0, 1
_TYPE_NAMES = {_MASTER: "master", _TABLET: "tablet"}
_MICROSECONDS = 1_000_000


def _starting(request: Any) -> dict[str, Any]:
    if request.type not in _TYPE_NAMES:
        raise YtError(f"Unknown transaction type {request.type}")
    if request.type == _TABLET and not request.sticky:
        raise YtError("Tablet transactions must be sticky")
    found = options.parameters(
        request,
        id="transaction_id_override",
        parent_id="transaction_id",
        start_timestamp="start_timestamp_override",
    )
    return found | {"type": _TYPE_NAMES[request.type]}


@method("StartTransaction", "start_transaction", _starting)
def start_transaction(call: Call) -> None:
    """Start a transaction; a tablet transaction reads at its start timestamp."""
    if call.request.type == _TABLET:
        transaction = start_tablet_transaction(call.context)
        call.response.start_timestamp = transaction.start_timestamp or 0
        call.response.sequence_number_source_id = call.sequences.new_source(transaction)
        started = transaction.id
    else:
        started = call.execute()["transaction_id"]
        call.response.start_timestamp = _now(call)
    options.fill(call.response, {"id": started})


plain("PingTransaction", "ping_transaction")


@method("AbortTransaction", "abort_transaction")
def abort_transaction(call: Call) -> None:
    """Abort a transaction; the C++ client does that whenever a commit has no answer."""
    transaction_id = call.context.parameters["transaction_id"]
    if transaction_id in call.sequences.committing:
        raise YtError(
            f'Cannot abort since transaction {transaction_id} is in "committing" state',
            Code.INVALID_TRANSACTION_STATE,
        )
    call.execute()


@method("CommitTransaction", "commit_transaction")
def commit_transaction(call: Call) -> None:
    """Commit a transaction; modifications with a gap before them are refused."""
    transaction_id = call.context.parameters["transaction_id"]
    if not master_transactions.is_master(transaction_id):
        call.sequences.check_complete(call.context.proxy.transactions.get(transaction_id))
    answer = call.execute()
    by_cell = answer["commit_timestamps"]
    split = {"cell_tags": by_cell.keys(), "timestamps": by_cell.values()}
    options.fill(call.response, {**answer, "commit_timestamps": split})


@method("AttachTransaction", "ping_transaction")
def attach_transaction(call: Call) -> None:
    """Let another client take part in a transaction; its lease is renewed."""
    transaction_id = call.context.parameters["transaction_id"]
    call.execute()
    response = call.response
    response.durability = 0
    if master_transactions.is_master(transaction_id):
        response.type, response.atomicity = _MASTER, 0
        response.start_timestamp, response.timeout = _now(call), _lease(call, transaction_id)
        return
    transaction = call.context.proxy.transactions.get(transaction_id)
    response.type = _TABLET
    response.atomicity = int(transaction.atomicity == "none")
    response.start_timestamp = transaction.start_timestamp or 0
    response.timeout = int(transaction.timeout * _MICROSECONDS)
    response.sequence_number_source_id = call.sequences.new_source(transaction)


@method("DetachTransaction", "ping_transaction")
def detach_transaction(_call: Call) -> None:
    """End the part of a client that had attached itself; the transaction lives on by itself."""


@method("GenerateTimestamps", "generate_timestamp")
def generate_timestamps(call: Call) -> None:
    """Take timestamps; the first one is returned."""
    if call.request.count < 1:
        raise YtError("Number of timestamps must be positive")
    taken = [call.execute()["timestamp"] for _ in range(min(call.request.count, 1000))]
    call.response.timestamp = taken[0]


def _lease(call: Call, transaction_id: str) -> int:
    with call.context.proxy.store.read() as connection:
        described = master_transactions.describe(connection, transaction_id)
    if described is None:
        raise master_transactions.no_such(transaction_id)
    return int(described["timeout"]) * 1000


def _now(call: Call) -> int:
    with call.context.proxy.store.read() as connection:
        return last_timestamp(connection)
