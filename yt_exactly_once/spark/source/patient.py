"""The queue of one query, and calls that are repeated while the cluster is away."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from yt_exactly_once.observability import Emitter, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.queue_offset import QueueOffset
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.range import PATIENCE

if TYPE_CHECKING:
    from yt_exactly_once.spark.source.packed import PackedQueue
    from yt_exactly_once.spark.source.rows import RowFormat
    from yt_exactly_once.ytsaurus.browsing import Cluster
    from yt_exactly_once.ytsaurus.queues import RemoteQueue
    from yt_exactly_once.ytsaurus.tables import TableInfo

T = TypeVar("T")


class PatientQueue:
    """What planning, following the consumer and telling the lag have in common.

    Args:
        packed: the queue, as it was when the query was defined.
        clock: seconds that never go back.
        sleep: waits that many seconds.
    """

    def __init__(
        self, packed: PackedQueue, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._packed = packed
        self.clock = clock
        self.sleep = sleep

    @property
    def options(self) -> SourceOptions:
        """Options of the source."""
        return self._packed.queue.options

    @property
    def remote(self) -> RemoteQueue:
        """The queue on the cluster."""
        return self._packed.queue.queue

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self._packed.queue.cluster

    @property
    def info(self) -> TableInfo:
        """The queue's table, as it was when the query was defined."""
        return self._packed.queue.info

    @property
    def rows(self) -> RowFormat:
        """How its rows become Spark's."""
        return self._packed.queue.rows

    @property
    def emit(self) -> Emitter:
        """Takes events. No attribute: the reader travels to the tasks."""
        return emitter(queue=self.remote.path, consumer=self.remote.consumer)

    def offset(self, positions: dict[int, int]) -> QueueOffset:
        """Return the offset at some rows, after an empty batch."""
        path, consumer = self.remote.path, self.remote.consumer
        here = self.cluster
        return QueueOffset(
            here.name, path, consumer, positions, positions, self.info.id, cluster_id=here.id
        )

    def stored(self, partitions: Collection[int]) -> dict[int, int]:
        """Return the offsets of the consumer, without partitions it was never moved in."""
        return self.call(partial(self.remote.stored_offsets, self.cluster.name, partitions))

    def call(self, call: Callable[[], T]) -> T:
        """Call the cluster again while it is away, for instance while a queue is resharded."""
        return run_attempts(lambda _number: call(), PATIENCE, self.emit, sleep=self.sleep)
