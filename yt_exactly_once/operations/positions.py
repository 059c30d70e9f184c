"""Moving a consumer back or forward: to an offset, to the ends of the queue, or to a time.

A consumer says where a *new* checkpoint begins. A query with a checkpoint reads on from its own log, and
refuses a consumer that is elsewhere. So a move is always followed by a new checkpoint, and a plan says what
that means for each query before anything is moved.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TIMESTAMP_COLUMN, pulled_field
from yt_exactly_once.commit.batch import PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import consumer_offsets, consumer_rows
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, ConflictError, TableError
from yt_exactly_once.operations.ledgers import (
    LedgerRow,
    age_seconds,
    read_ledger,
    require_unchanged,
    supersedes,
)
from yt_exactly_once.ytsaurus.browsing import row_time
from yt_exactly_once.ytsaurus.queues import RemoteQueue, require_registration
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.queues import PartitionBounds

QUIET_SECONDS = 60.0
"""A query whose ledger entry is younger is taken for running."""

LOOK_SECONDS = 5.0
"""Time between the two looks at the consumer and the ledgers."""

_LEASE = timedelta(seconds=30)
_STAMP = pa.schema([pulled_field("stamp", pa.uint64(), TIMESTAMP_COLUMN)])


class Direction(StrEnum):
    """Where a consumer is moved."""

    REWIND = "rewind"
    SKIP = "skip"


EARLIEST = "earliest"
LATEST = "latest"
LEDGER = "ledger"

REPEATED = "get into a target twice"
LOST = "never get into a target"

To = int | str | datetime
"""An offset, `earliest`, `latest`, `ledger`, or a time with a zone: the first row that is not older."""


@dataclass(frozen=True)
class Move:
    """The move of a consumer in one partition.

    Attributes:
        partition: index of the partition.
        old: where the consumer is.
        new: where it will be.
    """

    partition: int
    old: int
    new: int


@dataclass(frozen=True)
class Affected:
    """A query whose consumer moves.

    Attributes:
        query_id: id of the query.
        ledger: path of its ledger.
        target: what it writes.
        batch: its last batch.
        meaning: what the move does to its target and its checkpoint.
    """

    query_id: str
    ledger: str
    target: str
    batch: int
    meaning: str


@dataclass(frozen=True)
class Plan:
    """A move that was not made yet.

    Attributes:
        direction: back or forward.
        cluster: name of the queue's cluster.
        queue: the queue.
        consumer: the consumer.
        moves: the partitions that move.
        stays: partitions that are already there or beyond.
        affected: the queries that read with this consumer, as far as ledgers say.
        repeated: rows that are in a target, and that a new checkpoint reads again.
        lost: rows that are in no target, and that a new checkpoint never reads.
    """

    direction: Direction
    cluster: str
    queue: str
    consumer: str
    moves: tuple[Move, ...]
    stays: tuple[int, ...]
    affected: tuple[Affected, ...]
    repeated: int
    lost: int

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {**asdict(self), "direction": self.direction.value}


def plan_move(
    connection: Connection,
    direction: Direction,
    queue: str,
    consumer: str,
    to: To,
    *,
    partitions: Collection[int] | None = None,
    ledgers: Sequence[str] = (),
) -> Plan:
    """Work out a move, and what it means.

    Args:
        connection: the cluster.
        direction: partitions that would move the other way stay.
        queue: path of the queue.
        consumer: path of the consumer.
        to: where to.
        partitions: which ones; all without.
        ledgers: where queries that use the consumer are looked for.

    Raises:
        ConfigError: the place does not exist, or no partition would move in this direction.
        TableError: there is no such queue or consumer, or it is not registered.
    """
    check_path(queue, "queue")
    check_path(consumer, "consumer")
    remote = RemoteQueue(connection, queue, consumer)
    info = remote.describe()
    require_registration(connection, consumer, queue)
    if isinstance(to, datetime):
        _require_timestamps(to, [column["name"] for column in info.schema], queue)
    bounds = remote.state().partitions
    chosen = range(len(bounds)) if partitions is None else sorted(partitions)
    unknown = [partition for partition in chosen if not 0 <= partition < len(bounds)]
    if unknown:
        raise ConfigError(
            f"The queue has no partition {unknown[0]}",
            remedy=f"It has the partitions 0 to {len(bounds) - 1}",
            queue=queue,
        )
    cluster = remote.cluster_name()
    at = remote.stored_offsets(cluster, range(len(bounds)))
    entries = _entries(connection, queue, consumer, ledgers)
    ends = _ends(entries, queue, consumer, info.id)
    if to == LEDGER and ends is None:
        raise ConfigError(
            "No ledger has a query that has read this queue with this consumer",
            remedy="Name its ledger or its target with --ledger. If the queue was recreated, use "
            "yt-exactly-once repair",
            queue=queue,
            consumer=consumer,
        )
    # What no ledger knows of was read by another program, up to its consumer.
    known = (at if not entries else {}) if ends is None else ends
    moves, stays = [], []
    for partition in chosen:
        old = at.get(partition, 0)
        if to == LEDGER:
            new = known.get(partition, 0)
        else:
            new = _place(connection, queue, partition, bounds[partition], to)
        forward = new > old
        if new == old or forward != (direction is Direction.SKIP):
            stays.append(partition)
        else:
            moves.append(Move(partition, old, new))
    if not moves:
        other = Direction.SKIP if direction is Direction.REWIND else Direction.REWIND
        raise ConfigError(
            f"There is nothing to {direction.value}: the consumer is already there, or would move the "
            "other way",
            remedy=f"Look at it with yt-exactly-once status, or use {other.value}",
            queue=queue,
            consumer=consumer,
        )
    places = at | {move.partition: move.new for move in moves}
    repeated = lost = 0
    for move in moves:
        bound = bounds[move.partition]
        done = min(max(known.get(move.partition, 0), bound.lower), bound.upper)
        new = min(max(move.new, bound.lower), bound.upper)
        repeated += max(done - new, 0)
        lost += max(new - done, 0)
    return Plan(
        direction=direction,
        cluster=cluster,
        queue=queue,
        consumer=consumer,
        moves=tuple(moves),
        stays=tuple(stays),
        affected=tuple(_affected(connection, row, queue, consumer, places) for row in entries),
        repeated=0 if to == LEDGER else repeated,
        lost=0 if to == LEDGER else lost,
    )


def require_stopped(
    connection: Connection,
    plan: Plan,
    *,
    look_seconds: float = LOOK_SECONDS,
    quiet_seconds: float = QUIET_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Check that no query moves the consumer or writes its ledger.

    It looks twice. A running query without new rows, or with a trigger that is longer than both times,
    cannot be told from a stopped one.

    Args:
        connection: the cluster.
        plan: the move.
        look_seconds: between the two looks.
        quiet_seconds: how old the last batch of each query must be at least.
        sleep: waits.

    Raises:
        ConflictError: a query is running, or was running a moment ago.
    """
    before = _seen(connection, plan)
    young = [
        row.entry
        for row in before[1].values()
        if (age := age_seconds(row.entry)) is not None and age < quiet_seconds
    ]
    if young:
        raise ConflictError(
            f"The query {young[0].query_id} has committed a batch less than {quiet_seconds:g} s ago",
            remedy="Stop it, wait, and try again; or use --force if you know that it is stopped",
            target=young[0].target,
        )
    sleep(look_seconds)
    after = _seen(connection, plan)
    if before != after:
        raise ConflictError(
            f"The consumer or a ledger has changed within {look_seconds:g} s: a query is running",
            remedy="Stop it, and try again",
            consumer=plan.consumer,
        )


def make_move(connection: Connection, plan: Plan) -> None:
    """Move the consumer in all partitions at once, or in none; see `move_consumer`."""
    move_consumer(connection, plan.cluster, plan.queue, plan.consumer, plan.moves)


def move_consumer(
    connection: Connection,
    cluster: str,
    queue: str,
    consumer: str,
    moves: Sequence[Move],
    rows: Sequence[LedgerRow] = (),
) -> None:
    """Move a consumer in all partitions at once, or in none.

    Args:
        connection: the cluster.
        cluster: name of the queue's cluster.
        queue: the queue.
        consumer: the consumer.
        moves: by partition.
        rows: entries that must not have changed.

    Raises:
        ConflictError: the consumer is no longer where the plan found it, or a query has committed.
    """
    ranges = tuple(PartitionRange(move.partition, move.old, move.new) for move in moves)
    source = SourceRange(cluster, queue, consumer, ranges)
    transaction = connection.begin(_LEASE)
    try:
        _require_still_there(consumer, moves, consumer_offsets(transaction, source))
        for row in rows:
            key = {"query_id": row.entry.query_id, "target": row.entry.target}
            require_unchanged(row, transaction.lookup(row.ledger, [key])[0])
        transaction.insert(
            consumer, consumer_rows(source, {move.partition: move.new for move in moves})
        )
    except BaseException:
        transaction.abort()
        raise
    transaction.commit()


def _require_still_there(consumer: str, moves: Sequence[Move], at: Mapping[int, int]) -> None:
    for move in moves:
        if at[move.partition] != move.old:
            raise ConflictError(
                f"The consumer is at {at[move.partition]} of partition {move.partition} now, and was at "
                f"{move.old}: a query is running",
                remedy="Nothing was moved. Stop the query, and try again",
                consumer=consumer,
            )


def require_accepted(name: str, accepted: int, count: int, what: str) -> None:
    """Check that a number of rows at stake was accepted by that very number.

    Raises:
        ConfigError: another number was accepted, or none.
    """
    if count != accepted:
        raise ConfigError(
            f"{count} rows may {what}",
            remedy=f"Nothing was changed. If that is right, repeat the command with --accept-{name} {count}"
            if count
            else f"Nothing was changed. Leave --accept-{name} out",
        )


def _seen(
    connection: Connection, plan: Plan
) -> tuple[Mapping[int, int], dict[tuple[str, str, str], LedgerRow]]:
    remote = RemoteQueue(connection, plan.queue, plan.consumer)
    at = remote.stored_offsets(plan.cluster, [move.partition for move in plan.moves])
    wanted = {(one.ledger, one.query_id, one.target) for one in plan.affected}
    rows = {
        key: row
        for ledger in sorted({one.ledger for one in plan.affected})
        for row in read_ledger(connection, ledger)
        if (key := (ledger, row.entry.query_id, row.entry.target)) in wanted
    }
    return at, rows


def _entries(
    connection: Connection, queue: str, consumer: str, ledgers: Sequence[str]
) -> list[LedgerRow]:
    """Return the entries of the queries that read with a consumer, and that no later one has replaced."""
    rows = [row for ledger in ledgers for row in read_ledger(connection, ledger)]
    return [
        row
        for row in rows
        if any((key[1], key[2]) == (queue, consumer) for key in row.entry.offsets)
        and not any(supersedes(later.entry, row.entry) for later in rows)
    ]


def _ends(
    entries: Sequence[LedgerRow], queue: str, consumer: str, queue_id: str
) -> dict[int, int] | None:
    """Return the first row of each partition that is in no target; nothing if no query has read the queue.

    Raises:
        ConfigError: several queries read with the consumer, and have read different rows.
    """
    known = [
        {partition: part.end for partition, part in parts.items()}
        for row in entries
        for key, parts in row.entry.offsets.items()
        if key[1:] == (queue, consumer, queue_id)
    ]
    if any(ends != known[0] for ends in known):
        raise ConfigError(
            "Several queries read with this consumer, and are at different rows",
            remedy="Name the ledger of one of them with --ledger. Give each query a consumer of its own",
            queue=queue,
            consumer=consumer,
        )
    return known[0] if known else None


def _affected(
    connection: Connection, row: LedgerRow, queue: str, consumer: str, places: Mapping[int, int]
) -> Affected:
    entry = row.entry
    parts = next(
        parts for key, parts in entry.offsets.items() if (key[1], key[2]) == (queue, consumer)
    )
    keeps = all(part.left <= places.get(n, 0) <= part.end for n, part in parts.items())
    return Affected(
        query_id=entry.query_id,
        ledger=row.ledger,
        target=entry.target,
        batch=entry.batch_id,
        meaning="Its checkpoint continues: start the query as it was"
        if keeps
        else _meaning(connection, entry.target),
    )


def _meaning(connection: Connection, target: str) -> str:
    checkpoint = "Its checkpoint then stops with OffsetConflictError: start with a new one"
    try:
        is_sorted = describe_table(connection, target).is_sorted
    except TableError:
        return f"There is no target to write to. {checkpoint}"
    if is_sorted:
        return (
            "Rows that are read again are written again, each over the row with its key. A query that adds "
            f"up or counts must begin with an empty target. {checkpoint}"
        )
    return (
        "The target is ordered: rows that are read again will be there twice, unless you empty it first. "
        f"{checkpoint}"
    )


def _require_timestamps(to: datetime, columns: Sequence[str], queue: str) -> None:
    if to.tzinfo is None:
        raise ConfigError(
            f"The time {to.isoformat()} has no zone", remedy="Add one, such as Z or +02:00"
        )
    if TIMESTAMP_COLUMN not in columns:
        raise ConfigError(
            f"The queue has no column {TIMESTAMP_COLUMN}, so the time of its rows is not known",
            remedy="Give an offset. Queues of yt-exactly-once create-queue have this column",
            queue=queue,
        )


def _place(
    connection: Connection, queue: str, partition: int, bounds: PartitionBounds, to: To
) -> int:
    if to == EARLIEST:
        return bounds.lower
    if to == LATEST:
        return bounds.upper
    if isinstance(to, datetime):
        return _first_since(connection, queue, partition, bounds, to.timestamp())
    if not isinstance(to, int):
        raise ConfigError(
            f"{to!r} is no place in a queue",
            remedy="Give an offset, earliest, latest, ledger, or a time such as 2026-01-31T12:00:00Z",
        )
    if not bounds.lower <= to <= bounds.upper:
        raise ConfigError(
            f"Partition {partition} has no row {to}: it has the rows {bounds.lower} to {bounds.upper}",
            remedy="Give an offset in this range for each partition, with --partition",
            queue=queue,
        )
    return to


def _first_since(
    connection: Connection, queue: str, partition: int, bounds: PartitionBounds, moment: float
) -> int:
    """Return the first row that is not older; times grow within a partition."""
    remote = RemoteQueue(connection, queue)
    low, high = bounds.lower, bounds.upper
    while low < high:
        middle = (low + high) // 2
        stamp = decode(remote.pull(partition, middle, 1), _STAMP).column(0)[0].as_py()
        # Rows that are older than the column have no time.
        if stamp is None or row_time(stamp) < moment:
            low = middle + 1
        else:
            high = middle
    return low
