"""Moves of a consumer: to an offset, to the ends of the queue, to a time, or to its ledger.

A consumer says where a *new* checkpoint begins. A query with a checkpoint reads on from its own log, and
refuses a consumer that is elsewhere. So a move is always followed by a new checkpoint, and a plan says what
that means for each query before anything is moved. A move is made only if nobody runs, nothing has changed,
and the rows at stake were accepted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TIMESTAMP_COLUMN
from yt_exactly_once.commit.batch import PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import advance, consumer_offsets
from yt_exactly_once.commit.entry import PartitionOffset
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, ConflictError, TableError
from yt_exactly_once.operations.ledgers import (
    Entries,
    LedgerRow,
    age_seconds,
    counting,
    read_ledger,
    read_ledgers,
)
from yt_exactly_once.ytsaurus.browsing import cluster_of, row_time
from yt_exactly_once.ytsaurus.queues import PartitionBounds, RemoteQueue, require_registration
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

EARLIEST, LATEST, LEDGER = "earliest", "latest", "ledger"

To = int | str | datetime
"""An offset, `earliest`, `latest`, `ledger`, or a time with a zone: the first row that is not older."""

_STAMP = pa.schema([(TIMESTAMP_COLUMN, pa.uint64())])
Direction = Literal["rewind", "skip"]

_UNREAD = "No ledger that can be read has a query with this consumer, and these cannot be read"

_AT_STAKE = {"repeated": "get into a target twice", "lost": "never get into a target"}


@dataclass(frozen=True)
class Plan:
    """A move that was not made yet.

    Attributes:
        source: the consumer, and where it is and will be in each partition that it moves in.
        stays: partitions that are already there or beyond.
        affected: the queries that read with this consumer, as far as ledgers say, and what the move does to
            the target and the checkpoint of each.
        repeated: rows that are in a target, and that a new checkpoint reads again.
        lost: rows that are in no target, and that a new checkpoint never reads.
        unread: ledgers that cannot be read, and may have a query with this consumer.
    """

    direction: Direction
    source: SourceRange
    stays: tuple[int, ...]
    affected: tuple[tuple[LedgerRow, str], ...]
    repeated: int
    lost: int
    unread: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        source = self.source
        moves = [{"partition": one, "old": old, "new": new} for one, old, new in source.partitions]
        affected = [
            {**row.key, "ledger": row.ledger, "batch": row.entry.batch_id, "meaning": meaning}
            for row, meaning in self.affected
        ]
        return {
            **{name: getattr(source, name) for name in ("cluster", "queue", "consumer")},
            **{name: getattr(self, name) for name in ("stays", "repeated", "lost", "unread")},
            "direction": self.direction,
            "moves": moves,
            "affected": affected,
        }


def require_stopped(
    connection: Connection,
    plan: Plan,
    *,
    look_seconds: float,
    quiet_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Check that no query moves the consumer or writes its ledger.

    It looks twice, and wants the last batch of each query to be old enough, or raises `ConflictError`. A
    running query without new rows, or with a trigger that is longer than both times, cannot be told from a
    stopped one.

    Args:
        look_seconds: time between the two looks.
        quiet_seconds: a query whose ledger entry is younger is taken for running.
    """
    if plan.unread and not plan.affected:
        raise ConflictError(
            f"{_UNREAD}: {', '.join(plan.unread)}. Whether a query of theirs moves it is not known",
            remedy="Name the ledger of the query, or its folder, with --ledger. Or use --force if no query "
            "that uses the consumer runs",
            consumer=plan.source.consumer,
        )
    before = _seen(connection, plan)
    young = [
        row.entry
        for row in before[1]
        if (age := age_seconds(row.entry)) is not None and age < quiet_seconds
    ]
    if young:
        raise ConflictError(
            f"The query {young[0].label} has committed a batch less than {quiet_seconds:g} s ago",
            remedy="Stop it, wait, and try again; or use --force if you know that it is stopped",
            target=young[0].target,
        )
    sleep(look_seconds)
    after = _seen(connection, plan)
    if before != after:
        raise ConflictError(
            f"The consumer or a ledger has changed within {look_seconds:g} s: a query is running",
            remedy="Stop it, and try again",
            consumer=plan.source.consumer,
        )


def move_consumer(connection: Connection, source: SourceRange, rows: Entries = ()) -> None:
    """Move a consumer in all partitions of a range, from its start to its end.

    Move it in none, and raise `ConflictError`, if it is elsewhere or one of some entries has changed.
    """
    with connection.transaction() as transaction:
        at = consumer_offsets(transaction, source)
        for partition, old, _ in source.partitions:
            if at[partition] != old:
                raise ConflictError(
                    f"The consumer is at {at[partition]} of partition {partition} now, and was at {old}: a "
                    "query is running",
                    remedy="Nothing was moved. Stop the query, and try again",
                    consumer=source.consumer,
                )
        for row in rows:
            row.require_unchanged(transaction)
        positions = {partition: new for partition, _, new in source.partitions}
        advance(transaction, source, positions)


def require_accepted(**counts: tuple[int, int]) -> None:
    """Check that so many rows as may be `repeated` or `lost` were accepted, or raise `ConfigError`."""
    for name, (count, accepted) in counts.items():
        if count != accepted:
            raise ConfigError(
                f"{count} rows may {_AT_STAKE[name]}",
                remedy="Nothing was changed. If that is right, repeat the command with "
                f"--accept-{name} {count}"
                if count
                else f"Nothing was changed. Leave --accept-{name} out",
            )


def _seen(connection: Connection, plan: Plan) -> tuple[Mapping[int, int], list[LedgerRow]]:
    source = plan.source
    remote = RemoteQueue(connection, source.queue, source.consumer)
    at = remote.stored_offsets(source.cluster, [offset.partition for offset in source.partitions])
    wanted = [(row.ledger, row.key) for row, _ in plan.affected]
    rows = [
        row
        for row in read_ledger(connection, *sorted({ledger for ledger, _ in wanted}))
        if (row.ledger, row.key) in wanted
    ]
    return at, rows


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
        direction: partitions that would move the other way stay.
        partitions: which ones; all without.
        ledgers: where queries that use the consumer are looked for. One that cannot be read hides no other
            one; it may be another team's.

    Raises:
        ConfigError: the position does not exist, or no partition would move in this direction.
        TableError: there is no such queue or consumer, or it is not registered.
    """
    check_path(queue, "queue")
    check_path(consumer, "consumer")
    remote = RemoteQueue(connection, queue, consumer).resolved()
    names, queue = {queue, remote.path}, remote.path
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
            remedy=f"Give partitions from 0 to {len(bounds) - 1}",
            queue=queue,
        )
    cluster = cluster_of(connection).name
    at = remote.stored_offsets(cluster, range(len(bounds)))
    rows, hidden = _read_some(connection, ledgers)
    # Of the entries that read with the consumer, those that count.
    read = [(row, _read(row, {*names, info.id}, consumer)) for row in counting(rows, rows)]
    reads = [(row, offsets.get(info.id)) for row, offsets in read if offsets]
    all_ends = [
        {n: offset.end for n, offset in offsets.items()}
        for _, offsets in reads
        if offsets is not None
    ]
    if any(ends != all_ends[0] for ends in all_ends):
        raise ConfigError(
            "Several queries read with this consumer, and are at different rows",
            remedy="Name the ledger of one of them with --ledger. Give each query a consumer of its own",
            consumer=consumer,
        )
    if to == LEDGER and not all_ends:
        raise ConfigError(
            f"{_UNREAD}: {', '.join(hidden)}"
            if hidden
            else "No ledger has a query that has read this queue with this consumer",
            remedy="Name its ledger or its target with --ledger. If the queue was recreated, run: "
            "yt-exactly-once repair TARGET",
            queue=queue,
            consumer=consumer,
        )
    # What no ledger knows of was read by another program, up to its consumer.
    known = all_ends[0] if all_ends else ({} if reads else at)
    moves, stays = [], []
    for partition in chosen:
        old = at.get(partition, 0)
        if to == LEDGER:
            new = known.get(partition, 0)
        else:
            new = _position(connection, queue, partition, bounds[partition], to)
        forward = new > old
        if new == old or forward != (direction == "skip"):
            stays.append(partition)
        else:
            moves.append(PartitionRange(partition, old, new))
    if not moves:
        other = "skip" if direction == "rewind" else "rewind"
        raise ConfigError(
            f"There is nothing to {direction}: the consumer is already there, or would move the other way",
            remedy=f"Look at it: yt-exactly-once status. Or use {other}",
            queue=queue,
            consumer=consumer,
        )
    positions = at | {move.partition: move.end for move in moves}
    repeated = lost = 0
    for move in moves:
        bound = bounds[move.partition]
        done = min(max(known.get(move.partition, 0), bound.lower), bound.upper)
        new = min(max(move.end, bound.lower), bound.upper)
        repeated += max(done - new, 0)
        lost += max(new - done, 0)
    return Plan(
        direction=direction,
        source=SourceRange(cluster, queue, consumer, tuple(moves)),
        stays=tuple(stays),
        affected=tuple(
            (row, _meaning(connection, row, offsets, positions, repeated)) for row, offsets in reads
        ),
        repeated=0 if to == LEDGER else repeated,
        lost=0 if to == LEDGER else lost,
        unread=tuple(hidden),
    )


def _read_some(connection: Connection, ledgers: Sequence[str]) -> tuple[list[LedgerRow], list[str]]:
    """Return the entries of the ledgers that can be read, and the others; raise if there are only such."""
    rows, unread = read_ledgers(connection, ledgers)
    if unread and len(unread) == len(ledgers):
        raise next(iter(unread.values()))
    return rows, list(unread)


def _read(
    row: LedgerRow, names: AbstractSet[str], consumer: str
) -> dict[str, Mapping[int, PartitionOffset]]:
    """Return how far a query is in the queue, or in others that were at its path, by their ids.

    Args:
        names: paths of the queue, and its id: a renamed one keeps it.
    """
    return {
        key[3]: offsets
        for key, offsets in row.entry.offsets.items()
        if names & {key[1], key[3]} and key[2] == consumer
    }


def _meaning(
    connection: Connection,
    row: LedgerRow,
    offsets: Mapping[int, PartitionOffset] | None,
    positions: Mapping[int, int],
    repeated: int,
) -> str:
    """Say what a move does to a query's target and checkpoint."""
    if offsets is None:
        return (
            "It has read another queue that was there, and no row of this one. With "
            "fail_on_data_loss=false in the source, its checkpoint continues at the first row. Leave the "
            "consumer where it is: the source moves it"
        )
    if all(offset.left <= positions.get(n, 0) <= offset.end for n, offset in offsets.items()):
        return "Its checkpoint continues: start the query as it was"
    checkpoint = "Its checkpoint then stops with OffsetConflictError: start with a new one"
    try:
        is_sorted = describe_table(connection, row.entry.tables[0]).is_sorted
    except (IndexError, TableError):
        return f"There is no target to write to. {checkpoint}"
    if not repeated:
        return checkpoint
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
            remedy="Give an offset. Queues that create-queue has made have this column",
            queue=queue,
        )


def _position(
    connection: Connection, queue: str, partition: int, bounds: PartitionBounds, to: To
) -> int:
    if to == EARLIEST:
        return bounds.lower
    if to == LATEST:
        return bounds.upper
    if isinstance(to, datetime):
        return _first_since(connection, queue, partition, bounds, to.timestamp())
    assert isinstance(to, int)
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

    def when(row: int) -> float:
        stamp = decode(remote.pull(partition, row, 1), _STAMP).column(0)[0].as_py()
        # Rows that are older than the column have no time.
        return float("-inf") if stamp is None else row_time(stamp)

    rows = range(bounds.lower, bounds.upper)
    return bounds.lower + bisect_left(rows, moment, key=when)
