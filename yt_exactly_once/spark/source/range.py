"""Reading one range of one queue partition: complete, in order, and in pieces of bounded size.

A pull may return fewer rows than asked for and, when rows were trimmed, later ones. So the row indexes of
every piece are compared with those that are still wanted. A gap is an error, or a logged step if the options
allow it. Nothing is read ahead and nothing is kept, so memory does not grow with the range.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import ClusterUnavailableError, DataLossError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.source.offsets import BEGIN_AGAIN, trimmed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow import RecordBatch

    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.ytsaurus.queues import RemoteQueue

ROWS_PER_PULL = 10_000
BYTES_PER_PULL = 16 * 2**20

PATIENCE = RetryPolicy(
    attempts=40,
    deadline=timedelta(minutes=2),
    first_wait=timedelta(milliseconds=50),
    max_wait=timedelta(seconds=5),
)
"""How long rows that are committed may take to become visible, and a tablet to be back."""


class QueueRange(InputPartition):
    """The rows of one queue partition that one task reads.

    Attributes:
        partition: index of the queue partition.
        start: first row.
        end: first row that does not belong to it.
    """

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__((partition, start, end))
        self.partition = partition
        self.start = start
        self.end = end


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of one queue.

    Attributes:
        queue: where.
        decode: turns what a pull returned into row indexes and rows.
        emit: takes events.
        fail_on_data_loss: whether trimmed rows are an error or a logged step.
        policy: how long missing rows are waited for.
        sleep: waits that many seconds.
    """

    queue: RemoteQueue
    decode: Callable[[bytes], tuple[list[int], RecordBatch]]
    emit: Emitter
    fail_on_data_loss: bool = True
    policy: RetryPolicy = PATIENCE
    sleep: Callable[[float], None] = time.sleep

    def read(self, wanted: QueueRange) -> Iterator[RecordBatch]:
        """Yield the rows of a range, in order, each exactly once.

        Raises:
            DataLossError: rows were trimmed, or the queue is not the one that was planned.
            RetriesExhaustedError: rows that must be there did not become visible in time.
        """
        position = wanted.start
        while position < wanted.end:
            first, count, rows = run_attempts(
                partial(self._pull, wanted, position), self.policy, self.emit, sleep=self.sleep
            )
            if first > position:
                self._step_over(wanted.partition, position, min(first, wanted.end))
            kept = min(count, wanted.end - first)
            if rows is not None and kept > 0:
                yield rows if kept == count else rows.slice(0, kept)
            position = first + count

    def _pull(
        self, wanted: QueueRange, position: int, _attempt: int
    ) -> tuple[int, int, RecordBatch | None]:
        """Return the first row index there is from `position` on, a number of rows, and the rows."""
        max_rows = min(ROWS_PER_PULL, wanted.end - position)
        payload = self.queue.pull(wanted.partition, position, max_rows, BYTES_PER_PULL)
        indexes, rows = self.decode(payload)
        if not indexes:
            return self._first_available(wanted, position), 0, None
        first = indexes[0]
        if first < position or indexes != list(range(first, first + len(indexes))):
            raise DataLossError(
                f"Rows from {position} on were requested in partition {wanted.partition}. The "
                f"answer of {len(indexes)} rows from {first} to {indexes[-1]} has gaps or repeats",
                remedy="The cluster breaks the order of the queue; do not continue before it is repaired",
                queue=self.queue.path,
            )
        return first, len(indexes), rows

    def _first_available(self, wanted: QueueRange, position: int) -> int:
        """Distinguish trimmed rows from late ones, when a pull returned nothing."""
        bounds = self.queue.state().partitions
        upper = bounds[wanted.partition].upper if wanted.partition < len(bounds) else 0
        if upper < wanted.end:
            raise DataLossError(
                f"The batch reads partition {wanted.partition} up to row {wanted.end}, and the queue "
                f"ends at {upper}: it is not the queue that was planned",
                remedy=f"The queue was recreated or lost partitions. {BEGIN_AGAIN}",
                queue=self.queue.path,
            )
        lower = bounds[wanted.partition].lower
        if lower > position:
            return lower
        raise ClusterUnavailableError(
            f"Rows {position} to {wanted.end - 1} of partition {wanted.partition} are committed and "
            "not visible yet",
            remedy="Check the health of the tablet; restarting the query repeats the batch",
            queue=self.queue.path,
        )

    def _step_over(self, partition: int, start: int, end: int) -> None:
        error = trimmed_rows(self.queue.path, self.queue.consumer, partition, start, end)
        if self.fail_on_data_loss:
            raise error
        self.emit(
            Event.SOURCE_ROWS_SKIPPED,
            partition=partition,
            start=start,
            end=end,
            rows=end - start,
        )
