"""Methods of queues, consumers and producers."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method, plain
from yt_exactly_once.local.rpc.methods.rows import answer_rows, read_rowset


@method("PullQueue", "pull_queue")
@method("PullQueueConsumer", "pull_queue_consumer")
@method("PullConsumer", "pull_consumer", messages="PullQueueConsumer")
def pull(call: Call) -> None:
    """Read committed rows of a partition."""
    answer_rows(call, call.execute(), call.response.rowset_descriptor)
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
    found = options.parameters(request)
    if "transaction_id" not in found:
        raise YtError('Missing required field "transaction_id"')
    return found


@method("PushQueueProducer", "push_queue_producer", _push)
def push_queue_producer(call: Call) -> None:
    """Append rows through a session, skipping what it has seen."""
    read_rowset(call)
    options.fill(call.response, call.execute())
