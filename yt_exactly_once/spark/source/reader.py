"""The stream reader: what Spark asks of a source, batch by batch.

Spark's offset decides what is read. The consumer is read once, when a query has no offset yet, and advanced
afterwards. Planning runs in one Python process per query, `read` in the tasks. A replayed batch is planned
from its logged offset alone, so it has the same rows. If the sink skips it, its rows need not exist any more.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader

from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConfigError,
    ConflictError,
    ExactlyOnceError,
    NotAQueueError,
    OffsetConflictError,
    SchemaMismatchError,
)
from yt_exactly_once.observability import Event, channel, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.queue_offset import QueueOffset
from yt_exactly_once.spark.source.offsets import (
    BEGIN_AGAIN,
    ENDING_OPTION,
    check_reachable,
    end_within,
    first_positions,
    recreated,
    shared_tasks,
)
from yt_exactly_once.spark.source.options import StartingPoint
from yt_exactly_once.spark.source.range import BYTES_PER_PULL, PATIENCE, QueueTask, RangeReader
from yt_exactly_once.spark.versions import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from yt_exactly_once.spark.worker import keep_freed_memory, spare_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import PartitionRange
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.source.options import SourceOptions
    from yt_exactly_once.spark.source.packed import PackedQueue
    from yt_exactly_once.spark.source.rows import RowFormat
    from yt_exactly_once.ytsaurus.queues import PartitionBounds, QueueState, RemoteQueue
    from yt_exactly_once.ytsaurus.tables import TableInfo

T = TypeVar("T")

IDLE_INTERVAL = 0.1
"""Seconds between two looks at a queue that had nothing new; Spark itself asks every 10 ms."""

LOOK_INTERVAL = 1.0
"""Seconds after which a batch that was planned is not read before the queue was looked at again.

Usually Spark takes less time to log the batch.
"""

CATCH_UP_INTERVAL = 1.0
"""Seconds between two looks at the consumer while batches follow each other without a pause.

Nothing depends on it: Spark's log says where to read, and a sink of ours moves the consumer itself. Each
look that finds it moved already doubles the time to the next one.
"""

LONGEST_CATCH_UP_INTERVAL = 30.0
"""Seconds between two looks at a consumer that was always found where it should be."""

REPORT_INTERVAL = 5.0
"""Seconds between two reports of a queue that had nothing new."""

AGE_INTERVAL = 10.0
"""Seconds between two looks at the age of the oldest unread row: each costs a pull of one row."""

WEIGHT_INTERVAL = 60.0
"""Seconds between two looks at how heavy rows are: each costs a pull of a few rows."""

_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 2**20

_MOVES = 5
"""Attempts to advance a consumer that another client advances at the same time."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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
        self._packed = packed
        self._clock = clock
        self._sleep = sleep
        self._initial: dict[str, Any] | None = None
        self._target: list[int] | None = None
        self._bounds: list[PartitionBounds] | None = None
        self._seen: QueueState | None = None
        self._seen_at = clock()
        self._idle_since: float | None = None
        self._catch_up_interval = CATCH_UP_INTERVAL
        self._next_catch_up = clock()
        self._committed: QueueOffset | None = None
        self._caught_up: QueueOffset | None = None
        self._planned: dict[int, int] | None = None
        self._next_report = self._next_age = self._next_weight = clock()
        self._age: float | None = None
        self._row_bytes: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins; decided once per run.

        Spark asks several times before the first batch; an answer that moved with the queue would
        lose what arrived in between.
        """
        if self._initial is None:
            starting = self._options.starting_offsets
            committed = starting is StartingPoint.COMMITTED
            bounds = self._look()
            positions = first_positions(
                starting,
                bounds,
                self._stored(range(len(bounds))) if committed else {},
                queue=self._queue.path,
            )
            self._initial = self._offset(positions).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch; ours hold per queue partition."""
        if self._options.max_rows_per_partition is not None:
            return ReadMaxRows(self._options.max_rows_per_partition)
        if self._options.max_bytes_per_partition is not None:
            return ReadMaxBytes(self._options.max_bytes_per_partition)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the queue ends now: this run reads no further."""
        self._target = [bound.upper for bound in self._look()]

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Plan the end of the next batch; `start` itself when there is nothing new.

        Raises:
            ConfigError: the checkpoint belongs to another queue, consumer or cluster.
            DataLossError: rows from `start` on are gone, or the queue was recreated.
        """
        return self._next_offset(start, limited=not isinstance(limit, ReadAllAvailable))

    def _next_offset(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        here = self._logged(start)
        self._wait_when_idle()
        bounds = self._bounds = self._look()
        is_recreated = here.queue_id != self._info.id
        if is_recreated:
            here = self._at_the_beginning(bounds)
        check_reachable(here, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
        ends = {
            partition: self._end(
                partition, here.partitions.get(partition, 0), bound, limited=limited
            )
            for partition, bound in enumerate(bounds)
        }
        if all(end == here.partitions.get(partition, 0) for partition, end in ends.items()):
            self._idle_since = self._clock()
            self._report(here.partitions, bounds, ends)
            if here.partitions != here.start:
                # Spark reports a batch as committed with the next one, and the last of an AvailableNow run
                # never. That it plans the next one from here says the same.
                self._note_committed(here)
            self._catch_up_when_due(is_idle=True)
            return start
        self._idle_since = None
        if is_recreated:
            self._begin_again(self._logged(start), here)
        self._report(here.partitions, bounds, ends)
        planned = here.advanced(ends, self._info.id)
        return replace(planned, shared=self._shared(planned.ranges())).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the queue ended when it was last looked at, for the query's progress.

        Spark takes no metrics from a source in Python. So `behind` is here: how many rows of the queue are
        after the batch, in total, and the most and the average of a partition.
        """
        if self._bounds is None:
            return None
        ends = {partition: bound.upper for partition, bound in enumerate(self._bounds)}
        behind = _behind(self._bounds, self._planned or {})
        return {
            **self._offset(ends).to_json(),
            "behind": {
                "rows": sum(behind),
                "max": max(behind, default=0),
                "avg": round(sum(behind) / max(len(behind), 1), 1),
            },
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[QueueTask]:
        """Split a batch into tasks: of one queue partition, or of several with few rows.

        A task keeps the order of each queue partition. `end` has which partitions share a task, so a replay
        has the same tasks. It has the ranges too. For the first batch of a query, Spark asks for `start`
        again on every restart, and the consumer may have moved since.

        Raises:
            ConfigError: the checkpoint belongs to another queue, consumer or cluster.
            SchemaMismatchError: the queue's columns changed under the running query.
            DataLossError: the queue was recreated under the running query.
        """
        if start == end:
            return []
        logged = self._logged(end)
        if logged.queue_id != self._info.id:
            # A batch that was planned before the queue was removed: nothing of it is left.
            self._require_loss_is_allowed()
            return []
        self._require_unchanged()
        return [QueueTask(ranges) for ranges in logged.tasks()]

    def read(self, partition: QueueTask) -> Iterator[RecordBatch]:  # type: ignore[override]
        """Yield the rows of a task, in order, each once; see `RangeReader.read`."""
        spare_modules()
        keep_freed_memory()
        reader = RangeReader(
            queue=self._queue,
            decode=self._rows.decode,
            emit=self._emit,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return reader.read(partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Advance the consumer to `end` where it lags; our sink has usually done that.

        While there is always something to read, the consumer is read at most once a second. Where a sink
        advances it, it is read less often.

        Raises:
            OffsetConflictError: another client keeps moving the consumer, and it still lags.
        """
        offset = QueueOffset.from_json(end)
        if offset.queue_id != self._info.id:
            return
        self._note_committed(offset)
        self._catch_up_when_due()

    def _note_committed(self, offset: QueueOffset) -> None:
        if offset != self._caught_up:
            self._committed = offset

    def _catch_up_when_due(self, *, is_idle: bool = False) -> None:
        """Advance a lagging consumer: at once when the queue is idle, unless a sink already advances it.

        At the end of an AvailableNow run it is the last chance.
        """
        is_last = self._target is not None
        at_once = is_idle and (is_last or self._catch_up_interval == CATCH_UP_INTERVAL)
        if self._committed is None or not (at_once or self._clock() >= self._next_catch_up):
            return
        # The first look of a run may be at a batch of the run before, and tells nothing of this run's sink.
        is_first = self._caught_up is None
        was_behind = self._catch_up(self._committed)
        self._caught_up, self._committed = self._committed, None
        self._catch_up_interval = (
            CATCH_UP_INTERVAL
            if was_behind or is_first
            else min(2 * self._catch_up_interval, LONGEST_CATCH_UP_INTERVAL)
        )
        self._next_catch_up = self._clock() + self._catch_up_interval

    @property
    def _options(self) -> SourceOptions:
        return self._packed.queue.options

    @property
    def _queue(self) -> RemoteQueue:
        return self._packed.queue.queue

    @property
    def _cluster(self) -> str:
        return self._packed.queue.cluster

    @property
    def _info(self) -> TableInfo:
        return self._packed.queue.info

    @property
    def _rows(self) -> RowFormat:
        return self._packed.queue.rows

    @property
    def _emit(self) -> Emitter:
        # No attribute: the reader travels to the tasks.
        return emitter(queue=self._queue.path, consumer=self._queue.consumer)

    def _report(
        self, start: dict[int, int], bounds: Sequence[PartitionBounds], ends: dict[int, int]
    ) -> None:
        """Emit how far the query is behind: with every batch, and now and then while there is none."""
        self._planned = ends
        rows = sum(end - start.get(partition, 0) for partition, end in ends.items())
        if not rows and self._clock() < self._next_report:
            return
        self._next_report = self._clock() + REPORT_INTERVAL
        behind = _behind(bounds, ends)
        self._emit(
            Event.SOURCE_LOOKED,
            rows=rows,
            rows_behind=sum(behind),
            seconds_behind=self._seconds_behind(ends, behind),
            partitions=len(behind),
        )

    def _seconds_behind(self, ends: dict[int, int], behind: list[int]) -> float | None:
        """Return the age of the first row after the batch, in the partition that is most behind.

        Only for a driver that listens, since it costs a request; `None` if it is not known.
        """
        if not any(behind):
            return 0.0
        if not (channel.is_open() and self._rows.has_timestamps):
            return None
        if self._clock() >= self._next_age:
            self._next_age = self._clock() + AGE_INTERVAL
            partition = behind.index(max(behind))
            # No retries: a number on a chart must not delay the batch.
            with suppress(ExactlyOnceError):
                pulled = self._queue.pull(partition, ends[partition], 1, BYTES_PER_PULL)
                committed = self._rows.committed_at(pulled)
                self._age = None if committed is None else max(0.0, time.time() - committed)
        return self._age

    def _offset(self, positions: dict[int, int]) -> QueueOffset:
        path, consumer = self._queue.path, self._queue.consumer
        return QueueOffset(self._cluster, path, consumer, positions, positions, self._info.id)

    def _look(self) -> list[PartitionBounds]:
        """Return the bounds of the queue that the query was defined over.

        Raises:
            DataLossError: another queue has taken its place since.
        """
        expected = self._info.tablet_count if self._seen is None else len(self._seen.partitions)
        state = self._patiently(partial(self._queue.state, expected))
        self._require_same_queue(state.id)
        self._seen, self._seen_at = state, self._clock()
        return state.partitions

    def _at_the_beginning(self, bounds: Sequence[PartitionBounds]) -> QueueOffset:
        """Return the first position in a queue that took the place of the one that was read."""
        self._require_loss_is_allowed()
        return self._offset({index: bound.lower for index, bound in enumerate(bounds)})

    def _begin_again(self, left: QueueOffset, here: QueueOffset) -> None:
        """Emit the change, and take the consumer back from its offset in the old queue.

        At its old offset, a vital consumer would let the new queue trim rows that nobody has read.
        """
        self._emit(
            Event.SOURCE_QUEUE_REPLACED,
            old_id=left.queue_id,
            new_id=here.queue_id,
            left=left.partitions,
            begins=here.partitions,
        )
        stored = self._stored(here.partitions)
        for partition, row in here.partitions.items():
            if stored.get(partition, 0) > row:
                self._patiently(partial(self._queue.advance, partition, stored[partition], row))

    def _logged(self, offset: dict[str, Any]) -> QueueOffset:
        logged = QueueOffset.from_json(offset)
        logged.require_same_source(self._cluster, self._queue.path, self._queue.consumer)
        return logged

    def _wait_when_idle(self) -> None:
        if self._idle_since is not None and self._target is None:
            left = self._idle_since + IDLE_INTERVAL - self._clock()
            if left > 0:
                self._sleep(left)

    def _end(self, partition: int, position: int, bound: PartitionBounds, *, limited: bool) -> int:
        """Return where the next batch ends in one partition."""
        end = bound.upper
        if self._target is not None:
            end = min(end, self._target[partition]) if partition < len(self._target) else position
        # Limits count rows that exist: trimmed ones are stepped over within one batch.
        first = max(position, bound.lower)
        if limited and end > first:
            if self._options.max_rows_per_partition is not None:
                end = min(end, first + self._options.max_rows_per_partition)
            if self._options.max_bytes_per_partition is not None:
                end = end_within(
                    lambda row: self._weight_until(partition, row),
                    first,
                    end,
                    self._options.max_bytes_per_partition,
                )
        return max(end, position)

    def _shared(self, ranges: Sequence[PartitionRange]) -> tuple[tuple[int, ...], ...]:
        """Return which partitions share a task; none where it is not known how heavy their rows are."""
        shared = shared_tasks(ranges, self._options.shared_task_rows)
        if not shared:
            return ()
        row_bytes = self._look_at_weight(max(ranges, key=lambda wanted: wanted.end - wanted.start))
        if row_bytes is None:
            return ()
        return shared_tasks(
            ranges, min(self._options.shared_task_rows, int(BYTES_PER_PULL / row_bytes))
        )

    def _look_at_weight(self, sample: PartitionRange) -> float | None:
        """Return how many bytes of a pull a row takes, on average; `None` if it is not known."""
        if self._row_bytes is None or self._clock() >= self._next_weight:
            self._next_weight = self._clock() + WEIGHT_INTERVAL
            # No retries: a batch does not depend on it.
            with suppress(ExactlyOnceError):
                payload = self._queue.pull(
                    sample.partition, sample.start, _SAMPLE_ROWS, _SAMPLE_BYTES
                )
                _, indexes, _ = self._rows.decode(payload)
                self._row_bytes = len(payload) / len(indexes) if len(indexes) else None
        return self._row_bytes

    def _weight_until(self, partition: int, row: int) -> int:
        """Return the cumulative weight stored in a row, waiting for a row that is late."""

        def weight() -> int:
            found = self._rows.weight(self._queue.pull(partition, row, 1, BYTES_PER_PULL))
            if found is None:
                raise ClusterUnavailableError(
                    f"Row {row} of partition {partition} is committed and not visible yet",
                    remedy="Check the health of the tablet",
                    queue=self._queue.path,
                )
            return found

        return self._patiently(weight)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call the cluster again while it is away, for instance while a queue is resharded."""
        return run_attempts(lambda _number: call(), PATIENCE, self._emit, sleep=self._sleep)

    def _stored(self, partitions: Collection[int]) -> dict[int, int]:
        return self._patiently(partial(self._queue.stored_offsets, self._cluster, partitions))

    def _require_unchanged(self) -> None:
        if self._seen is None or self._clock() >= self._seen_at + LOOK_INTERVAL:
            self._look()
        assert self._seen is not None
        if self._seen.schema != self._info.schema:
            raise SchemaMismatchError(
                "The queue's schema changed under the running query: "
                + _describe_change(self._info.schema, self._seen.schema),
                remedy="Load the queue again (spark.readStream ... load) and start the query; the batch is "
                "read with the new schema",
                queue=self._queue.path,
            )

    def _require_same_queue(self, queue_id: str) -> None:
        if queue_id != self._info.id:
            remedy = (
                BEGIN_AGAIN
                if self._options.fail_on_data_loss
                else "Load the queue again (spark.readStream ... load) and start the query; it then "
                "begins at the first row of the new queue"
            )
            raise recreated(self._queue.path, self._queue.consumer, remedy)

    def _require_loss_is_allowed(self) -> None:
        if self._options.fail_on_data_loss:
            remedy = (
                "Set fail_on_data_loss to false: the query continues at the first row of the new queue, and "
                f"takes the consumer back there. Leave the consumer where it is. {BEGIN_AGAIN}"
            )
            raise recreated(self._queue.path, self._queue.consumer, remedy)

    def _catch_up(self, offset: QueueOffset) -> bool:
        """Advance the consumer to an offset where it lags; return whether it did."""
        if self._queue.consumer is None:
            return False
        was_behind = False
        for tries_left in reversed(range(_MOVES)):
            stored = self._stored(offset.partitions)
            try:
                for partition, end in offset.partitions.items():
                    current = stored.get(partition, 0)
                    if current < end:
                        was_behind = True
                        self._patiently(partial(self._queue.advance, partition, current, end))
                break
            except (OffsetConflictError, ConflictError):
                # Another client moved it in between: read it again, there may be nothing left to do.
                if not tries_left:
                    raise
        return was_behind


class SelfLimitingReader(QueueStreamReader):
    """The reader for a Spark without admission control, which gives `latestOffset` neither start nor limit.

    After a restart, Spark hands over its newest logged offset, and then both ends of each batch that it
    plans. The position is where the last batch ended. The limits of the options hold. With the trigger
    AvailableNow such a Spark asks once, so the run is one batch.
    """

    _position: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name
        """Plan the end of the next batch; see `QueueStreamReader.latestOffset`."""
        start = self.initialOffset() if self._position is None else self._position
        return self._next_offset(start, limited=True)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[QueueTask]:
        """Split a batch into tasks; see `QueueStreamReader.partitions`."""
        self._position = end
        return super().partitions(start, end)


def reader_of(
    packed: PackedQueue, schema: StructType, options: Mapping[str, str]
) -> QueueStreamReader:
    """Return a reader, of the kind that the installed version of Spark asks.

    Raises:
        NotAQueueError: the table is no queue.
        ConfigError: an option is for batch reads.
        SchemaMismatchError: the query was given a schema of its own, and it is another one.
    """
    if not packed.is_queue:
        raise NotAQueueError(
            "Only a queue, which is an ordered dynamic table, can be read as a stream",
            remedy="Use spark.read for this table, or pass the path of a queue",
            path=packed.opened.options.path,
        )
    if any(name.lower() == ENDING_OPTION for name in options):
        raise ConfigError(
            f"A stream has no {ENDING_OPTION}",
            remedy="Remove it, or use spark.read to read a part of the queue once",
            option=ENDING_OPTION,
        )
    if schema != packed.spark_schema:
        raise SchemaMismatchError(
            f"The query reads the queue as {schema.simpleString()}, and its columns are "
            f"{packed.spark_schema.simpleString()}",
            remedy="Leave .schema(...) out and select or cast the columns afterwards",
            queue=packed.queue.options.path,
        )
    kind = QueueStreamReader if HAS_ADMISSION_CONTROL else SelfLimitingReader
    return kind(packed)


def _behind(bounds: Sequence[PartitionBounds], ends: Mapping[int, int]) -> list[int]:
    """Return how many rows each partition has after a batch; trimmed ones do not count."""
    return [
        max(bound.upper - max(ends.get(partition, 0), bound.lower), 0)
        for partition, bound in enumerate(bounds)
    ]


def _describe_change(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    before = {column["name"]: column for column in old}
    after = {column["name"]: column for column in new}
    changes = [
        *(f"{name} was removed" for name in before if name not in after),
        *(f"{name} was added" for name in after if name not in before),
        *(
            f"{name} was changed"
            for name in after
            if name in before and before[name] != after[name]
        ),
    ]
    return ", ".join(changes) or "the columns changed places"
