"""Methods that read rows of dynamic tables: look-ups, queries and pulls; and those of queues."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.registry import Rows
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method, plain
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas
from yt_exactly_once.local.tables.vectors import StoredRows


def _read_rowset(call: Call) -> None:
    """Let the command read its rows from the attachments."""
    names = schemas.names(call.request.rowset_descriptor)
    rowset = call.rowset
    call.context.read_rows = lambda _schema=None: rowsets.decode(rowset, names).rows


def _lookup(request: Any) -> dict[str, Any]:
    found = options.parameters(request, columns="column_names")
    return found | {"column_names": found["column_names"] or None}


@method("LookupRows", "lookup_rows", _lookup)
def lookup_rows(call: Call) -> None:
    """Read rows by key."""
    _read_rowset(call)
    _answer_rows(call)


@method(
    "VersionedLookupRows", "lookup_rows", lambda request: _lookup(request) | {"versioned": True}
)
def versioned_lookup_rows(call: Call) -> None:
    """Read all versions of rows by key."""
    _read_rowset(call)
    result: Rows = call.execute()
    described = schemas.descriptor(result.columns, versioned=True)
    call.response.rowset_descriptor.CopyFrom(described)
    call.output = [rowset_writer.encode_versioned(list(result.rows), result.columns)]


def _query(request: Any) -> dict[str, Any]:
    return options.parameters(request) | {"enable_statistics": True}


@method("SelectRows", "select_rows", _query)
def select_rows(call: Call) -> None:
    """Run a query."""
    _answer_rows(call)
    options.fill(call.response.statistics, call.context.response_parameters)


def _answer_rows(call: Call) -> None:
    """Run the command, and put the rows of its answer into the attachments."""
    result: Rows = call.execute()
    call.response.rowset_descriptor.CopyFrom(schemas.descriptor(result.columns))
    rows = result.rows if isinstance(result.rows, StoredRows) else list(result.rows)
    call.output = [rowset_writer.encode(rows, result.columns)]


@method("PullQueue", "pull_queue")
@method("PullQueueConsumer", "pull_queue_consumer")
@method("PullConsumer", "pull_consumer", messages="PullQueueConsumer")
def pull(call: Call) -> None:
    """Read committed rows of a partition."""
    _answer_rows(call)
    call.response.start_offset = call.context.response_parameters["start_offset"]


plain("AdvanceQueueConsumer", "advance_queue_consumer")
plain("AdvanceConsumer", "advance_consumer", messages="AdvanceQueueConsumer")
plain("RegisterQueueConsumer", "register_queue_consumer")
plain("UnregisterQueueConsumer", "unregister_queue_consumer")
plain(
    "ListQueueConsumerRegistrations",
    "list_queue_consumer_registrations",
    answer=lambda found: {"registrations": found},
)
plain("CreateQueueProducerSession", "create_queue_producer_session")
plain("RemoveQueueProducerSession", "remove_queue_producer_session")


def _push(request: Any) -> dict[str, Any]:
    return options.parameters(request) | {"transaction_id": options.transaction_of(request)}


@method("PushQueueProducer", "push_queue_producer", _push)
def push_queue_producer(call: Call) -> None:
    """Append rows through a session, skipping what it has seen."""
    _read_rowset(call)
    options.fill(call.response, call.execute())
