"""Planning a move of a consumer: to an offset, to the ends of the queue, to a time, or to its ledger.

A consumer says where a *new* checkpoint begins. A query with a checkpoint reads on from its own log, and
refuses a consumer that is elsewhere. So a move is always followed by a new checkpoint, and a plan says what
that means for each query before anything is moved. `operations.moves` makes the move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TIMESTAMP_COLUMN, pulled_field
from yt_exactly_once.commit.entry import PartitionOffset
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, TableError
from yt_exactly_once.operations.ledgers import LedgerRow, read_ledger
from yt_exactly_once.operations.moves import Affected, Direction, Move, Plan
from yt_exactly_once.ytsaurus.browsing import cluster_of, row_time
from yt_exactly_once.ytsaurus.queues import PartitionBounds, RemoteQueue, require_registration
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

_STAMP = pa.schema([pulled_field("stamp", pa.uint64(), TIMESTAMP_COLUMN)])


EARLIEST = "earliest"
LATEST = "latest"
LEDGER = "ledger"

To = int | str | datetime
"""An offset, `earliest`, `latest`, `ledger`, or a time with a zone: the first row that is not older."""


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
        ledgers: where queries that use the consumer are looked for.

    Raises:
        ConfigError: the place does not exist, or no partition would move in this direction.
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
    entries = _entries(connection, names, consumer, ledgers)
    ends = _ends(entries, names, consumer, info.id)
    if to == LEDGER and ends is None:
        raise ConfigError(
            "No ledger has a query that has read this queue with this consumer",
            remedy="Name its ledger or its target with --ledger. If the queue was recreated, run: "
            "yt-exactly-once repair TARGET",
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
            remedy=f"Look at it: yt-exactly-once status. Or use {other.value}",
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
        affected=tuple(
            _affected(connection, row, _read(row, names, consumer).get(info.id), places, repeated)
            for row in entries
        ),
        repeated=0 if to == LEDGER else repeated,
        lost=0 if to == LEDGER else lost,
    )


def _entries(
    connection: Connection, names: Collection[str], consumer: str, ledgers: Sequence[str]
) -> list[LedgerRow]:
    """Return the entries of the queries that read with a consumer, and that no later one has replaced."""
    rows = read_ledger(connection, *ledgers)
    return [row for row in rows if _read(row, names, consumer) and row.successor(rows) is None]


def _read(
    row: LedgerRow, names: Collection[str], consumer: str
) -> dict[str, Mapping[int, PartitionOffset]]:
    """Return how far a query is in the queue, or in others that were at its path, by their ids."""
    return {
        key[3]: parts
        for key, parts in row.entry.offsets.items()
        if key[1] in names and key[2] == consumer
    }


def _ends(
    entries: Sequence[LedgerRow], names: Collection[str], consumer: str, queue_id: str
) -> dict[int, int] | None:
    """Return the first row of each partition that is in no target; nothing if no query has read the queue.

    Raises:
        ConfigError: several queries read with the consumer, and have read different rows.
    """
    known = [
        {partition: part.end for partition, part in parts.items()}
        for row in entries
        if (parts := _read(row, names, consumer).get(queue_id)) is not None
    ]
    if any(ends != known[0] for ends in known):
        raise ConfigError(
            "Several queries read with this consumer, and are at different rows",
            remedy="Name the ledger of one of them with --ledger. Give each query a consumer of its own",
            consumer=consumer,
        )
    return known[0] if known else None


def _affected(
    connection: Connection,
    row: LedgerRow,
    parts: Mapping[int, PartitionOffset] | None,
    places: Mapping[int, int],
    repeated: int,
) -> Affected:
    if parts is None:
        meaning = (
            "It has read another queue that was there, and no row of this one. With "
            "fail_on_data_loss=false in the source, its checkpoint continues at the first row. Leave the "
            "consumer where it is: the source moves it"
        )
    elif all(part.left <= places.get(n, 0) <= part.end for n, part in parts.items()):
        meaning = "Its checkpoint continues: start the query as it was"
    else:
        meaning = _meaning(connection, row.entry.target, repeated)
    return Affected(row, meaning)


def _meaning(connection: Connection, target: str, repeated: int) -> str:
    checkpoint = "Its checkpoint then stops with OffsetConflictError: start with a new one"
    try:
        is_sorted = describe_table(connection, target).is_sorted
    except TableError:
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
