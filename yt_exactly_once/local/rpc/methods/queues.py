"""Methods of queues, consumers and producers."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.rpc import identifiers, options, paths
from yt_exactly_once.local.rpc.calls import Call, method, only_execute
from yt_exactly_once.local.rpc.methods.rows import answer_rows
from yt_exactly_once.local.rpc.rows import rowsets, schemas

_PATHS = ("queue_path", "consumer_path", "producer_path")


def _places(request: Any, *fields: str) -> dict[str, Any]:
    """Return the paths of a request, its transaction, and the scalar fields that are set."""
    known = request.DESCRIPTOR.fields_by_name
    found = {
        name: paths.load(getattr(request, name), name)
        for name in _PATHS
        if name in known and request.HasField(name)
    }
    found |= options.scalars(request, fields)
    if "transaction_id" in known:
        transaction_id = identifiers.given(request, "transaction_id")
        if transaction_id is not None:
            found["transaction_id"] = transaction_id
    return found


def _pull(request: Any) -> dict[str, Any]:
    parameters = _places(request, "offset", "partition_index")
    limits = request.row_batch_read_options
    return parameters | options.scalars(limits, ("max_row_count", "max_data_weight"))


@method("PullQueue", "pull_queue", _pull)
@method("PullQueueConsumer", "pull_queue_consumer", _pull)
@method("PullConsumer", "pull_consumer", _pull, messages="PullQueueConsumer")
def pull(call: Call) -> None:
    """Read committed rows of a partition."""
    answer_rows(call, call.execute(), call.response.rowset_descriptor)
    call.response.start_offset = call.context.response_parameters["start_offset"]


def _advance(request: Any) -> dict[str, Any]:
    return _places(request, "partition_index", "old_offset", "new_offset")


method("AdvanceQueueConsumer", "advance_queue_consumer", _advance)(only_execute)
method("AdvanceConsumer", "advance_consumer", _advance, messages="AdvanceQueueConsumer")(
    only_execute
)


def _registration(request: Any) -> dict[str, Any]:
    parameters = _places(request, "vital")
    if request.HasField("partitions"):
        parameters["partitions"] = list(request.partitions.items)
    return parameters


method("RegisterQueueConsumer", "register_queue_consumer", _registration)(only_execute)
method("UnregisterQueueConsumer", "unregister_queue_consumer", _places)(only_execute)


@method("ListQueueConsumerRegistrations", "list_queue_consumer_registrations", _places)
def list_queue_consumer_registrations(call: Call) -> None:
    """List registrations."""
    for item in call.execute():
        target = call.response.registrations.add()
        target.queue_path = paths.dump(item["queue_path"])
        target.consumer_path = paths.dump(item["consumer_path"])
        target.vital = item["vital"]
        if item["partitions"] is not None:
            target.partitions.items.extend(item["partitions"])
            target.partitions.SetInParent()


def _session(request: Any) -> dict[str, Any]:
    parameters = _places(request, "session_id")
    known = request.DESCRIPTOR.fields_by_name
    if "user_meta" in known and request.HasField("user_meta"):
        parameters["user_meta"] = load_yson(request.user_meta, "user_meta")
    return parameters


@method("CreateQueueProducerSession", "create_queue_producer_session", _session)
def create_queue_producer_session(call: Call) -> None:
    """Start a session or raise its epoch."""
    answer = call.execute()
    call.response.sequence_number = answer["sequence_number"]
    call.response.epoch = answer["epoch"]
    if answer.get("user_meta") is not None:
        call.response.user_meta = dump_yson(answer["user_meta"])


method("RemoveQueueProducerSession", "remove_queue_producer_session", _session)(only_execute)


def _push(request: Any) -> dict[str, Any]:
    parameters = _session(request) | options.scalars(request, ("epoch", "sequence_number"))
    if "transaction_id" not in parameters:
        raise YtError('Missing required field "transaction_id"')
    return parameters


@method("PushQueueProducer", "push_queue_producer", _push)
def push_queue_producer(call: Call) -> None:
    """Append rows through a session, skipping what it has seen."""
    names = schemas.names(call.request.rowset_descriptor)
    rowset = call.rowset
    call.context.read_rows = lambda _schema=None: rowsets.decode(rowset, names).rows
    answer = call.execute()
    call.response.last_sequence_number = answer["last_sequence_number"]
    call.response.skipped_row_count = answer["skipped_row_count"]
