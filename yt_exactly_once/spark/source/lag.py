"""How far a query is behind its queue, for events and for the query's progress."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.observability import Event, channel
from yt_exactly_once.spark.source.range import BYTES_PER_PULL

if TYPE_CHECKING:
    from yt_exactly_once.spark.source.packed import PatientQueue
    from yt_exactly_once.ytsaurus.queues import PartitionBounds

REPORT_INTERVAL = 5.0
"""Seconds between two reports of a queue that had nothing new."""

AGE_INTERVAL = 10.0
"""Seconds between two looks at the age of the oldest unread row: each costs a pull of one row."""


class LagReport:
    """Tells how many rows, and how many seconds, a query is behind after each batch it plans."""

    def __init__(self, queue: PatientQueue) -> None:
        self._queue = queue
        self._bounds: Sequence[PartitionBounds] | None = None
        self._behind: list[int] = []
        self._next_report = self._next_age = queue.clock()
        self._age: float | None = None

    def tell(
        self, start: Mapping[int, int], bounds: Sequence[PartitionBounds], ends: Mapping[int, int]
    ) -> None:
        """Emit how far the query is behind: with every batch, and now and then while there is none."""
        self._bounds, self._behind = bounds, _behind(bounds, ends)
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
        if not (channel.is_open() and self._queue.rows.has_timestamps):
            return None
        if self._queue.clock() >= self._next_age:
            self._next_age = self._queue.clock() + AGE_INTERVAL
            partition = self._behind.index(max(self._behind))
            # No retries: a number on a chart must not delay the batch.
            with suppress(ExactlyOnceError):
                pulled = self._queue.remote.pull(partition, ends[partition], 1, BYTES_PER_PULL)
                committed = self._queue.rows.committed_at(pulled)
                self._age = None if committed is None else max(0.0, time.time() - committed)
        return self._age


def _behind(bounds: Sequence[PartitionBounds], ends: Mapping[int, int]) -> list[int]:
    """Return how many rows each partition has after a batch; trimmed ones do not count."""
    return [
        max(bound.upper - max(ends.get(partition, 0), bound.lower), 0)
        for partition, bound in enumerate(bounds)
    ]
