"""The queues that a query reads, and its consumers: registered, vital, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from yt_exactly_once import advice
from yt_exactly_once.operations.doctor.finding import Finding, counted, ok, problem, warning
from yt_exactly_once.operations.doctor.queries import repair_commands
from yt_exactly_once.operations.doctor.tables import ATTRIBUTES, is_expiring
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of, registration
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import columns_of

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Queue, Subject
    from yt_exactly_once.ytsaurus.client import Connection

_READABLE = frozenset({"mounted", "frozen", "freezing", "unfreezing"})


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Look at each queue and its consumer."""
    commands = repair_commands(subject, connection)
    for queue in subject.queues:
        found = attributes_of(connection, queue.path, (*ATTRIBUTES, "auto_trim_config"))
        fault = _unreadable(queue.path, found)
        if fault is not None:
            yield fault
        if fault is not None or found is None:
            continue
        yield ok(
            "queue", f"The queue {queue.path} has {counted(found['tablet_count'], 'partition')}"
        )
        yield from _retention(queue.path, found)
        if queue.consumer is None:
            yield warning(
                "consumer",
                f"The queue {queue.path} is read without a consumer",
                "Nobody sees how far the query is, and the queue cannot wait for it with trimming",
                advice.new_consumer(queue.path),
            )
            continue
        command = commands.get((queue.path, queue.consumer), "")
        yield from _consumer(connection, queue, found, command)


def _unreadable(path: str, found: dict[str, Any] | None) -> Finding | None:
    why = "The query stops at its start"
    if found is None:
        return problem("queue", f"There is nothing at the queue {path}", why, "Check the path")
    if found["type"] != "table" or not found.get("dynamic") or found.get("sorted"):
        kind = "sorted table" if found.get("sorted") else str(found["type"])
        why, repair = (
            "A queue is an ordered dynamic table",
            "Pass the path of an ordered dynamic table",
        )
        return problem("queue", f"{path} is a {kind}, not a queue", why, repair)
    if found["tablet_state"] in _READABLE:
        return None
    state = found["tablet_state"]
    return problem("queue", f"The queue {path} is {state}", why, advice.mount(path, state))


def _retention(path: str, found: dict[str, Any]) -> Iterator[Finding]:
    if is_expiring(found):
        seconds = int(found["max_data_ttl"]) / 1000
        yield warning(
            "retention",
            f"Rows of {path} are removed after {seconds:g} s (max_data_ttl), read or not",
            "A query that is stopped for longer loses rows: it ends with DataLossError",
            f"yt remove {path}/@max_data_ttl, and let auto_trim_config remove rows that were read",
        )


def _consumer(
    connection: Connection, queue: Queue, found: dict[str, Any], command: str
) -> Iterator[Finding]:
    assert queue.consumer is not None
    path = queue.consumer
    consumer = attributes_of(connection, path, (*ATTRIBUTES, "treat_as_queue_consumer"))
    why = "The query stops at its start"
    if consumer is None:
        # A consumer that is only created again is at row 0, where no query left it.
        what = f"There is nothing at the consumer {path}"
        yield problem("consumer", what, why, command or advice.create_consumer(path, queue.path))
        return
    if not consumer.get("treat_as_queue_consumer"):
        what = f"{path} is not a queue consumer"
        repair = advice.not_a_consumer(path, queue.path, columns_of(consumer))
        yield problem("consumer", what, why, repair)
        return
    if consumer["tablet_state"] != "mounted":
        yield problem(
            "consumer",
            f"The consumer {path} is {consumer['tablet_state']}",
            f"{why}, and a vital consumer that cannot be read stops the trimming of the queue",
            advice.mount(path, consumer["tablet_state"]),
        )
        return
    yield _registration(connection, queue.path, path, found)
    if not command:
        yield from _offsets(connection, queue.path, path, int(found["tablet_count"]))


def _registration(
    connection: Connection, queue: str, consumer: str, found: dict[str, Any]
) -> Finding:
    known = registration(connection, queue, consumer)
    register = advice.register(queue, consumer)
    if known is None:
        return problem(
            "registration",
            f"The consumer {consumer} is not registered for {queue}",
            "The cluster refuses its reads",
            f"{register}. Proxies know it after some seconds",
        )
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


def _offsets(
    connection: Connection, queue: str, consumer: str, partitions: int
) -> Iterator[Finding]:
    remote = RemoteQueue(connection, queue, consumer).resolved()
    bounds = remote.state().partitions
    stored = remote.stored_offsets(cluster_of(connection).name, range(partitions))
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
