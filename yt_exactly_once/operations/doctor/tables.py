"""The tables of a query: its targets and what the sink keeps, its queues and their consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from yt_exactly_once import advice
from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.codec.schema import (
    BOOLEAN,
    TEXT,
    TableSchema,
    check_frame,
    require_column,
    without,
)
from yt_exactly_once.commit.claims import CLAIMS_SCHEMA, KEPT
from yt_exactly_once.commit.ledger import EARLIER_LEDGER_SCHEMA, LEDGER_MARK, require_known_ledger
from yt_exactly_once.config import TOMBSTONE_TTL, DeliveryMode
from yt_exactly_once.errors import ConfigError, LedgerError, TableError
from yt_exactly_once.operations.doctor.subject import (
    Finding,
    Level,
    Queue,
    Subject,
    about,
    counted,
    note,
    ok,
    problem,
    refused,
    warning,
)
from yt_exactly_once.ytsaurus import tables
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of, registration
from yt_exactly_once.ytsaurus.queues import RemoteQueue, require_consumer
from yt_exactly_once.ytsaurus.tombstones import (
    require_same_tombstones,
    require_tombstones,
    tombstones_of,
    with_tablets_of_target,
)

if TYPE_CHECKING:
    from yt_exactly_once.operations.ledgers import Entries
    from yt_exactly_once.ytsaurus.client import Connection

_WHY = "Rows are written in tablet transactions, and only mounted dynamic tables take part in them"
_STOPS = "The query stops at its start"
_FORGETS = {
    "ledger": "A query without its entry stops with LedgerMissingError, or writes a batch again",
    "producer table": "Rows of a session that is gone are pushed again",
    "consumer": "A consumer without its rows is at row 0: the query stops, and a new one reads rows again",
    "table of tombstones": "A late change brings a key back that was deleted",
}
"""What happens once a table that must remember loses rows, by what it is."""


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Look at the targets, the ledger and the other tables of the sink."""
    for path in subject.targets:
        look = _target if PathPattern.of(path) is None else _tables
        yield from about("target", look(subject, connection, path), _WHY)
    why = "The sink needs a mounted dynamic table with columns of its own, and refuses any other"
    for name, path in subject.kept.items():
        yield from about(name, _kept(subject, connection, name, path), why)
    if subject.claims is not None:
        yield from about("table of claims", _claims(connection, subject.claims), why)
    for target in subject.changed:
        yield from about("table of tombstones", _tombstones(subject, connection, target), why)
    paths = {"ledger": subject.path_of("ledger"), "producer table": subject.path_of("producer")}
    for name, table in paths.items():
        if table is not None:
            yield from about("retention", _lasting(connection, name, table))


def _target(subject: Subject, connection: Connection, path: str) -> Iterator[Finding]:
    info = _mounted(connection, path)
    if info is None:
        yield problem(
            f"There is nothing at the target {path}",
            "The sink does not create its target, because it does not choose the schema",
            advice.create_table(path, marker=subject.delete_marker),
        )
        return
    kind = "sorted" if info.is_sorted else "ordered"
    tablets = counted(info.tablet_count, "tablet")
    yield ok(f"The target {path} is {kind}, mounted, with {tablets}")
    seconds = tables.expiring(connection, path)
    if seconds is not None:
        yield warning(
            f"Rows of {path} are removed after {seconds:g} s (max_data_ttl)",
            "Rows that the query has written are gone then, and audit counts them as lost",
            f"If that is not meant: {_keep(path)}",
            check="retention",
        )
    yield from about("columns", _columns_fit(subject, info), _STOPS)
    if subject.mode is DeliveryMode.TRANSACTIONAL:
        # In other modes each request of a task is a transaction.
        yield from about("batch size", [_room(subject, connection, info)])


def _tables(subject: Subject, connection: Connection, path: str) -> Iterator[Finding]:
    """Look at the tables that a query has written of a pattern; what is in order is said of all together."""
    pattern = PathPattern.of(path)
    tables_of_it = [one for one in subject.tables if pattern and pattern.covers(one)]
    alone = replace(subject, queues=())
    for table in tables_of_it:
        found = about("target", _target(alone, connection, table), _WHY)
        yield from (one for one in found if one.level not in {Level.OK, Level.NOTE})
    named = counted(len(tables_of_it), "table")
    yield note(
        f"The query has written {named} of {path}, and can continue with those that are not named here. "
        "Whether a row names another one is not known before its batch"
    )


def _columns_fit(subject: Subject, info: tables.TableInfo) -> Iterator[Finding]:
    """Compare the DataFrame's columns with the table's, as the sink does."""
    if subject.frame is None:
        yield note(
            f"The columns of {info.path} were not compared with those of the DataFrame",
            "The query stops at its start if they do not fit",
            "Pass --schema with what df.schema.json() returns, or call sink.check(df) in the program",
        )
        return
    table = TableSchema.from_yt(info.schema)
    operation = subject.changes.operation if subject.changes else None
    marker = subject.delete_marker
    try:
        if operation:
            require_column(subject.frame, "operation of changes", operation, info.path, TEXT)
        if marker:
            require_column(subject.frame, "delete_marker", marker, info.path, BOOLEAN)
    except ConfigError as error:
        yield refused(error, _STOPS)
        return
    frame = without(subject.frame, operation, marker)
    check_frame(frame, table, target=info.path, sorted=info.is_sorted)
    yield ok(f"The columns of the DataFrame fit {info.path}")


def _room(subject: Subject, connection: Connection, info: tables.TableInfo) -> Finding:
    """Compare the largest batch with what one transaction takes."""
    tablets = info.tablet_count
    room = subject.rows_per_tablet * tablets
    takes = f"one transaction takes {room} rows in the {counted(tablets, 'tablet')} of {info.path}"
    if not subject.queues:
        return note(f"No queue was given; {takes}")
    known = [attributes_of(connection, one.path, ["tablet_count"]) for one in subject.queues]
    partitions = sum(int((found or {}).get("tablet_count", 0)) for found in known)
    splits = "" if info.path in subject.changed else ", or start the sink with split_oversized=True"
    add = f"{',' if splits else ' or'} add tablets{splits}"
    most = max(1, room // max(1, partitions))
    repair = f"Set max_rows_per_partition of the source to at most {most}{add}"
    if subject.max_rows_per_partition is None:
        return warning(
            f"A batch has no limit, and {takes}",
            "The first batch, or the first after a pause, reads the whole backlog. If that is more, the "
            "query stops with BatchTooLargeError",
            repair,
        )
    largest = subject.max_rows_per_partition * partitions
    batch = (
        f"a batch has up to {largest} rows ({subject.max_rows_per_partition} from each of "
        f"{counted(partitions, 'partition')})"
    )
    if largest > room:
        why = "A full batch stops the query with BatchTooLargeError"
        return problem(f"{batch}, and {takes}", why, repair)
    if info.is_sorted and largest > subject.rows_per_tablet and tablets > 1:
        return warning(
            f"{batch}, and {takes}",
            f"Keys choose the tablets of a sorted target. If more than {subject.rows_per_tablet} rows go "
            "to one tablet, the query stops with BatchTooLargeError",
            f"Set max_rows_per_partition to at most {max(1, subject.rows_per_tablet // partitions)}{splits}",
        )
    return ok(f"{batch}, and {takes}")


def _kept(subject: Subject, connection: Connection, name: str, path: str) -> Iterator[Finding]:
    """Look at a table of the sink, which creates it if nothing is there."""
    info = _mounted(connection, path)
    if info is None:
        yield note(
            f"There is no {name} at {path} yet",
            f"The first batch creates it. If the query has run before, its {name} is gone, or is elsewhere",
            "For a query that has run before: pass the path with "
            f"--{name.removesuffix(' table')}, or restore the table",
        )
        return
    if name == "ledger":
        require_known_ledger(attributes_of(connection, path, [LEDGER_MARK]) or {}, path)
        tables.require_columns(
            info,
            EARLIER_LEDGER_SCHEMA,
            "a ledger",
            LedgerError,
            remedy="Pass another path as ledger_path of the sink; for a query that has a checkpoint, restore "
            "the ledger",
        )
    if name == "dead-letter table":
        remedy = "Name another path in dead_letter_path: the sink creates the table there"
        tables.require_columns(info, REJECT_SCHEMA, f"a {name}", TableError, remedy=remedy)
    yield ok(f"The {name} {path} is mounted")
    if name == "ledger" and path in subject.targets:
        yield problem(
            f"{path} is both a target and the ledger",
            "The sink writes its own rows there",
            "Pass another path as ledger_path of the sink",
        )


def _claims(connection: Connection, path: str) -> Iterator[Finding]:
    """Look at the table of claims, if there is one: the first batch that needs it creates it."""
    info = _mounted(connection, path)
    if info is None:
        return
    remedy = "Remove the table: the sink creates it again"
    tables.require_columns(info, CLAIMS_SCHEMA, "a table of claims", TableError, remedy=remedy)
    seconds = tables.expiring(connection, path)
    if seconds is not None and seconds < KEPT.total_seconds():
        yield problem(
            f"Claims in {path} are removed after {seconds:g} s (max_data_ttl)",
            f"No task may send rows: the sink relies on {KEPT.total_seconds():g} s",
            advice.keep_longer(path, KEPT),
        )
    else:
        yield ok(f"The table of claims {path} is mounted")


def _tombstones(subject: Subject, connection: Connection, target: str) -> Iterator[Finding]:
    """Look at the tombstones of a target with changes, if it is there: the first batch creates them."""
    if attributes_of(connection, target, []) is None:
        return
    info, path = tables.describe_table(connection, target), tombstones_of(target)
    found = attributes_of(connection, path, ["id"])
    require_same_tombstones(info, str((found or {}).get("id", "")))
    if found is None:
        yield note(f"There are no tombstones at {path} yet: the first batch creates them")
        return
    sequence = subject.changes and subject.changes.sequence
    beside = require_tombstones(connection, info, sequence or info.sequence or None)
    beside.require_mounted()
    seconds = tables.expiring(connection, path)
    if seconds is None:
        ttl, shown = int(TOMBSTONE_TTL.total_seconds() * 1000), quote(path)
        yield warning(
            f"Tombstones in {path} never end (max_data_ttl)",
            "The table gets a row for each key that is ever deleted",
            f"yt set {shown}/@min_data_versions 0 && yt set {shown}/@max_data_ttl {ttl} && "
            f"yt remount-table {shown}",
        )
    else:
        days = f"{seconds / 86_400:g} days"
        yield ok(f"The table of tombstones {path} is mounted, and keeps each for {days}")
    if beside.tablet_count < info.tablet_count:
        few, many = counted(beside.tablet_count, "tablet"), counted(info.tablet_count, "tablet")
        yield warning(
            f"Tombstones have {few} in {path}, and the target has {many}",
            f"A batch with more than {subject.rows_per_tablet * beside.tablet_count} deletes stops the query "
            "with BatchTooLargeError",
            with_tablets_of_target(connection, target),
        )
    yield from _temporary(connection, "table of tombstones", path)


def _mounted(connection: Connection, path: str) -> tables.TableInfo | None:
    """Return the description of a table that takes rows, or nothing; raise `TableError` if it takes none."""
    if attributes_of(connection, path, []) is None:
        return None
    info = tables.describe_table(connection, path)
    info.require_mounted()
    return info


def _keep(path: str) -> str:
    """Return how to keep the rows of a table, whatever their age."""
    # A mounted table reads its settings again when it is remounted.
    path = quote(path)
    return f"yt remove {path}/@max_data_ttl && yt remount-table {path}"


def _lasting(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    """Name what makes a table forget that a query needs for as long as it may run."""
    seconds = tables.expiring(connection, path)
    if seconds is not None:
        what = f"Rows of the {name} {path} are removed after {seconds:g} s (max_data_ttl)"
        yield problem(what, _FORGETS[name], _keep(path))
    yield from _temporary(connection, name, path)


def _temporary(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    """Name what removes a table as a whole."""
    found = attributes_of(connection, path, ["expiration_time", "expiration_timeout"]) or {}
    for attribute in found:
        what = f"The {name} {path} is removed with all its rows ({attribute})"
        yield problem(what, _FORGETS[name], f"yt remove {quote(path)}/@{attribute}")


def examine_queues(subject: Subject, connection: Connection, rows: Entries) -> Iterator[Finding]:
    """Look at each queue and its consumer."""
    # What repairs the query of each, as far as ledgers know it.
    commands = {key[1:3]: row.repair for row in rows for key in row.entry.offsets}
    for queue in subject.queues:
        command = commands.get((queue.path, queue.consumer or ""), "")
        yield from about("queue", _queue(connection, queue, command), _STOPS)


def _queue(connection: Connection, queue: Queue, command: str) -> Iterator[Finding]:
    info = RemoteQueue(connection, queue.path).require_readable()
    yield ok(f"The queue {queue.path} has {counted(info.tablet_count, 'partition')}")
    seconds = tables.expiring(connection, queue.path)
    if seconds is not None:
        yield warning(
            f"Rows of {queue.path} are removed after {seconds:g} s (max_data_ttl), read or not",
            "A query that is stopped for longer loses rows: it ends with DataLossError",
            f"{_keep(queue.path)}. Let auto_trim_config remove rows that were read",
            check="retention",
        )
    if queue.consumer is None:
        yield warning(
            f"The queue {queue.path} is read without a consumer",
            "Nobody sees how far the query is, and the queue cannot wait for it with trimming",
            advice.new_consumer(queue.path),
            check="consumer",
        )
        return
    why = f"{_STOPS}. A vital consumer that cannot be read also stops the trimming of the queue"
    yield from about("consumer", _consumer(connection, info, queue.consumer, command), why)


def _consumer(
    connection: Connection, queue: tables.TableInfo, path: str, command: str
) -> Iterator[Finding]:
    if attributes_of(connection, path, []) is None:
        # A consumer that is only created again is at row 0, where no query left it.
        what = f"There is nothing at the consumer {path}"
        yield problem(what, _STOPS, command or advice.create_consumer(path, queue.path))
        return
    require_consumer(connection, path, queue.path)
    tables.describe_table(connection, path).require_mounted()
    yield from about("retention", _lasting(connection, "consumer", path))
    yield from about("registration", [_registration(connection, queue.path, path)])
    if not command:
        yield from about("offset", _offsets(connection, queue, path))


def _registration(connection: Connection, queue: str, consumer: str) -> Finding:
    known = registration(connection, queue, consumer)
    register = advice.register(queue, consumer)
    if known is None:
        return problem(
            f"The consumer {consumer} is not registered for {queue}",
            "The cluster refuses its reads",
            f"{register}. Proxies know it within 25 s",
        )
    found = attributes_of(connection, queue, ["auto_trim_config"]) or {}
    trims = bool((found.get("auto_trim_config") or {}).get("enable"))
    if not known["vital"]:
        what = f"The consumer {consumer} of {queue} is not vital"
        if not trims:
            why = "If automatic trimming is switched on, the queue does not wait for this consumer"
            return warning(what, why, register)
        what += ", and the queue is trimmed automatically"
        why = "The queue does not wait for this consumer: it may trim rows that the query has not read"
        return problem(what, why, register)
    trimmed = ", and read rows are trimmed" if trims else ", and nothing is trimmed automatically"
    return ok(f"The consumer {consumer} is registered as vital{trimmed}")


def _offsets(connection: Connection, info: tables.TableInfo, consumer: str) -> Iterator[Finding]:
    queue = info.path
    remote = RemoteQueue(connection, queue, consumer).resolved()
    bounds = remote.state(info.tablet_count).partitions
    stored = remote.stored_offsets(cluster_of(connection).name, range(len(bounds)))
    at_fault = False
    for partition, at in sorted(stored.items()):
        lower, upper = bounds[partition].lower, bounds[partition].upper
        position = f"The consumer {consumer} is at row {at} of partition {partition} of {queue}"
        if at < lower:
            yield problem(
                f"{position}, and rows before {lower} are trimmed",
                "Those rows are gone. A query that has not read them stops with DataLossError",
                "To continue without them, set fail_on_data_loss to false. Ask who trims the queue",
            )
        elif at > upper:
            yield problem(
                f"{position}, which ends at {upper}",
                "The queue was recreated, or somebody moved the consumer. A new query would skip rows",
                "Name the target of the query with --target: its ledger knows where the consumer belongs. "
                + advice.back_into_the_queue(consumer, queue, partition, upper - lower),
            )
        at_fault |= not lower <= at <= upper
    if not at_fault:
        behind = sum(b.upper - max(stored.get(n, 0), b.lower) for n, b in enumerate(bounds))
        yield ok(f"The consumer {consumer} has {behind} rows of {queue} to read")
