"""Planning of batches, and what the planning process does beside: it tells the lag and moves the consumer.

Nothing depends on when the consumer moves: Spark's log says where to read, and a sink of ours moves it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConflictError,
    ExactlyOnceError,
    OffsetConflictError,
    SchemaMismatchError,
)
from yt_exactly_once.observability import Emitter, Event, channel, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.offset_log import QueueOffset
from yt_exactly_once.spark.source.offsets import BEGIN_AGAIN, end_within, recreated, shared_tasks
from yt_exactly_once.spark.source.range import BYTES_PER_PULL, PATIENCE

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import PartitionRange
    from yt_exactly_once.spark.source.opening import OpenedQueue
    from yt_exactly_once.spark.source.packed import PackedQueue
    from yt_exactly_once.ytsaurus.queues import PartitionBounds, QueueState, RemoteQueue

T = TypeVar("T")

LOOK_INTERVAL = 1.0
"""Seconds after which a batch that was planned is not read before the queue was looked at again.

Usually Spark takes less time to log the batch.
"""

WEIGHT_INTERVAL = 60.0
"""Seconds between two looks at how heavy rows are: each costs a pull of a few rows."""

_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 2**20

REPORT_INTERVAL = 5.0
"""Seconds between two reports of a queue that had nothing new."""

AGE_INTERVAL = 10.0
"""Seconds between two looks at the age of the oldest unread row: each costs a pull of one row."""

CATCH_UP_INTERVAL = 1.0
"""Seconds between two looks at the consumer while batches follow each other without a pause.

Each look that finds it moved already doubles the time to the next one.
"""

LONGEST_CATCH_UP_INTERVAL = 30.0
"""Seconds between two looks at a consumer that was always found where it should be."""

_MOVES = 5
"""Attempts to advance a consumer that another client advances at the same time."""


class BatchPlanner:
    """The queue of one query, opened where it is used first, and the batches that a run plans of it."""

    def __init__(
        self, packed: PackedQueue, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._packed = packed
        self.clock = clock
        self.sleep = sleep
        self._target: list[int] | None = None
        self._seen: QueueState | None = None
        self._seen_at = self._next_weight = clock()
        self._row_bytes: float | None = None
        self._left_out: list[str] = []

    @property
    def opened(self) -> OpenedQueue:
        """The queue, as it was when the query was defined."""
        return cast("OpenedQueue", self._packed.opened)

    @property
    def remote(self) -> RemoteQueue:
        """The queue on the cluster."""
        return self.opened.queue

    @property
    def emit(self) -> Emitter:
        """Takes events. No attribute: the reader travels to the tasks."""
        return emitter(queue=self.remote.path, consumer=self.remote.consumer)

    def offset(self, positions: dict[int, int]) -> QueueOffset:
        """Return the offset at some rows, after an empty batch."""
        path, consumer = self.remote.path, self.remote.consumer
        here = self.opened.cluster
        return QueueOffset(
            here.name, path, consumer, positions, positions, self.opened.info.id, here.id
        )

    def stored(self, partitions: Collection[int]) -> dict[int, int]:
        """Return the offsets of the consumer, without partitions it was never moved in."""
        return self.call(partial(self.remote.stored_offsets, self.opened.cluster.name, partitions))

    def call(self, call: Callable[[], T]) -> T:
        """Call the cluster again while it is away, for instance while a queue is resharded."""
        return run_attempts(lambda _number: call(), PATIENCE, self.emit, sleep=self.sleep)

    @property
    def ends_here(self) -> bool:
        """Whether the run reads no further than to an end that is set."""
        return self._target is not None

    def set_end(self) -> None:
        """Note where the queue ends now: this run reads no further."""
        self._target = [bound.upper for bound in self.look()]

    def ends(
        self, here: Mapping[int, int], bounds: Sequence[PartitionBounds], *, limited: bool
    ) -> dict[int, int]:
        """Return where the next batch ends in each partition."""
        options, ends = self.opened.options, {}
        for partition, bound in enumerate(bounds):
            position, end = here.get(partition, 0), bound.upper
            if self._target is not None:
                is_known = partition < len(self._target)
                end = min(end, self._target[partition]) if is_known else position
            # Limits count rows that exist: trimmed ones are stepped over within one batch.
            first = max(position, bound.lower)
            if limited and end > first:
                if options.max_rows_per_partition is not None:
                    end = min(end, first + options.max_rows_per_partition)
                if options.max_bytes_per_partition is not None:
                    weight_until = partial(self._weight_until, partition)
                    end = end_within(weight_until, first, end, options.max_bytes_per_partition)
            ends[partition] = max(end, position)
        return ends

    def look(self) -> list[PartitionBounds]:
        """Return the bounds of the queue; raise `DataLossError` if another one has taken its place."""
        expected = (
            self.opened.info.tablet_count if self._seen is None else len(self._seen.partitions)
        )
        state = self.call(partial(self.remote.state, expected))
        if state.id != self.opened.info.id:
            remedy = (
                BEGIN_AGAIN
                if self.opened.options.fail_on_data_loss
                else "Load the queue again (spark.readStream ... load) and start the query; it then "
                "begins at the first row of the new queue"
            )
            raise recreated(self.remote.path, self.remote.consumer, remedy)
        self._seen, self._seen_at = state, self.clock()
        return state.partitions

    @cached_property
    def is_copy(self) -> bool:
        """Whether the queue has rows from before it was made, which the query may have read."""
        if not self.opened.rows.has_timestamps:
            return False
        return any(
            (stamp := self.call(partial(self._committed_at, partition, bound.lower))) is not None
            and self.call(partial(self.remote.is_copied, stamp))
            for partition, bound in enumerate(self.look())
            if bound.lower < bound.upper
        )

    def _committed_at(self, partition: int, row: int) -> float | None:
        return self.opened.rows.committed_at(self.remote.pull(partition, row, 1, BYTES_PER_PULL))

    def shared(self, ranges: Sequence[PartitionRange]) -> tuple[tuple[int, ...], ...]:
        """Return which partitions share a task; none where it is not known how heavy their rows are."""
        most = self.opened.options.shared_task_rows
        if not shared_tasks(ranges, most):
            return ()
        if self._row_bytes is None or self.clock() >= self._next_weight:
            self._next_weight = self.clock() + WEIGHT_INTERVAL
            sample = max(ranges, key=lambda wanted: wanted.end - wanted.start)
            # No retries: a batch does not depend on it.
            with suppress(ExactlyOnceError):
                payload = self.remote.pull(
                    sample.partition, sample.start, _SAMPLE_ROWS, _SAMPLE_BYTES
                )
                _, indexes, _ = self.opened.rows.decode(payload)
                self._row_bytes = len(payload) / len(indexes) if len(indexes) else None
        if self._row_bytes is None:
            return ()
        return shared_tasks(ranges, min(most, int(BYTES_PER_PULL / self._row_bytes)))

    def _weight_until(self, partition: int, row: int) -> int:
        """Return the cumulative weight stored in a row, waiting for a row that is late."""

        def weight() -> int:
            found = self.opened.rows.weight(self.remote.pull(partition, row, 1, BYTES_PER_PULL))
            if found is None:
                raise ClusterUnavailableError(
                    f"Row {row} of partition {partition} is committed and not visible yet",
                    remedy="Check the health of the tablet",
                    queue=self.remote.path,
                )
            return found

        return self.call(weight)

    def require_unchanged(self) -> None:
        """Check, before a batch is read, that the queue still is what the query was defined over.

        It may have got columns, which the query reads from its next start on. Otherwise its columns have
        changed (`SchemaMismatchError`), or it is another one (`DataLossError`).
        """
        if self._seen is None or self.clock() >= self._seen_at + LOOK_INTERVAL:
            self.look()
        assert self._seen is not None
        old, new = self.opened.info.schema, self._seen.schema
        names = {column["name"] for column in old}
        if [column for column in new if column["name"] in names] != old:
            raise SchemaMismatchError(
                f"The queue's schema changed under the running query: {_describe_change(old, new)}",
                remedy="Load the queue again (spark.readStream ... load) and start the query; the batch is "
                "read with the new schema",
                queue=self.remote.path,
            )
        left_out = [column["name"] for column in new if column["name"] not in names]
        if left_out != self._left_out:
            self._left_out = left_out
            self.emit(Event.SOURCE_COLUMNS_LEFT_OUT, columns=left_out)


class LagReport:
    """Tells how many rows, and how many seconds, a query is behind after each batch it plans."""

    def __init__(self, queue: BatchPlanner) -> None:
        self._queue = queue
        self._bounds: Sequence[PartitionBounds] | None = None
        self._behind: list[int] = []
        self._next_report = self._next_age = queue.clock()
        self._age: float | None = None

    def emit(
        self, start: Mapping[int, int], bounds: Sequence[PartitionBounds], ends: Mapping[int, int]
    ) -> None:
        """Emit how far the query is behind: with every batch, and now and then while there is none."""
        self._bounds = bounds
        # Trimmed rows do not count.
        self._behind = [
            max(bound.upper - max(ends.get(partition, 0), bound.lower), 0)
            for partition, bound in enumerate(bounds)
        ]
        rows = sum(end - start.get(partition, 0) for partition, end in ends.items())
        if not rows and self._queue.clock() < self._next_report:
            return
        self._next_report = self._queue.clock() + REPORT_INTERVAL
        self._queue.emit(
            Event.SOURCE_LOOKED,
            rows=rows,
            rows_behind=self.rows_behind,
            seconds_behind=self._seconds_behind(ends),
            partitions=len(self._behind),
        )

    @property
    def rows_behind(self) -> int:
        """Rows after the batch that was planned last."""
        return sum(self._behind)

    def progress(self) -> dict[str, Any] | None:
        """Return where the queue ended when it was last looked at, and how many rows are after the batch.

        In total, and the most and the average of a partition.
        """
        if self._bounds is None:
            return None
        ends = {partition: bound.upper for partition, bound in enumerate(self._bounds)}
        return {
            **self._queue.offset(ends).to_json(),
            "behind": {
                "rows": self.rows_behind,
                "max": max(self._behind, default=0),
                "avg": round(sum(self._behind) / max(len(self._behind), 1), 1),
            },
        }

    def _seconds_behind(self, ends: Mapping[int, int]) -> float | None:
        """Return the age of the first row after the batch, in the partition that is most behind.

        Only for a driver that listens, since it costs a request; `None` if it is not known.
        """
        if not any(self._behind):
            return 0.0
        if not (channel.is_open() and self._queue.opened.rows.has_timestamps):
            return None
        if self._queue.clock() >= self._next_age:
            self._next_age = self._queue.clock() + AGE_INTERVAL
            partition = self._behind.index(max(self._behind))
            # No retries: a number on a chart must not delay the batch.
            with suppress(ExactlyOnceError):
                pulled = self._queue.remote.pull(partition, ends[partition], 1, BYTES_PER_PULL)
                committed = self._queue.opened.rows.committed_at(pulled)
                self._age = None if committed is None else max(0.0, time.time() - committed)
        return self._age


class ConsumerFollower:
    """Moves the consumer of one query to the batches that Spark has committed."""

    def __init__(self, queue: BatchPlanner) -> None:
        self._queue = queue
        self._interval = CATCH_UP_INTERVAL
        self._next = queue.clock()
        self._committed: QueueOffset | None = None
        self._caught_up: QueueOffset | None = None

    def note_committed(self, offset: QueueOffset) -> None:
        """Remember where the newest committed batch ends."""
        if offset != self._caught_up:
            self._committed = offset

    def move_when_due(self, *, is_last: bool, is_idle: bool = False) -> None:
        """Advance a lagging consumer: at once when the queue is idle, unless a sink already advances it.

        If another client keeps moving it, and it still lags, raise `OffsetConflictError`.

        Args:
            is_last: whether the run ends here, so that there is no later chance.
            is_idle: whether the queue has nothing new.
        """
        without_wait = is_idle and (is_last or self._interval == CATCH_UP_INTERVAL)
        if self._committed is None or not (without_wait or self._queue.clock() >= self._next):
            return
        # The first look of a run may be at a batch of the run before, and tells nothing of this run's sink.
        is_first = self._caught_up is None
        was_behind = self._move(self._committed)
        self._caught_up, self._committed = self._committed, None
        self._interval = (
            CATCH_UP_INTERVAL
            if was_behind or is_first
            else min(2 * self._interval, LONGEST_CATCH_UP_INTERVAL)
        )
        self._next = self._queue.clock() + self._interval

    def take_back(self, positions: Mapping[int, int]) -> None:
        """Take the consumer back from its offsets in a queue that was replaced.

        At its old offset, a vital consumer would let the new queue trim rows that nobody has read.
        """
        stored = self._queue.stored(positions.keys())
        for partition, row in positions.items():
            if stored.get(partition, 0) > row:
                self._advance(partition, stored[partition], row)

    def _move(self, offset: QueueOffset) -> bool:
        """Advance the consumer to an offset where it lags; return whether it did."""
        if self._queue.remote.consumer is None:
            return False
        was_behind = False
        for tries_left in reversed(range(_MOVES)):
            stored = self._queue.stored(offset.partitions)
            try:
                for partition, end in offset.partitions.items():
                    current = stored.get(partition, 0)
                    if current < end:
                        was_behind = True
                        self._advance(partition, current, end)
                break
            except (OffsetConflictError, ConflictError):
                # Another client moved it in between: read it again, there may be nothing left to do.
                if not tries_left:
                    raise
        return was_behind

    def _advance(self, partition: int, current: int, row: int) -> None:
        self._queue.call(partial(self._queue.remote.advance, partition, current, row))


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
