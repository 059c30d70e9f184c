"""What Spark's offset log says of a micro-batch, and the offsets of queues in it, which the source writes.

A sink must agree with what a replay will read, so it asks Spark's own log. `running` reads the log through
the JVM, `checkpoint` from files.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.errors import ConfigError, ExactlyOnceError, require_known_format

if TYPE_CHECKING:
    from yt_exactly_once.commit.notes import Notes
    from yt_exactly_once.ytsaurus.browsing import Cluster

NEW_QUERY = "Start a new query with a new checkpoint location"

_STEPS = {
    "cluster": "how-to/change.md, section 'Another cluster'",
    **dict.fromkeys(("queue", "consumer"), "how-to/change.md, section 'Another queue or consumer'"),
}
"""For a checkpoint of another source, by what is another."""

FORMAT = "yt_exactly_once"
"""Key of every offset of the source, and of no other; its value is the version of the format."""

OFFSET_VERSION = 1
"""Raise it when an earlier version of this package would misread an offset."""

_KEYS = ("cluster", "queue", "queue_id", "cluster_id", "consumer", "partitions", "start")
"""Keys of every offset of this format, besides."""

_SHARED = "shared"
"""Key of an offset whose batch has Spark tasks that read several queue partitions."""

_LOGGED_BATCHES = 100
"""How many batches Spark keeps in its logs (`spark.sql.streaming.minBatchesToRetain`)."""


@dataclass(frozen=True)
class QueueOffset:
    """A position in a queue, and where the batch that ends there began.

    It names its cluster, queue and consumer, and the id of the queue's table, since a path may get another
    table. It carries the start because Spark does not log where the first batch of a query begins. On a
    replay Spark asks the source again, and the consumer may have moved since. It also carries which ranges
    share a Spark task, so a replay has the same tasks.

    Attributes:
        cluster: name of the queue's cluster.
        consumer: path of the consumer; `None` when the query reads without one.
        cluster_id: see `Cluster`.
        partitions: first unread row of every queue partition.
        start: first row of the batch that ends here, of every queue partition.
        shared: queue partitions that are read by one Spark task in the batch that ends here, for each such
            task; all others have a task of their own.
    """

    cluster: str
    queue: str
    consumer: str | None
    partitions: dict[int, int]
    start: dict[int, int]
    queue_id: str
    cluster_id: str
    shared: tuple[tuple[int, ...], ...] = ()

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        """Identity of the source among those of the query."""
        return self.cluster, self.queue, self.consumer, self.queue_id

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read an offset of Spark's log, see `from_json`; `None` for one of another source."""
        try:
            offset = json.loads(text)
        except json.JSONDecodeError:
            return None
        return cls.from_json(offset) if isinstance(offset, dict) and FORMAT in offset else None

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Read an offset of Spark's log.

        Raises:
            NewerFormatError: a newer version of the package wrote it.
            ConfigError: it is damaged, or an older version wrote it, and this one does not know its format.
        """
        try:
            version = int(offset[FORMAT])
            require_known_format(version, OFFSET_VERSION, "An offset in the checkpoint")
            if lacks := [name for name in _KEYS if name not in offset]:
                raise ConfigError(
                    f"An offset in the checkpoint has an older format, {version} without {lacks[0]}, which "
                    "this version of the package does not know",
                    remedy="Run the version that wrote it, and let it finish its last batch: start it once "
                    "with trigger(availableNow=True). A new checkpoint before that could repeat the batch. "
                    "What follows is in how-to/change.md, section 'Upgrade and downgrade'",
                )
            return cls(
                cluster=str(offset["cluster"]),
                queue=str(offset["queue"]),
                consumer=offset["consumer"],
                partitions=_by_partition(offset["partitions"]),
                start=_by_partition(offset["start"]),
                queue_id=str(offset["queue_id"]),
                shared=tuple(tuple(map(int, group)) for group in offset.get(_SHARED, ())),
                cluster_id=str(offset["cluster_id"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                "The checkpoint holds an offset that this source did not write",
                remedy=f"Use the checkpoint of this query. {NEW_QUERY} otherwise",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return the offset for Spark's log; equal offsets give equal text."""
        shared = {_SHARED: [list(group) for group in self.shared]} if self.shared else {}
        return {
            FORMAT: OFFSET_VERSION,
            "cluster": self.cluster,
            "queue": self.queue,
            "queue_id": self.queue_id,
            "cluster_id": self.cluster_id,
            "consumer": self.consumer,
            "partitions": {str(key): self.partitions[key] for key in sorted(self.partitions)},
            "start": {str(key): self.start[key] for key in sorted(self.start)},
            **shared,
        }

    def advanced(self, partitions: dict[int, int], queue_id: str) -> Self:
        """Return the offset that closes the batch from here to `partitions`."""
        start = {partition: self.partitions.get(partition, 0) for partition in partitions}
        return replace(self, partitions=partitions, start=start, queue_id=queue_id, shared=())

    def ranges(self) -> list[PartitionRange]:
        """Return everything in the batch that ends here, in the order of the partitions."""
        return [
            PartitionRange(partition, self.start.get(partition, 0), end)
            for partition, end in sorted(self.partitions.items())
            if end > self.start.get(partition, 0)
        ]

    def tasks(self) -> list[list[PartitionRange]]:
        """Return the same by Spark task: each range once, in the order of the partitions."""
        first = {partition: group[0] for group in self.shared for partition in group}
        tasks: dict[int, list[PartitionRange]] = {}
        for wanted in self.ranges():
            tasks.setdefault(first.get(wanted.partition, wanted.partition), []).append(wanted)
        return list(tasks.values())

    def require_same_source(self, cluster: Cluster, queue: str, consumer: str | None) -> None:
        """Check that a logged offset belongs to the source as it is; raise `ConfigError` if not."""
        logged = (self.cluster, self.queue, self.consumer)
        for name, old, new in zip(
            ("cluster", "queue", "consumer"), logged, (cluster.name, queue, consumer), strict=True
        ):
            if old != new:
                raise ConfigError(
                    f"The checkpoint belongs to the {name} {old}, the query now reads {new}",
                    remedy=f"Set the {name} back, or pass this query's own checkpoint location. If the "
                    "change is meant, rows may come again with a new checkpoint location alone: the steps "
                    f"are in {_STEPS[name]}",
                    queue=queue,
                )
        if self.cluster_id != cluster.id:
            raise ConfigError(
                "The proxy belongs to another cluster: the checkpoint is of a queue on its own one",
                remedy=advice.OTHER_CLUSTER,
                queue=queue,
            )


@dataclass(frozen=True)
class RunningBatch:
    """The batch that Spark runs when it calls a sink.

    Attributes:
        batch_id: number of the batch that Spark runs.
        log: of the query.
        in_background: whether Spark does not wait for the calling thread.
        problem: why the call must fail although its batch is known.
    """

    query_id: str
    run_id: str
    batch_id: int
    log: OffsetLog
    in_background: bool = False
    problem: ExactlyOnceError | None = None


class OffsetLog(ABC):
    """What Spark says of one query, and the notes in its checkpoint.

    Attributes:
        location: of the checkpoint, as errors may show it; empty without one.
        query_name: of the query; empty if it has none, or nothing tells it.
    """

    notes: Notes
    location: str = ""
    query_name: str = ""

    @abstractmethod
    def identify(self, running: RunningBatch) -> MicroBatch:
        """Return the micro-batch that runs, with the rows it covers."""

    @abstractmethod
    def texts(self, number: int) -> tuple[Sequence[str], Sequence[str]]:
        """Return the logged offsets of a batch, and of the one before.

        Of a batch that is not logged there are none, or it is a `FileNotFoundError`.
        """

    @abstractmethod
    def has_ended(self, running: RunningBatch) -> bool:
        """Return whether Spark has logged a batch as done although a call for it has not returned."""

    @abstractmethod
    def is_new(self, number: int, is_unused: bool) -> bool:
        """Return whether it is sure that no earlier run has begun the batch that runs.

        Args:
            is_unused: whether no sink has used the checkpoint. Then the batch is new if Spark has logged it
                since this application has started.
        """

    def ranges(self, number: int) -> tuple[SourceRange, ...]:
        """Return what a batch of the query has read; nothing when it is not known."""
        with suppress(FileNotFoundError):
            return source_ranges(*self.texts(number))
        return ()

    def may_be_written(self, batch: MicroBatch, is_unused: bool) -> bool:
        """Return whether an earlier run may have written rows of a batch that no ledger has; see `is_new`."""
        if batch.batch_id == 0 or self.is_new(batch.batch_id, is_unused):
            return False
        if batch.others or not batch.sources or batch.batch_id > _LOGGED_BATCHES:
            return True
        before = [self.ranges(number) for number in range(batch.batch_id)]
        return any(not read or any(source.moves for source in read) for read in before)


def identified(
    running: RunningBatch,
    now: Sequence[str],
    before: Sequence[str],
    latest: Callable[[], Sequence[str]] = tuple,
    **more: Any,
) -> MicroBatch:
    """Return the micro-batch that runs, by the offsets of the batch and of the one before.

    Args:
        latest: asked where sources that are no queues ended when Spark planned the batch, if there are any.
    """
    others = other_sources(now, before)
    if others:
        others = replace(others, latest=other_sources(latest()).end)
    return MicroBatch(
        query_id=running.query_id,
        batch_id=running.batch_id,
        run_id=running.run_id,
        sources=source_ranges(now, before),
        others=others.to_text() if others else "",
        # By the offsets of the batch: whether a Spark task of it reads several queue partitions.
        shares_tasks=any(offset.shared for offset in _queue_offsets(now)),
        checkpoint=running.log.location,
        query_name=running.log.query_name,
        **more,
    )


def source_ranges(now: Sequence[str], before: Sequence[str]) -> tuple[SourceRange, ...]:
    """Pair the end offsets of a batch with its starts, for the sources that are YTsaurus queues.

    If one queue is there twice with the same consumer, or twice without one, raise `ConfigError`.

    Args:
        now: offsets of the batch, one JSON text per source.
        before: offsets of the batch before; empty for the first batch.
    """
    # Spark logs no offset before the first one of a queue; ours carries where its batch began.
    starts = {offset.key: offset.partitions for offset in _queue_offsets(before)}
    ends = _queue_offsets(now)
    known = set()
    for end in ends:
        if end.key in known:
            raise read_twice(end.queue, end.consumer)
        known.add(end.key)
    return tuple(
        SourceRange(
            cluster=end.cluster,
            queue=end.queue,
            consumer=end.consumer,
            partitions=tuple(
                PartitionRange(index, starts.get(end.key, end.start).get(index, 0), offset)
                for index, offset in sorted(end.partitions.items())
            ),
            queue_id=end.queue_id,
            cluster_id=end.cluster_id,
        )
        for end in ends
    )


def read_twice(queue: str, consumer: str | None) -> ConfigError:
    """Return the error of a query that reads one queue twice in the same way."""
    how = "with the same consumer" if consumer else "without a consumer"
    return ConfigError(
        f"The query reads one queue twice {how}: its ledger cannot tell the two apart",
        remedy="Load the queue once for each use, each time with a consumer of its own",
        queue=queue,
        consumer=consumer or None,
    )


def other_sources(now: Sequence[str], before: Sequence[str] = ()) -> OtherSources:
    """Return where a batch begins and ends in the sources that are no queues."""
    start, end = (
        [text for text in texts if QueueOffset.from_text(text) is None] for texts in (before, now)
    )
    return OtherSources.from_log(start, end)


def _queue_offsets(texts: Sequence[str]) -> list[QueueOffset]:
    """Return the offsets that our source wrote; any other source has no consumer to move."""
    return [offset for text in texts if (offset := QueueOffset.from_text(text)) is not None]


def _by_partition(offsets: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(row) for partition, row in offsets.items()}
