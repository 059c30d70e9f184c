"""The way back to a query that continues exactly where its ledger says, as a plan and as its steps.

The ledger says what is in the target. So a plan puts everything else back to what the last entry needs:
tables mounted, consumers there, registered and at the rows where the query left them. No step repeats or
loses a row by itself. What would is counted, and must be accepted by that number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Any

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import PartitionRange, SourceRange
from yt_exactly_once.commit.judgement import rows_to_come
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, ConflictError
from yt_exactly_once.operations.ledgers import (
    Entries,
    LedgerRow,
    counting,
    near,
    read_ledger,
    rival,
)
from yt_exactly_once.operations.moves import move_consumer, require_accepted
from yt_exactly_once.operations.query_status import PartitionStatus, QueryStatus, QueueStatus
from yt_exactly_once.operations.status import statuses
from yt_exactly_once.spark.compat.next_batch import next_batch
from yt_exactly_once.ytsaurus.queues import register_consumer
from yt_exactly_once.ytsaurus.tables import ensure_object, mount_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

_MOUNTABLE = frozenset({"unmounted", "frozen", "unmounting", "freezing"})


@dataclass(frozen=True)
class Step:
    """Something to do on a cluster, for the query of an entry.

    Attributes:
        moves: whether it moves a consumer.
    """

    text: str
    act: Callable[[Connection, LedgerRow], object]
    moves: bool = False


def _mount(path: str, state: str) -> Step:
    return Step(
        f"mount {path}, which is {state}",
        lambda connection, _: mount_table(
            connection, path, is_frozen=state in {"frozen", "freezing"}
        ),
    )


def _consumer(path: str, queue: str, *, is_missing: bool) -> Step:
    def act(connection: Connection, _row: LedgerRow) -> None:
        ensure_object(connection, "queue_consumer", path)
        register_consumer(connection, queue, path, vital=True)

    made = "create and register" if is_missing else "register"
    return Step(f"{made} the consumer {path} for {queue}", act)


def _move(queue: QueueStatus, path: str, moves: tuple[PartitionRange, ...]) -> Step:
    moved = "; ".join(f"{partition}: {old} to {new}" for partition, old, new in moves)
    source = SourceRange(queue.cluster, queue.real_path, path, moves)
    return Step(
        f"move the consumer {path} of {queue.path}, by partition: {moved}",
        lambda connection, row: move_consumer(connection, source, [row]),
        moves=True,
    )


@dataclass
class Repair:
    """What is to be done for one query, as it is, on its old checkpoint or a new one.

    Attributes:
        sinks: the entries of the query, one for each transaction of a batch: the one first that the query
            continues after. Others are a batch ahead of it at most.
        steps: what `apply` does, in order.
        repeated: rows that may get into the target a second time, at most.
        lost: rows that are gone, or will be passed over.
        open: what a person must do, or decide, first. Nothing can be applied before.
        kept: consumers that stay where they are, since only the checkpoint tells who has moved them.
        behind: targets that may lack the last batch, since their sink is called after the one that moves the
            consumer. Only with a new checkpoint: the old one replays the batch.
        options: what the source then needs.
    """

    sinks: Sequence[QueryStatus]
    new_checkpoint: bool
    steps: list[Step] = field(default_factory=list)
    repeated: int = 0
    lost: int = 0
    open: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    @property
    def row(self) -> LedgerRow:
        """The entry that the query continues after."""
        return self.sinks[0].row

    @property
    def targets(self) -> list[str]:
        """The paths of its targets."""
        return [target.path for one in self.sinks for target in one.targets]

    @property
    def needs_stopped(self) -> bool:
        """Whether a driver of the query that runs is in the way."""
        return self.new_checkpoint or any(step.moves for step in self.steps)

    @property
    def start(self) -> str:
        """How the query is started afterwards."""
        if self.row.entry.application:
            return "Run the job again, with the same application and version"
        how = (
            "with a new checkpointLocation, and never again with the old one"
            if self.new_checkpoint
            else "on the same checkpointLocation"
        )
        options = " and ".join(dict.fromkeys(self.options))
        return f"Start the query {how}" + (options and f", and with {options} in the source")

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {
            "query": self.row.entry.query_id,
            "ledger": self.row.ledger,
            "targets": self.targets,
            "steps": [step.text for step in self.steps],
            "repeated": self.repeated,
            "lost": self.lost,
            "open": self.open,
            "kept": self.kept,
            "behind": self.behind,
            "start": self.start,
        }

    def plan(self, known: Entries) -> None:
        """Work out what the query needs, by all entries that are known."""
        for sink in self.sinks:
            self._look_at_entry(sink, known)
        self._look_at_targets()
        for queue in self.sinks[0].queues:
            self._look_at(queue)
            if queue.consumer is None:
                continue
            if moves := self._moves(queue):
                self.steps.append(_move(queue, queue.consumer, moves))
            is_kept = queue.is_unclear and not self.new_checkpoint
            other = rival(self.row, queue.path, queue.consumer, known)
            if other is not None and (moves or is_kept):
                self.open.append(
                    f"Query {other.entry.label} uses the consumer {queue.consumer} too, for "
                    f"{other.entry.target}: to move it breaks that query. "
                    f"{advice.share_no_consumer(other.ledger, other.entry.query_id)}"
                )
            elif is_kept:
                self.kept.append(
                    f"the consumer {queue.consumer} of {queue.path} is after the ledger: {advice.AHEAD}. "
                    f"{advice.ASK_BY_START}"
                )
        if self.new_checkpoint:
            self._look_behind(known)

    def _look_at_entry(self, sink: QueryStatus, known: Entries) -> None:
        """Say what only its checkpoint can do, and whether another entry counts in its place."""
        entry = sink.entry
        if self.new_checkpoint and not entry.is_complete:
            self.open.append(
                f"Batch {entry.batch_id} is half written: {entry.part} of {entry.part_count} parts. "
                "Only its checkpoint can finish it. Restore the checkpoint, or remove the rows of this "
                "batch from the target"
            )
        if self.new_checkpoint and entry.other_sources and not entry.application:
            self.open.append(
                "The query reads other sources than queues, and only its checkpoint knows how far. Restore "
                "the checkpoint, or empty the target and begin again from the first row"
            )
        if self.new_checkpoint and entry.offsets and entry.keeps_state:
            self.open.append(
                "The query keeps state, and a new checkpoint has none. Restore the checkpoint, or empty the "
                "target and begin again from the first row of the queue"
            )
        if (newer := sink.row.successor(known)) is not None:
            self.open.append(
                f"Query {newer.entry.label} has continued this one from another checkpoint. Start that "
                "one: this one would write the same rows again"
            )

    def _look_behind(self, known: Entries) -> None:
        """Count what a sink may have had to write that is called after the one that moves the consumer."""
        last = self.row.entry
        own = [row.entry for row in known if row.entry.query_id == last.query_id]
        newest = {one.target: one for one in sorted(own, key=lambda one: one.batch_id)}
        for target, entry in newest.items():
            if rows := rows_to_come(last, entry):
                self.lost += rows
                self.behind.append(
                    f"{target} may lack batch {last.batch_id}, {rows} rows: its sink moves no consumer, and "
                    f"has written batch {entry.batch_id} last. If the function calls it for every batch, "
                    "read them with spark.read and write them there, before the queue trims them"
                )

    def _look_at_targets(self) -> None:
        whole = [one for sink in self.sinks for one in sink.targets]
        for target in (table for one in whole for table in one.of_tables or (one,)):
            if target.state in _MOUNTABLE:
                self.steps.append(_mount(target.path, target.state))
            elif target.state == "missing":
                self.open.append(
                    f"The target {target.path} is gone, with {target.total_rows} rows of this query. Restore "
                    "it from a copy, or create it and begin again from the first row of the queue"
                )
            elif target.problem:
                self.open.append(f"{target.path}: {target.problem}")
            beside = target.tombstones
            if beside is not None and beside.state in _MOUNTABLE:
                self.steps.append(_mount(beside.path, beside.state))
            elif beside is not None and beside.problem:
                self.open.append(f"{beside.path}: {beside.problem}")

    def _look_at(self, queue: QueueStatus) -> None:
        """Bring the consumer of a queue back, and count what is at stake."""
        if not queue.partitions or queue.is_copy:
            self.open.append(f"{queue.path}: {queue.problem}")
            return
        if queue.lost_partitions:
            self.open.append(
                f"{queue.path} was resharded to {len(queue.partitions)} partitions. Its rows have other "
                "indexes now, and nobody knows which of them are in the target. Empty the target, and begin "
                "again from the first row of the queue"
            )
        self.lost += sum(
            status.first if status.is_of_another else status.lost_rows
            for status in queue.partitions
        )
        if queue.is_recreated or self.lost:
            self.options.append("fail_on_data_loss=false")
        if self.new_checkpoint:
            self._count_repeats(queue)
        if queue.consumer is not None:
            self._bring_back(queue, queue.consumer)
        elif self.new_checkpoint:
            moved = {
                status.partition: self._offset_after(queue, status) for status in queue.partitions
            }
            self.options.append(f"starting_offsets={json.dumps(moved)} for {queue.path}")

    def _bring_back(self, queue: QueueStatus, consumer: str) -> None:
        if queue.consumer_state in _MOUNTABLE:
            self.steps.append(_mount(consumer, queue.consumer_state))
        if not queue.consumer_state or not queue.registered:
            self.steps.append(_consumer(consumer, queue.path, is_missing=not queue.consumer_state))
        if queue.is_recreated and queue.auto_trim:
            self.open.append(
                f"The queue trims what its consumers have passed, and would trim unread rows. Run: yt remove "
                f"{queue.path}/@auto_trim_config. Set it again when the query runs"
            )

    def _moves(self, queue: QueueStatus) -> tuple[PartitionRange, ...]:
        return tuple(
            PartitionRange(status.partition, status.consumer, new)
            for status in queue.partitions
            if status.consumer is not None
            and (new := self._offset_after(queue, status)) != status.consumer
        )

    def _offset_after(self, queue: QueueStatus, status: PartitionStatus) -> int:
        if self.new_checkpoint:
            return status.first if queue.is_recreated else status.delivered
        if status.consumer is not None and (status.is_unclear or not status.is_stray):
            return status.consumer
        # A batch of the old queue may be in Spark's log. It is replayed before the new queue is read, which
        # takes the consumer back.
        return min(max(status.consumer or 0, status.left), status.delivered)

    def _count_repeats(self, queue: QueueStatus) -> None:
        """Count what batches that the old checkpoint has not finished may have written, at most."""
        for sink in self.sinks:
            if sink.entry.mode != DeliveryMode.TRANSACTIONAL:
                # Tasks may have written rows of a batch that is not committed.
                self.repeated += queue.lag_rows
            elif not queue.is_recreated:
                self.repeated += _written(sink, queue)


def _written(sink: QueryStatus, queue: QueueStatus) -> int:
    """Return how many rows a sink may have written that a new checkpoint reads again."""
    ends = {
        status.partition: status.delivered
        for own in sink.queues
        if (own.path, own.consumer) == (queue.path, queue.consumer)
        for status in own.partitions
    }
    # A consumer that is ahead of the ledger may be right: then the ledger is an old copy, and the rows
    # between are written.
    return sum(
        max(
            min(status.consumer or 0, status.end) - status.delivered,
            ends.get(status.partition, 0) - status.delivered,
            0,
        )
        for status in queue.partitions
    )


def _grouped(found: Sequence[QueryStatus]) -> list[list[QueryStatus]]:
    """Return the entries of each query: the one first that its consumers go by."""
    groups: dict[str, list[QueryStatus]] = {}
    for one in found:
        groups.setdefault(one.entry.query_id, []).append(one)

    def order(one: QueryStatus) -> tuple[bool, int]:
        return not one.entry.moves_consumer, one.entry.batch_id

    return [sorted(some, key=order) for some in groups.values()]


def plan_repairs(
    connection: Connection,
    rows: Entries,
    *,
    query: str = "",
    checkpoint: str = "",
    new_checkpoint: bool = False,
) -> list[Repair]:
    """Work out what every query of this name or begin of an id needs to continue; or raise `ConfigError`.

    Args:
        rows: all entries of the ledgers in question.
        checkpoint: where that of one of them is. Without it no consumer is moved back that is after the
            ledger: either somebody has moved it, or the ledger is an older copy.
        new_checkpoint: whether the query is to continue with a new checkpoint, since the old one is lost.
    """
    spark = next_batch(checkpoint, connection) if checkpoint else None
    asked = [row for row in rows if row.entry.is_of(query)]
    others, unread = near(connection, rows)
    known = [*rows, *others]
    ids = {row.entry.query_id for row in asked}
    # The newest entry counts, whichever ledger was named. One that was replaced never runs again, unless
    # somebody asks for nothing else.
    wanted = counting([row for row in known if row.entry.query_id in ids], known) or asked
    if not wanted:
        raise ConfigError(
            "The ledger has no such query" if query else "The ledger has no query",
            remedy="Look at what is there: yt-exactly-once ledger list",
            query=query or None,
        )
    if spark is not None and spark.query_id not in {row.entry.query_id for row in wanted}:
        raise ConfigError(
            f"The checkpoint is of query {spark.query_id}",
            remedy="Pass the checkpointLocation of this query",
            query=query or None,
            path=spark.location,
        )
    looked = statuses(connection, wanted, known, spark)
    found = [Repair(some, new_checkpoint) for some in _grouped(looked)]
    for repair in found:
        if new_checkpoint:
            repair.open += [
                f"{path} may have a newer entry of the query, and cannot be read: {why.what}. {why.remedy}"
                for path, why in unread.items()
            ]
        repair.plan(known)
    return found


def apply(
    connection: Connection,
    repairs: Sequence[Repair],
    *,
    repeated: int,
    lost: int,
    wait: float = 0.0,
) -> None:
    """Do the steps of all plans, in order, if the rows at stake were accepted.

    Args:
        wait: seconds from the plan to another look at what a driver changes, its ledger and its consumers,
            before a consumer is moved. Without any, nothing is looked at. A driver that commits no batch in
            this time looks like one that is stopped.

    Raises:
        ConfigError: they were not, or a person must decide. Nothing was changed.
        ConflictError: a query or its consumer has moved since.
    """
    for repair in repairs:
        if repair.open:
            raise ConfigError(
                "Nothing was changed: a person must decide",
                remedy=repair.open[0],
                query=repair.row.entry.query_id,
            )
    require_accepted(
        repeated=(sum(one.repeated for one in repairs), repeated),
        lost=(sum(one.lost for one in repairs), lost),
    )
    if wait:
        _require_stopped(connection, [one for one in repairs if one.needs_stopped], wait)
    for repair in repairs:
        for step in repair.steps:
            step.act(connection, repair.row)


def _require_stopped(connection: Connection, repairs: Sequence[Repair], wait: float) -> None:
    """Check that no driver has changed what was planned by; raise `ConflictError` if one has."""
    if not repairs:
        return
    sleep(wait)
    ledgers = sorted({sink.row.ledger for repair in repairs for sink in repair.sinks})
    rows = read_ledger(connection, *ledgers)
    for repair in repairs:
        keys = [(sink.row.ledger, sink.row.key) for sink in repair.sinks]
        now = [row for row in rows if (row.ledger, row.key) in keys]
        if _signs(repair.sinks) != _signs(statuses(connection, now, now)):
            raise ConflictError(
                "A driver of this query is alive: its ledger or its consumer has changed since the plan was "
                "made",
                remedy="Nothing was changed. Stop the driver, and try again. Use --force only if something "
                "else has changed them",
                query=repair.row.entry.query_id,
            )


def _signs(sinks: Sequence[QueryStatus]) -> set[tuple[str, str, tuple[int | None, ...]]]:
    """Return what a driver changes with each batch that it commits."""
    return {
        (
            sink.row.ledger,
            sink.entry.transaction_id,
            tuple(status.consumer for queue in sink.queues for status in queue.partitions),
        )
        for sink in sinks
    }
