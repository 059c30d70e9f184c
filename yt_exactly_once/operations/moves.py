"""Making a move of a consumer: only if nobody runs, nothing has changed, and the rows at stake were accepted.

`rewind` and `skip` make the moves that `operations.positions` has planned, `repair` makes its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.batch import PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import consumer_offsets, consumer_rows
from yt_exactly_once.errors import ConfigError, ConflictError
from yt_exactly_once.operations import ledgers
from yt_exactly_once.operations.ledgers import LedgerRow
from yt_exactly_once.ytsaurus.queues import RemoteQueue

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

QUIET_SECONDS = 60.0
"""A query whose ledger entry is younger is taken for running."""

LOOK_SECONDS = 5.0
"""Time between the two looks at the consumer and the ledgers."""

REPEATED = "get into a target twice"
LOST = "never get into a target"


class Direction(StrEnum):
    """Where a consumer is moved."""

    REWIND = "rewind"
    SKIP = "skip"


@dataclass(frozen=True)
class Move:
    """The move of a consumer in one partition."""

    partition: int
    old: int
    new: int


@dataclass(frozen=True)
class Affected:
    """A query whose consumer moves.

    Attributes:
        meaning: what the move does to its target and its checkpoint.
    """

    row: LedgerRow
    meaning: str

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        batch = {"ledger": self.row.ledger, "batch": self.row.entry.batch_id}
        return {**self.row.key, **batch, "meaning": self.meaning}


@dataclass(frozen=True)
class Plan:
    """A move that was not made yet.

    Attributes:
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
        return {
            **vars(self),
            "direction": self.direction.value,
            "moves": list(map(asdict, self.moves)),
            "affected": [one.to_json() for one in self.affected],
        }


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
        quiet_seconds: how old the last batch of each query must be at least.

    Raises:
        ConflictError: a query is running, or was running a moment ago.
    """
    before = _seen(connection, plan)
    young = [
        row.entry
        for row in before[1]
        if (age := ledgers.age_seconds(row.entry)) is not None and age < quiet_seconds
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
    """Move a consumer in all partitions, or in none and raise `ConflictError` if it is not where it was.

    Args:
        rows: entries that must not have changed.
    """
    ranges = tuple(PartitionRange(move.partition, move.old, move.new) for move in moves)
    source = SourceRange(cluster, queue, consumer, ranges)
    with connection.transaction() as transaction:
        at = consumer_offsets(transaction, source)
        for move in moves:
            if at[move.partition] != move.old:
                raise ConflictError(
                    f"The consumer is at {at[move.partition]} of partition {move.partition} now, and was at "
                    f"{move.old}: a query is running",
                    remedy="Nothing was moved. Stop the query, and try again",
                    consumer=consumer,
                )
        for row in rows:
            ledgers.require_unchanged(row, transaction)
        transaction.insert(
            consumer, consumer_rows(source, {move.partition: move.new for move in moves})
        )


def require_accepted(name: str, accepted: int, count: int, what: str) -> None:
    """Check that a number of rows at stake was accepted; raise `ConfigError` if none or another one was."""
    if count != accepted:
        raise ConfigError(
            f"{count} rows may {what}",
            remedy=f"Nothing was changed. If that is right, repeat the command with --accept-{name} {count}"
            if count
            else f"Nothing was changed. Leave --accept-{name} out",
        )


def _seen(connection: Connection, plan: Plan) -> tuple[Mapping[int, int], list[LedgerRow]]:
    remote = RemoteQueue(connection, plan.queue, plan.consumer)
    at = remote.stored_offsets(plan.cluster, [move.partition for move in plan.moves])
    wanted = [(one.row.ledger, one.row.key) for one in plan.affected]
    rows = [
        row
        for row in ledgers.read_ledger(connection, *sorted({ledger for ledger, _ in wanted}))
        if (row.ledger, row.key) in wanted
    ]
    return at, rows
