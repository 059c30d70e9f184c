"""Queues, consumers and producers as commands."""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.registry import Context, Rows, command
from yt_exactly_once.local.commands.sessions import conversions_of, opened, table_of, transaction_of
from yt_exactly_once.local.cypress import permissions
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.queues import consumers, producers
from yt_exactly_once.local.queues.places import Place, locate
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import validation
from yt_exactly_once.local.tablets.appends import apply_due

DEFAULT_MAX_ROW_COUNT = 1000
DEFAULT_MAX_DATA_WEIGHT = 16 << 20
MAX_ANSWER_DATA_WEIGHT = 16 << 20
"""However much a client asks for (`max_pull_queue_response_data_weight` of tablet nodes)."""
_PATHS = ("queue_path", "consumer_path")
_LAG = "registration_lag_seconds"


@command("register_queue_consumer", volatile=True)
def register_queue_consumer(context: Context) -> dict[str, Any]:
    """Register a consumer; again is fine."""
    parameters = context.parameters
    if parameters.get("vital") is None:
        raise YtError('Missing required parameter "vital"')
    vital = arguments.flag(parameters, "vital")
    given = parameters.get("partitions")
    partitions = None if given is None else arguments.integers(given, "partitions")
    with context.proxy.store.write() as connection:
        queue, consumer = _places(context, connection, must_exist=True)
        if queue.node_id is not None:
            view = View(connection, user=context.user)
            permissions.require(view, queue.node_id, context.command, vital=vital, by_proxy=True)
        consumers.register(connection, queue, consumer, vital=vital, partitions=partitions)
    return {}


@command("unregister_queue_consumer", volatile=True)
def unregister_queue_consumer(context: Context) -> dict[str, Any]:
    """Drop a registration, even of objects that are gone."""
    with context.proxy.store.write() as connection:
        queue, consumer = _places(context, connection)
        # Anybody may clean up after what is gone.
        if queue.node_id is not None and consumer.node_id is not None:
            view = View(connection, user=context.user)
            if not permissions.may(view, queue.node_id, "remove"):
                permissions.require(view, consumer.node_id, "remove", by_proxy=True)
        consumers.unregister(connection, queue, consumer)
    return {}


@command("list_queue_consumer_registrations")
def list_queue_consumer_registrations(context: Context) -> list[dict[str, Any]]:
    """List registrations, of a queue, of a consumer, or all."""
    named = any(context.parameters.get(name) is not None for name in _PATHS)
    if not named and not context.proxy.features["list_all_registrations"]:
        raise YtError(
            "Listing all registrations is disabled by current cluster configuration and will be disabled"
            " entirely in the near future"
        )
    with context.proxy.store.read() as connection:
        queue, consumer = (
            None
            if context.parameters.get(name) is None
            else locate(connection, context.parameters[name], name)
            for name in _PATHS
        )
        lag = context.proxy.features[_LAG]
        found = consumers.registrations(connection, queue, consumer, lag_seconds=lag)
    return [
        {
            "queue_path": _rich(item.queue),
            "consumer_path": _rich(item.consumer),
            "vital": item.vital,
            "partitions": item.partitions,
        }
        for item in found
    ]


@command("pull_consumer", output_type="tabular", heavy=True)
@command("pull_queue", output_type="tabular", heavy=True)
@command("pull_queue_consumer", output_type="tabular", heavy=True)
def pull(context: Context) -> Rows:
    """Read committed rows of a partition, for a registered consumer or for anybody.

    A transaction has no part in it.
    """
    parameters = context.parameters
    offset = arguments.integer(parameters, "offset", None)
    apply_due(context.proxy.store)
    with context.proxy.store.read() as connection:
        if context.command == "pull_queue":
            offset = arguments.integer(parameters, "offset")
            queue = opened(context, connection, "queue_path", "read")
        else:
            place = _check_registered(context, connection)
            partition = _partition(context, connection, place, "read")
            queue = opened(context, connection, "queue_path")
            if offset is None:
                offset, _ = consumers.read_offset(connection, partition)
        weight = arguments.integer(parameters, "max_data_weight", DEFAULT_MAX_DATA_WEIGHT)
        rows = consumers.pull(
            connection,
            queue,
            arguments.integer(parameters, "partition_index"),
            offset,
            max_rows=arguments.integer(parameters, "max_row_count", DEFAULT_MAX_ROW_COUNT),
            max_weight=min(weight, MAX_ANSWER_DATA_WEIGHT),
        )
    context.response_parameters["start_offset"] = rows[0]["$row_index"] if rows else offset
    return Rows(rows, rows.columns)


@command("advance_consumer", volatile=True)
@command("advance_queue_consumer", volatile=True)
def advance_queue_consumer(context: Context) -> dict[str, Any]:
    """Move the offset of a partition, checked against the start of the transaction."""
    parameters = context.parameters
    old_offset = arguments.integer(parameters, "old_offset", None)
    new_offset = arguments.integer(parameters, "new_offset")
    client_side = arguments.flag(parameters, "client_side")
    meta = None
    if new_offset < 0:
        raise YtError(f"Queue consumer offset {new_offset} cannot be negative")
    apply_due(context.proxy.store)
    with context.proxy.store.read() as connection:
        if client_side:
            partition = _partition(context, connection, _places(context, connection)[0])
        else:
            try:
                queue = opened(context, connection, "queue_path")
            except YtError as error:
                raise YtError("Failed to resolve queue path", inner=[error]) from error
            place = _check_registered(context, connection)
            partition = _partition(context, connection, place, "read")
            meta = consumers.consumer_meta(connection, queue, partition.index, new_offset)
    with transaction_of(context) as transaction:
        consumers.advance(transaction, partition, old_offset, new_offset, meta)
    return {}


@command("create_queue_producer_session", volatile=True)
def create_queue_producer_session(context: Context) -> dict[str, Any]:
    """Start a session or raise its epoch, at once and outside of any transaction."""
    session, parameters = _session(context), context.parameters
    mutation_id = arguments.identifier(parameters, "mutation_id")
    if not context.proxy.features["producer_session_mutation_dedup"]:
        mutation_id = None
    with context.proxy.transactions.own(user=context.user) as transaction:
        return producers.create_session(
            transaction, session, user_meta=parameters.get("user_meta"), mutation_id=mutation_id
        )


@command("remove_queue_producer_session", volatile=True)
def remove_queue_producer_session(context: Context) -> dict[str, Any]:
    """Forget a session, at once and outside of any transaction."""
    session = _session(context)
    with context.proxy.transactions.own(user=context.user) as transaction:
        producers.remove_session(transaction, session)
    return {}


@command("push_queue_producer", input_type="tabular", volatile=True)
def push_queue_producer(context: Context) -> dict[str, Any]:
    """Append rows through a session, skipping what it has seen."""
    parameters = context.parameters
    queue = _valid(context, "queue_path", "queue")
    if queue.sorted:
        raise YtError(f"Table {queue.path} is not ordered")
    epoch = arguments.integer(parameters, "epoch")
    rows = context.read_rows(validation.input_schema(queue))
    session = _session(context)
    with transaction_of(context) as transaction:
        return producers.push(
            transaction,
            session,
            queue,
            rows,
            epoch=epoch,
            sequence_number=arguments.integer(parameters, "sequence_number", None),
            user_meta=parameters.get("user_meta"),
            conversions=conversions_of(context),
            regress=context.proxy.features["producer_regress_on_skipped"],
        )


def _places(
    context: Context, connection: Connection, *, must_exist: bool = False
) -> tuple[Place, Place]:
    queue, consumer = (
        locate(connection, context.parameters.get(name), name, must_exist=must_exist)
        for name in _PATHS
    )
    return queue, consumer


def _partition(
    context: Context, connection: Connection, queue: Place, permission: str | None = None
) -> consumers.Partition:
    index = arguments.integer(context.parameters, "partition_index")
    consumer = opened(context, connection, "consumer_path", permission)
    return consumers.Partition(consumer, queue, index)


def _check_registered(context: Context, connection: Connection) -> Place:
    """Return the place of a queue that the consumer is registered for."""
    queue, consumer = _places(context, connection, must_exist=True)
    lag = context.proxy.features[_LAG]
    consumers.check_registered(connection, queue, consumer, lag)
    return queue


def _valid(context: Context, parameter: str, role: str) -> TableLayout:
    try:
        return table_of(context, parameter)
    except YtError as error:
        path = context.parameters.get(parameter)
        raise YtError(f"Path {path} does not point to a valid {role}", inner=[error]) from error


def _session(context: Context) -> producers.Session:
    producer = _valid(context, "producer_path", "producer")
    with context.proxy.store.read() as connection:
        queue = locate(connection, context.parameters.get("queue_path"), "queue_path")
    session_id = arguments.text(context.parameters.get("session_id"), "session_id")
    return producers.Session(producer, queue, session_id)


def _rich(place: Place) -> Any:
    return yson.to_yson_type(place.path, {"cluster": place.cluster})
