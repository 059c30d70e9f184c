"""The consumer of a source that follows the query: moved where the sink has not moved it.

Nothing depends on when: Spark's log says where to read, and a sink of ours moves the consumer itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from yt_exactly_once.errors import ConflictError, OffsetConflictError
from yt_exactly_once.spark.query.offset_log import QueueOffset
from yt_exactly_once.spark.source.packed import PatientQueue

CATCH_UP_INTERVAL = 1.0
"""Seconds between two looks at the consumer while batches follow each other without a pause.

Each look that finds it moved already doubles the time to the next one.
"""

LONGEST_CATCH_UP_INTERVAL = 30.0
"""Seconds between two looks at a consumer that was always found where it should be."""

_MOVES = 5
"""Attempts to advance a consumer that another client advances at the same time."""


class ConsumerFollower:
    """Moves the consumer of one query to the batches that Spark has committed."""

    def __init__(self, queue: PatientQueue) -> None:
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
        at_once = is_idle and (is_last or self._interval == CATCH_UP_INTERVAL)
        if self._committed is None or not (at_once or self._queue.clock() >= self._next):
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
