"""An opened queue or table on its way between the Python processes that Spark starts for a source.

Spark starts one that opens the queue, one that plans batches, one that only passes the reader on, and those
of the tasks. Each unpickles the source. To unpickle the queue imports the client and the codec. In the one
that passes the reader on, this would take more time than all the rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from yt_exactly_once.importing import uncollected
from yt_exactly_once.observability import Emitter, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.executors import require_version
from yt_exactly_once.spark.query.offset_log import QueueOffset
from yt_exactly_once.spark.source.range import PATIENCE
from yt_exactly_once.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.source.opening import OpenedQueue, OpenedTable
    from yt_exactly_once.spark.source.options import SourceOptions
    from yt_exactly_once.spark.source.rows import RowFormat
    from yt_exactly_once.ytsaurus.browsing import Cluster
    from yt_exactly_once.ytsaurus.queues import RemoteQueue
    from yt_exactly_once.ytsaurus.tables import TableInfo

T = TypeVar("T")


class PackedQueue:
    """An opened queue or table that is unpickled where it is used first; its schema is known before."""

    def __init__(self, opened: OpenedQueue | OpenedTable) -> None:
        self.spark_schema: StructType = opened.spark_schema
        self.is_queue = opened.is_queue
        self._version = VERSION
        self._opened: OpenedQueue | OpenedTable | bytes = opened

    @property
    def opened(self) -> OpenedQueue | OpenedTable:
        """The queue or the table; `ConfigError` if this process has another version of the package."""
        if isinstance(self._opened, bytes):
            require_version(self._version)
            with uncollected():
                self._opened = pickle.loads(self._opened)  # noqa: S301 - Spark unpickles the rest alike
            assert not isinstance(self._opened, bytes)
        return self._opened

    @property
    def queue(self) -> OpenedQueue:
        """The queue, where it is one."""
        return cast("OpenedQueue", self.opened)

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the queue as bytes."""
        opened = self._opened
        packed = opened if isinstance(opened, bytes) else pickle.dumps(opened)
        return {**vars(self), "_opened": packed}


class PatientQueue:
    """The queue of one query, for planning, following the consumer and telling the lag."""

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
        return QueueOffset(here.name, path, consumer, positions, positions, self.info.id, here.id)

    def stored(self, partitions: Collection[int]) -> dict[int, int]:
        """Return the offsets of the consumer, without partitions it was never moved in."""
        return self.call(partial(self.remote.stored_offsets, self.cluster.name, partitions))

    def call(self, call: Callable[[], T]) -> T:
        """Call the cluster again while it is away, for instance while a queue is resharded."""
        return run_attempts(lambda _number: call(), PATIENCE, self.emit, sleep=self.sleep)
