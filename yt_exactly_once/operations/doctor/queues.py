"""The queues that a query reads, and its consumers: registered, vital, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from yt_exactly_once import advice
from yt_exactly_once.errors import TableError
from yt_exactly_once.operations.doctor.finding import (
    Finding,
    counted,
    ok,
    problem,
    refused,
    warning,
)
from yt_exactly_once.operations.doctor.queries import repair_commands
from yt_exactly_once.operations.doctor.tables import expiring
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of, registration
from yt_exactly_once.ytsaurus.queues import RemoteQueue, require_consumer
from yt_exactly_once.ytsaurus.tables import TableInfo, describe_table

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection

_WHY = "The query stops at its start"


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Look at each queue and its consumer."""
    commands = repair_commands(subject, connection)
    for queue in subject.queues:
        try:
            info = RemoteQueue(connection, queue.path).require_readable()
        except TableError as error:
            yield refused("queue", error, _WHY)
            continue
        yield ok("queue", f"The queue {queue.path} has {counted(info.tablet_count, 'partition')}")
        seconds = expiring(connection, queue.path)
        if seconds is not None:
            yield warning(
                "retention",
                f"Rows of {queue.path} are removed after {seconds:g} s (max_data_ttl), read or not",
                "A query that is stopped for longer loses rows: it ends with DataLossError",
                f"yt remove {queue.path}/@max_data_ttl, and let auto_trim_config remove rows that were read",
            )
        if queue.consumer is None:
            yield warning(
                "consumer",
                f"The queue {queue.path} is read without a consumer",
                "Nobody sees how far the query is, and the queue cannot wait for it with trimming",
                advice.new_consumer(queue.path),
            )
            continue
        command = commands.get((queue.path, queue.consumer), "")
        yield from _consumer(connection, info, queue.consumer, command)


def _consumer(
    connection: Connection, queue: TableInfo, path: str, command: str
) -> Iterator[Finding]:
    if attributes_of(connection, path, []) is None:
        # A consumer that is only created again is at row 0, where no query left it.
        what = f"There is nothing at the consumer {path}"
        yield problem("consumer", what, _WHY, command or advice.create_consumer(path, queue.path))
        return
    try:
        require_consumer(connection, path, queue.path)
        describe_table(connection, path).require_mounted()
    except TableError as error:
        why = f"{_WHY}. A vital consumer that cannot be read also stops the trimming of the queue"
        yield refused("consumer", error, why)
        return
    yield _registration(connection, queue.path, path)
    if not command:
        yield from _offsets(connection, queue, path)


def _registration(connection: Connection, queue: str, consumer: str) -> Finding:
    known = registration(connection, queue, consumer)
    register = advice.register(queue, consumer)
    if known is None:
        return problem(
            "registration",
            f"The consumer {consumer} is not registered for {queue}",
            "The cluster refuses its reads",
            f"{register}. Proxies know it after some seconds",
        )
    found = attributes_of(connection, queue, ["auto_trim_config"]) or {}
    trims = bool((found.get("auto_trim_config") or {}).get("enable"))
    if not known["vital"]:
        what = f"The consumer {consumer} of {queue} is not vital"
        if trims:
            return problem(
                "registration",
                f"{what}, and the queue is trimmed automatically",
                "The queue does not wait for this consumer: it may trim rows that the query has not read",
                register,
            )
        return warning(
            "registration",
            what,
            "If automatic trimming is switched on, the queue does not wait for this consumer",
            register,
        )
    trimmed = ", and read rows are trimmed" if trims else ", and nothing is trimmed automatically"
    return ok("registration", f"The consumer {consumer} is registered as vital{trimmed}")


def _offsets(connection: Connection, info: TableInfo, consumer: str) -> Iterator[Finding]:
    queue = info.path
    remote = RemoteQueue(connection, queue, consumer).resolved()
    bounds = remote.state(info.tablet_count).partitions
    stored = remote.stored_offsets(cluster_of(connection).name, range(len(bounds)))
    lost = {n: b.lower for n, b in enumerate(bounds) if stored.get(n, 0) < b.lower and n in stored}
    beyond = {n: b.upper for n, b in enumerate(bounds) if stored.get(n, 0) > b.upper}
    for partition, lower in lost.items():
        yield problem(
            "offset",
            f"The consumer {consumer} is at row {stored[partition]} of partition {partition} of {queue}, and "
            f"rows before {lower} are trimmed",
            "Those rows are gone. A query that has not read them stops with DataLossError",
            "To continue without them, set fail_on_data_loss to false. Ask who trims the queue",
        )
    for partition, upper in beyond.items():
        yield problem(
            "offset",
            f"The consumer {consumer} is at row {stored[partition]} of partition {partition} of {queue}, "
            f"which ends at {upper}",
            "The queue was recreated, or somebody moved the consumer. A new query would skip rows",
            "Name the target of the query with --target: its ledger knows where the consumer belongs. "
            + advice.back_into_the_queue(
                consumer, queue, partition, upper - bounds[partition].lower
            ),
        )
    if not lost and not beyond:
        behind = sum(b.upper - max(stored.get(n, 0), b.lower) for n, b in enumerate(bounds))
        yield ok("offset", f"The consumer {consumer} has {behind} rows of {queue} to read")
