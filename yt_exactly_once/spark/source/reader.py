"""The stream reader: what Spark asks of a source, batch by batch.

Spark's offset decides what is read. The consumer is read once, when a query has no offset yet, and advanced
afterwards. Planning runs in one Python process per query, `read` in the tasks. A replayed batch is planned
from its logged offset alone, so it has the same rows. If the sink skips it, its rows need not exist any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from yt_exactly_once.errors import ConfigError, NotAQueueError, SchemaMismatchError
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.compat import versions
from yt_exactly_once.spark.query.offset_log import QueueOffset
from yt_exactly_once.spark.source import offsets
from yt_exactly_once.spark.source.options import StartingPoint
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.planning import BatchPlanner, ConsumerFollower, LagReport
from yt_exactly_once.spark.source.range import RangeReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

if TYPE_CHECKING or versions.HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming import datasource as admission

    _Admitted = admission.SupportsTriggerAvailableNow
else:
    _Admitted = object

IDLE_INTERVAL = 0.1
"""Seconds between two looks at a queue that had nothing new; Spark itself asks every 10 ms."""


class QueueStreamReader(DataSourceStreamReader, _Admitted):
    """Reads one queue for one query.

    Args:
        packed: the queue, as it was when the query was defined.
        clock: seconds that never go back.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        packed: PackedQueue,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._queue = BatchPlanner(packed, clock, sleep)
        self._follower = ConsumerFollower(self._queue)
        self._lag = LagReport(self._queue)
        self._initial: dict[str, Any] | None = None
        self._idle_since: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins; decided once per run.

        Spark asks several times before the first batch; an answer that moved with the queue would
        lose what arrived in between.
        """
        if self._initial is None:
            starting = self._queue.opened.options.starting_offsets
            committed = starting is StartingPoint.COMMITTED
            bounds = self._queue.look()
            positions = offsets.chosen_rows(
                starting,
                bounds,
                self._queue.stored(range(len(bounds))) if committed else {},
                queue=self._queue.remote.path,
            )
            self._initial = self._queue.offset(positions).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> admission.ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch; ours hold per queue partition."""
        if self._queue.opened.options.max_rows_per_partition is not None:
            return admission.ReadMaxRows(self._queue.opened.options.max_rows_per_partition)
        if self._queue.opened.options.max_bytes_per_partition is not None:
            return admission.ReadMaxBytes(self._queue.opened.options.max_bytes_per_partition)
        return admission.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the queue ends now: this run reads no further."""
        self._queue.set_end()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: admission.ReadLimit
    ) -> dict[str, Any]:
        """Plan the end of the next batch; `start` itself when there is nothing new.

        Raises:
            ConfigError: the checkpoint belongs to another queue, consumer or cluster.
            DataLossError: rows from `start` on are gone, or the queue was recreated.
        """
        return self._next_offset(start, limited=not isinstance(limit, admission.ReadAllAvailable))

    def _next_offset(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        here = self._logged(start)
        self._wait_when_idle()
        bounds = self._queue.look()
        is_recreated = here.queue_id != self._queue.opened.info.id
        if is_recreated:
            self._require_loss_is_allowed()
            here = self._queue.offset({index: bound.lower for index, bound in enumerate(bounds)})
        offsets.check_reachable(
            here, bounds, fail_on_data_loss=self._queue.opened.options.fail_on_data_loss
        )
        ends = self._queue.ends(here.partitions, bounds, limited=limited)
        if all(end == here.partitions.get(partition, 0) for partition, end in ends.items()):
            self._idle_since = self._queue.clock()
            self._lag.emit(here.partitions, bounds, ends)
            if here.partitions != here.start:
                # Spark reports a batch as committed with the next one, and the last of an AvailableNow run
                # never. That it plans the next one from here says the same.
                self._follower.note_committed(here)
            self._follower.move_when_due(is_last=self._queue.ends_here, is_idle=True)
            return start
        self._idle_since = None
        if is_recreated:
            left = self._logged(start)
            self._queue.emit(
                Event.SOURCE_QUEUE_REPLACED,
                old_id=left.queue_id,
                new_id=here.queue_id,
                left=left.partitions,
                begins=here.partitions,
            )
            self._follower.take_back(here.partitions)
        self._lag.emit(here.partitions, bounds, ends)
        planned = here.advanced(ends, self._queue.opened.info.id)
        return replace(planned, shared=self._queue.shared(planned.ranges())).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the queue ended when it was last looked at, for the query's progress.

        Spark takes no metrics from a source in Python. So `behind` is here.
        """
        return self._lag.progress()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a batch into tasks: of one queue partition, or of several with few rows.

        A task keeps the order of each queue partition. `end` has which partitions share a task, so a replay
        has the same tasks. It has the ranges too. For the first batch of a query, Spark asks for `start`
        again on every restart, and the consumer may have moved since.

        Raises what `latestOffset` raises, and `SchemaMismatchError` if the queue's columns have changed.
        """
        if start == end:
            return []
        logged = self._logged(end)
        if logged.queue_id != self._queue.opened.info.id:
            # A batch that was planned before the queue was removed: nothing of it is left.
            self._require_loss_is_allowed()
            return []
        self._queue.require_unchanged()
        return [InputPartition(tuple(ranges)) for ranges in logged.tasks()]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a task, in order, each once; see `RangeReader.read`."""
        opened = self._queue.opened
        return RangeReader.in_task(opened.queue, opened.rows, opened.options).read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Advance the consumer to `end` where it lags; our sink has usually done that.

        While there is always something to read, the consumer is read at most once a second. Where a sink
        advances it, it is read less often. See `ConsumerFollower.move_when_due`.
        """
        offset = QueueOffset.from_json(end)
        if offset.queue_id != self._queue.opened.info.id:
            return
        self._follower.note_committed(offset)
        self._follower.move_when_due(is_last=self._queue.ends_here)

    def _logged(self, offset: dict[str, Any]) -> QueueOffset:
        logged = QueueOffset.from_json(offset)
        cluster, remote = self._queue.opened.cluster, self._queue.remote
        # The table that was at the path may have been moved since, and a link put there.
        given = self._queue.opened.options.path
        path = given if logged.queue == given else remote.path
        logged.require_same_source(cluster, path, remote.consumer)
        return replace(logged, queue=remote.path)

    def _wait_when_idle(self) -> None:
        if self._idle_since is not None and not self._queue.ends_here:
            left = self._idle_since + IDLE_INTERVAL - self._queue.clock()
            if left > 0:
                self._queue.sleep(left)

    def _require_loss_is_allowed(self) -> None:
        if self._queue.is_copy:
            raise offsets.copied(self._queue.remote.path, self._queue.remote.consumer)
        if self._queue.opened.options.fail_on_data_loss:
            remedy = (
                "Rows of the old queue that were not read are lost, unless it is put back. Set "
                "fail_on_data_loss to false: the query continues at the first row of the new queue, and "
                f"takes the consumer back there. Leave the consumer where it is. {offsets.BEGIN_AGAIN}"
            )
            raise offsets.recreated(self._queue.remote.path, self._queue.remote.consumer, remedy)


class SelfLimitingReader(QueueStreamReader):
    """The reader for a Spark without admission control, which gives `latestOffset` neither start nor limit.

    After a restart, Spark hands over its newest logged offset, and then both ends of each batch that it
    plans. The position is where the last batch ended. The limits of the options hold. With the trigger
    AvailableNow such a Spark asks once, so the run is one batch. It does not tell the source its trigger.
    """

    _position: dict[str, Any] | None = None
    _has_planned = False

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name
        """Plan the end of the next batch; see `QueueStreamReader.latestOffset`."""
        start = self.initialOffset() if self._position is None else self._position
        end = self._next_offset(start, limited=True)
        left = self._lag.rows_behind
        if left and not self._has_planned:
            self._queue.emit(
                Event.SOURCE_RUN_LIMITED,
                rows_left=left,
                remedy="Only with the trigger availableNow: this version of Spark ends the run after this "
                "batch. Start it again for the rows that are left, or use query.processAllAvailable() with "
                "another trigger, or no limit",
            )
        self._has_planned = True
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a batch into tasks; see `QueueStreamReader.partitions`."""
        self._position = end
        return super().partitions(start, end)


def reader_of(
    packed: PackedQueue, schema: StructType, options: Mapping[str, str]
) -> QueueStreamReader:
    """Return a reader, of the kind that the installed version of Spark asks.

    Raise `NotAQueueError` for another table, `ConfigError` for an option of batch reads, and
    `SchemaMismatchError` if the query was given another schema of its own.
    """
    if not packed.is_queue:
        raise NotAQueueError(
            "Only a queue, which is an ordered dynamic table, can be read as a stream",
            remedy="Use spark.read for this table, or pass the path of a queue",
            path=packed.opened.options.path,
        )
    if any(name.lower() == offsets.ENDING_OPTION for name in options):
        raise ConfigError(
            f"A stream has no {offsets.ENDING_OPTION}",
            remedy="Remove it, or use spark.read to read a part of the queue once",
            option=offsets.ENDING_OPTION,
        )
    if schema != packed.spark_schema:
        raise SchemaMismatchError(
            f"The query reads the queue as {schema.simpleString()}, and its columns are "
            f"{packed.spark_schema.simpleString()}",
            remedy="Leave .schema(...) out and select or cast the columns afterwards",
            queue=packed.opened.options.path,
        )
    kind = QueueStreamReader if versions.HAS_ADMISSION_CONTROL else SelfLimitingReader
    return kind(packed)
