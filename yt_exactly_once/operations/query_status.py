"""What is known of a query, its queues and its targets, and what follows from that: lag, rates, problems.

`status` looks it up; every command that shows or repairs a query goes by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.other_sources import OtherSources, TopicRange
from yt_exactly_once.commit.tally import TABLES, Tally

if TYPE_CHECKING:
    from yt_exactly_once.operations.ledgers import LedgerRow

STUCK_SECONDS = 300.0
"""A query with rows to read that has committed nothing for so long, and for ten batches, is reported."""

RESTORE_TARGET = "Restore it, or empty it and begin again from the first row of the queue"
"""What to do with a target that lacks rows."""

_OF_ENTRY = (
    *("query_id", "query_name", "run_id", "transaction_id", "application", "source_rows"),
    *("mode", "attempts", "committed_at", "seconds"),
)
_OF_QUERY = (
    *("age_seconds", "lag_rows", "lag_seconds", "topic_lag"),
    *("rows_in", "rows_out", "catch_up_seconds", "hints", "problems"),
)
_LONG = 10
_SMALL_SHARE = 50
_SHORT_SECONDS = 1.0


@dataclass(frozen=True)
class PartitionStatus:
    """One partition of a queue, and how far a query is in it.

    Attributes:
        delivered: first row that the query has not committed.
        left: first row that its consumer may be at: where the last batch left it.
        consumer: where its consumer is; `None` without one, or if it cannot be read.
        first: first row that the queue still has.
        end: index the next row will get.
        lag_seconds: age of the first row that is not committed; 0 without lag, `None` if the queue has no
            column `$timestamp`, or has trimmed the row.
        is_of_another: whether `delivered` and `left` count rows of a queue that was at this path before.
        begins: first row of Spark's next batch, by the checkpoint; `None` if that is not known.
    """

    partition: int
    delivered: int
    left: int
    consumer: int | None
    first: int
    end: int
    lag_seconds: float | None
    is_of_another: bool = False
    begins: int | None = None

    @property
    def lag_rows(self) -> int:
        """Rows of the queue that are not committed."""
        return max(self.end - (self.first if self.is_of_another else self.delivered), 0)

    @property
    def lost_rows(self) -> int:
        """Rows that were trimmed before they were committed."""
        return 0 if self.is_of_another else max(self.first - self.delivered, 0)

    @property
    def is_stray(self) -> bool:
        """Whether the consumer is where the query did not leave it.

        Spark's log goes on after the ledger if the function leaves batches out, or if the ledger is an older
        copy. The source moves the consumer with it.
        """
        last = max(self.delivered, self.begins or 0)
        return self.consumer is not None and not self.left <= self.consumer <= last

    @property
    def is_unclear(self) -> bool:
        """Whether the consumer is after the ledger, and nothing tells who has moved it there."""
        return self.begins is None and self.is_stray and (self.consumer or 0) > self.delivered


@dataclass(frozen=True)
class QueueStatus:
    """One queue of a query.

    Attributes:
        real_path: the path without links; that of the ledger if another queue is there.
        consumer: the consumer; `None` when the query reads without one.
        registered: whether the consumer is registered; `None` without a consumer.
        vital: whether the registration is vital, so that rows it has not read are not trimmed.
        auto_trim: whether the queue trims what all vital consumers have read.
        partitions: in their order; empty if the queue cannot be read.
        consumer_state: of the tablets of the consumer; empty if there is none.
        is_recreated: whether another queue is at the path than the one that the query has read.
        is_copy: whether that one has rows that are older than itself.
        lost_partitions: how many partitions the query has read that the queue no longer has.
        problem: why it cannot be read, or what is wrong with it; empty if nothing is.
        remedy: the end of `problem`, if something else than the repair of the query is to be done.
    """

    cluster: str
    path: str
    consumer: str | None
    registered: bool | None = None
    vital: bool | None = None
    auto_trim: bool | None = None
    partitions: tuple[PartitionStatus, ...] = ()
    consumer_state: str = ""
    is_recreated: bool = False
    is_copy: bool = False
    real_path: str = ""
    lost_partitions: int = 0
    problem: str = ""
    remedy: str = ""

    @property
    def is_unclear(self) -> bool:
        """Whether the consumer is after the ledger, and nothing tells who has moved it there."""
        return any(one.is_unclear for one in self.partitions)

    @property
    def lag_rows(self) -> int:
        """Rows that are not committed, in all partitions."""
        return sum(one.lag_rows for one in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """Age of the oldest row that is not committed, as far as it is known."""
        known = [one.lag_seconds for one in self.partitions if one.lag_seconds is not None]
        return max(known, default=None)


@dataclass(frozen=True)
class TombstonesStatus:
    """The tombstones beside a target with changes.

    Attributes:
        state: of its tablets, `missing` or `replaced`; empty if it cannot be read.
        problem: what is wrong with it; empty if nothing is.
    """

    path: str
    state: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetStatus(Tally):
    """What a query has written into one target, and the target.

    Attributes:
        missing: rows that this query has written, and that an ordered target has never had.
        state: of its tablets, `missing`, or the type of what is there instead; empty if it cannot be read.
        problem: what is wrong with it; empty if nothing is.
        of_tables: the same of each table of a pattern; empty for any other target.
        tombstones: `None` unless rows were changes.
    """

    path: str
    missing: int = 0
    state: str = ""
    problem: str = ""
    of_tables: tuple[TargetStatus, ...] = ()
    tombstones: TombstonesStatus | None = None

    @property
    def lacks(self) -> str:
        """What is missing, in words."""
        return (
            f"it has had {self.total_rows - self.missing} rows, and this query has written "
            f"{self.total_rows}: it was recreated, or restored from an old copy, and lacks {self.missing}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the columns of the ledger, and what the cluster says of the table."""
        own = {name: getattr(self, name) for name in ("path", "missing", "state", "problem")}
        tables = {TABLES: [one.to_json() for one in self.of_tables]} if self.of_tables else {}
        beside = {"tombstones": asdict(self.tombstones)} if self.tombstones else {}
        return {**self.to_row(), **own, **tables, **beside}


@dataclass(frozen=True)
class QueryStatus:
    """One query, as its ledger and its queues show it.

    Attributes:
        row: one of its entries; those of its other targets tell the same of the last batch.
        age_seconds: how long ago that was committed, by the clocks of the driver and of this machine.
        queues: what it reads; nothing if another query or another entry of the same one reads on.
        successor: the entry of the query that has continued it, with a new checkpoint.
        newest: the entry of the same query that counts in place of `row`, see `LedgerRow.newest`.
        copies: older entries of `row` in other ledgers.
    """

    row: LedgerRow
    age_seconds: float | None
    targets: tuple[TargetStatus, ...]
    queues: tuple[QueueStatus, ...] = ()
    successor: LedgerRow | None = None
    newest: LedgerRow | None = None
    copies: tuple[LedgerRow, ...] = ()

    @property
    def entry(self) -> LedgerEntry:
        """What its ledger says of the last batch."""
        return self.row.entry

    @property
    def others(self) -> OtherSources | None:
        """Where the last batch was in sources that are no queues; `None` of an entry that does not count."""
        return None if self.successor or self.newest else self.entry.others

    @property
    def topics(self) -> Sequence[TopicRange]:
        """Where the last batch was in the topics of Kafka that the query reads."""
        return (self.others.topics() if self.others else None) or ()

    @property
    def topic_lag(self) -> int | None:
        """Offsets that the topics had after the last batch when Spark planned it; `None` if unknown."""
        known = [one.lag_rows for one in self.topics if one.lag_rows is not None]
        return sum(known) if known and len(known) == len(self.topics) else None

    @property
    def name(self) -> str:
        """What tables for people call it."""
        return self.entry.name

    @property
    def lag_rows(self) -> int:
        """Rows that are not committed, in all queues."""
        return sum(queue.lag_rows for queue in self.queues)

    @property
    def lag_seconds(self) -> float | None:
        """Age of the oldest row that is not committed, as far as it is known; 0 without lag."""
        known = [queue.lag_seconds for queue in self.queues if queue.lag_seconds is not None]
        return max(known, default=None)

    @property
    def rows_out(self) -> float | None:
        """Rows of the queues that the last batch has taken per second; at most, as Spark needs time too."""
        return self.entry.source_rows / self.entry.seconds if self.entry.seconds else None

    @property
    def rows_in(self) -> float | None:
        """Rows per second that have arrived since the first one that is not committed."""
        ages = [queue.lag_seconds for queue in self.queues if queue.lag_rows]
        known = [age for age in ages if age]
        return self.lag_rows / max(known) if known and len(known) == len(ages) else None

    @property
    def catch_up_seconds(self) -> float | None:
        """How long a running query needs at least for its lag; `None` if it is not known, or never ends."""
        if not self.lag_rows:
            return 0.0
        if self.rows_out is None or self.rows_in is None or self.rows_out <= self.rows_in:
            return None
        return self.lag_rows / (self.rows_out - self.rows_in)

    @property
    def _is_stuck(self) -> bool:
        """Whether the query has committed nothing for longer than its batches take."""
        return (self.age_seconds or 0) > max(STUCK_SECONDS, _LONG * self.entry.seconds)

    @property
    def _left_rows(self) -> bool:
        """Whether the query runs, and its last batch has left rows that were there when it began.

        Otherwise the batch had all rows there were, and its size says nothing about the limit of a batch.
        """
        ages = [queue.lag_seconds for queue in self.queues if queue.lag_rows]
        oldest = max((age for age in ages if age is not None), default=0.0)
        began = (self.age_seconds or 0.0) + self.entry.seconds
        return not self._is_stuck and oldest > began

    @property
    def hints(self) -> list[str]:
        """What is not wrong, and makes the query slow."""
        found = []
        if self.successor:
            found.append(f"query {self.successor.entry.label} has continued it, and reads its rows")
        if self.newest:
            found.append(f"this entry is old: {self.newest.named}")
        found += [
            f"{one.ledger} has an old entry of it, batch {one.entry.batch_id}"
            for one in self.copies
        ]
        if not self._left_rows:
            return found
        if self.rows_out is not None and self.rows_in is not None and self.rows_out < self.rows_in:
            found.append(
                f"{self.rows_in:.0f} rows per second arrive, and its last batch took {self.rows_out:.0f}: "
                "the lag grows"
            )
        took, rows = self.entry.seconds, self.entry.source_rows
        if 0 < rows * _SMALL_SHARE < self.lag_rows and took < _SHORT_SECONDS:
            found.append(
                f"its last batch had {rows} rows, and {self.lag_rows} wait. Larger batches are "
                "faster: raise max_rows_per_partition"
            )
        return found

    @property
    def problems(self) -> list[str]:
        """What is wrong, a sentence each; nothing with an entry that does not count."""
        if self.successor or self.newest:
            return []
        named = [(one.path, one.problem) for one in self.targets]
        beside = [one.tombstones for one in self.targets if one.tombstones]
        named += [(one.path, one.problem) for one in beside]
        named += [(one.path, one.problem) for one in self.queues]
        found = [f"{path}: {problem}" for path, problem in named if problem]
        entry = self.entry
        if not entry.is_complete:
            what = "version" if entry.application else "batch"
            way = ". Run the job of this version again" if entry.application else ""
            found.append(
                f"{what} {entry.batch_id} is half written: {entry.part} of {entry.part_count} parts{way}"
            )
        waiting = self.lag_rows + (self.topic_lag or 0)
        if not found and waiting and self._is_stuck:
            found.append(
                f"no batch for {self.age_seconds:.0f} s, and {waiting} rows wait: the query is "
                "stopped, or stuck in a batch"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        queues = [asdict(queue) for queue in self.queues]
        for queue, status_json in zip(self.queues, queues, strict=True):
            status_json |= {"lag_rows": queue.lag_rows, "lag_seconds": queue.lag_seconds}
            for status, one in zip(queue.partitions, status_json["partitions"], strict=True):
                one |= {"lag_rows": status.lag_rows, "lost_rows": status.lost_rows}
        return {
            **{name: getattr(self.entry, name) for name in _OF_ENTRY},
            "ledger": self.row.ledger,
            "batch": self.entry.batch_id,
            "parts": [self.entry.part, self.entry.part_count],
            "targets": [target.to_json() for target in self.targets],
            "queues": queues,
            "topics": [one._asdict() | {"lag_rows": one.lag_rows} for one in self.topics],
            "other_sources": vars(self.others) if self.others else self.entry.other_sources,
            "successor": self.successor.entry.query_id if self.successor else "",
            "newest": self.newest and {"ledger": self.newest.ledger, **self.newest.key},
            "copies": [one.ledger for one in self.copies],
            **{name: getattr(self, name) for name in _OF_QUERY},
        }
