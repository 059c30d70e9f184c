"""Offset of a queue in Spark's log: what the source writes, and whoever reads the log gets.

An offset names its cluster, queue and consumer, and the id of the queue's table, since a path may get another
table. It carries both ends of the batch that it closes. It needs the start because Spark does not log where
the first batch of a query begins. On a replay Spark asks the source again, and the consumer may have moved
since. It also carries which ranges share a Spark task, so a replay has the same tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import PartitionRange
from yt_exactly_once.commit.formats import require_known_format
from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.browsing import Cluster

NEW_QUERY = "Start a new query with a new checkpoint location"

FORMAT = "yt_exactly_once"
"""Key of every offset of the source, and of no other; its value is the version of the format."""

OFFSET_VERSION = 1
"""Raise it when an earlier version of this package would misread an offset."""

_CLUSTER_ID = "cluster_id"

_SHARED = "shared"
"""Key of an offset whose batch has Spark tasks that read several queue partitions."""


@dataclass(frozen=True)
class QueueOffset:
    """A position in a queue, and where the batch that ends there began.

    Attributes:
        cluster: name of the queue's cluster.
        consumer: path of the consumer; `None` when the query reads without one.
        partitions: first unread row of every queue partition.
        start: first row of the batch that ends here, of every queue partition.
        shared: queue partitions that are read by one Spark task in the batch that ends here, for each such
            task; all others have a task of their own.
        cluster_id: see `Cluster`; empty in an offset of an earlier version of this package.
    """

    cluster: str
    queue: str
    consumer: str | None
    partitions: dict[int, int]
    start: dict[int, int]
    queue_id: str
    shared: tuple[tuple[int, ...], ...] = ()
    cluster_id: str = ""

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        """Identity of the source among those of the query."""
        return self.cluster, self.queue, self.consumer, self.queue_id

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read an offset of Spark's log; `None` for one of another source.

        Raises:
            NewerFormatError: a newer version of this package wrote it.
            ConfigError: it is damaged.
        """
        try:
            offset = json.loads(text)
        except json.JSONDecodeError:
            return None
        return cls.from_json(offset) if isinstance(offset, dict) and FORMAT in offset else None

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Read an offset of Spark's log.

        Raises:
            NewerFormatError: a newer version of this package wrote it.
            ConfigError: it was not written by this source.
        """
        try:
            require_known_format(int(offset[FORMAT]), OFFSET_VERSION, "An offset in the checkpoint")
            return cls(
                cluster=str(offset["cluster"]),
                queue=str(offset["queue"]),
                consumer=offset["consumer"],
                partitions=_by_partition(offset["partitions"]),
                start=_by_partition(offset["start"]),
                queue_id=str(offset["queue_id"]),
                shared=tuple(tuple(map(int, group)) for group in offset.get(_SHARED, ())),
                cluster_id=str(offset.get(_CLUSTER_ID, "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                "The checkpoint holds an offset that this source did not write",
                remedy=f"Use the checkpoint of this query. {NEW_QUERY} otherwise",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return the offset for Spark's log; equal offsets give equal text."""
        shared = {_SHARED: [list(group) for group in self.shared]} if self.shared else {}
        cluster_id = {_CLUSTER_ID: self.cluster_id} if self.cluster_id else {}
        return {
            FORMAT: OFFSET_VERSION,
            "cluster": self.cluster,
            "queue": self.queue,
            "queue_id": self.queue_id,
            "consumer": self.consumer,
            "partitions": {str(key): self.partitions[key] for key in sorted(self.partitions)},
            "start": {str(key): self.start[key] for key in sorted(self.start)},
            **shared,
            **cluster_id,
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
                    remedy=f"Set the {name} back, or pass this query's own checkpoint location. {NEW_QUERY} "
                    "if the change is meant",
                    queue=queue,
                )
        if self.cluster_id not in {"", cluster.id}:
            raise ConfigError(
                "The proxy belongs to another cluster: the checkpoint is of a queue on its own one",
                remedy=advice.OTHER_CLUSTER,
                queue=queue,
            )


def _by_partition(offsets: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(row) for partition, row in offsets.items()}
