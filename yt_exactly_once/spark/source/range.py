"""Reading ranges of queue partitions: complete, in order, and in pieces of bounded size.

A pull may return fewer rows than asked for and, when rows were trimmed, later ones. So the row indexes of
every piece are compared with those that are still wanted. A gap is an error, or a logged step if the options
allow it. One pull is ahead of the rows that Spark takes, or a few of different short ranges. No more is kept,
so memory does not grow with the range.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from yt_exactly_once.commit.batch import PartitionRange
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import ClusterUnavailableError, DataLossError, ExactlyOnceError
from yt_exactly_once.observability import Emitter, Event, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.source.offsets import BEGIN_AGAIN, trimmed_rows
from yt_exactly_once.spark.tuning.collector import freeze_modules
from yt_exactly_once.spark.tuning.memory import keep_freed_memory
from yt_exactly_once.spark.worker import threads

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from pyarrow import RecordBatch

    from yt_exactly_once.spark.source.options import SourceOptions
    from yt_exactly_once.spark.source.rows import Indexes, RowFormat
    from yt_exactly_once.ytsaurus.queues import RemoteQueue

ROWS_PER_PULL = 25_000
BYTES_PER_PULL = 16 * 2**20

PATIENCE = RetryPolicy(
    attempts=40,
    deadline=timedelta(minutes=2),
    first_wait=timedelta(milliseconds=50),
    max_wait=timedelta(seconds=5),
)
"""How long rows that are committed may take to become visible, and a tablet to be back."""


SIDE_BY_SIDE = 4
"""Pulls that one Python worker has in flight, at most."""


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of one queue.

    Attributes:
        decode: turns what pulls returned into partitions and indexes of rows, and the rows.
        fail_on_data_loss: whether trimmed rows are an error or a logged step.
        policy: how long missing rows are waited for.
        sleep: waits that many seconds.
        pool: runs pulls that are ahead; by default the threads of this process.
    """

    queue: RemoteQueue
    decode: Callable[..., tuple[Indexes, Indexes, RecordBatch]]
    emit: Emitter
    fail_on_data_loss: bool = True
    policy: RetryPolicy = PATIENCE
    sleep: Callable[[float], None] = time.sleep
    pool: Callable[[], Executor] = lambda: threads(SIDE_BY_SIDE)

    @classmethod
    def in_task(cls, queue: RemoteQueue, rows: RowFormat, options: SourceOptions) -> Self:
        """Return a reader for a task of Spark."""
        freeze_modules()
        keep_freed_memory()
        emit = emitter(queue=queue.path, consumer=queue.consumer)
        return cls(queue, rows.decode, emit, fail_on_data_loss=options.fail_on_data_loss)

    def read(self, ranges: Sequence[PartitionRange]) -> Iterator[RecordBatch]:
        """Yield the rows of ranges, one range after the other, in order, each exactly once.

        Raise `DataLossError` if rows were trimmed, or the queue is not the one that was planned.
        """
        if len(ranges) == 1:
            # Most short ranges are one pull, which needs no thread.
            yield from self._read(_Pulls(self.queue, ranges[0], self.pool))
            return
        together: list[_Pulls] = []
        size = 0
        for pulls in self._begun(ranges):
            together.append(pulls)
            size += pulls.wait()
            if size >= BYTES_PER_PULL:
                yield from self._read_together(together)
                together, size = [], 0
        if together:
            yield from self._read_together(together)

    def _begun(self, ranges: Sequence[PartitionRange]) -> Iterator[_Pulls]:
        """Yield the pulls of each range; those of the next few ranges are in flight."""
        waiting, running = deque(ranges), deque[_Pulls]()
        while waiting or running:
            while waiting and len(running) < SIDE_BY_SIDE:
                running.append(_Pulls(self.queue, waiting.popleft(), self.pool))
                running[-1].begin(running[-1].wanted.start)
            yield running.popleft()

    def _read_together(self, together: Sequence[_Pulls]) -> Iterator[RecordBatch]:
        """Yield ranges as one batch if the first pull of each has returned all its rows."""
        rows = self._whole(together)
        if rows is not None:
            yield rows
            return
        for pulls in together:
            yield from self._read(pulls)

    def _whole(self, together: Sequence[_Pulls]) -> RecordBatch | None:
        # What went wrong is met again, and treated, where the ranges are read one by one.
        with suppress(ExactlyOnceError):
            partitions, indexes, rows = self.decode(*(pulls.first() for pulls in together))
            wanted = [pulls.wanted for pulls in together]
            if len(indexes) != sum(each.end - each.start for each in wanted):
                return None
            expected = [
                (each.partition, row) for each in wanted for row in range(each.start, each.end)
            ]
            if list(zip(partitions, indexes, strict=True)) == expected:
                return rows
        return None

    def _read(self, pulls: _Pulls) -> Iterator[RecordBatch]:
        wanted = pulls.wanted
        position = wanted.start
        while position < wanted.end:
            first, count, rows = run_attempts(
                partial(self._pull, pulls, position), self.policy, self.emit, sleep=self.sleep
            )
            if first > position:
                self._step_over(wanted.partition, position, min(first, wanted.end))
            position = first + count
            pulls.begin(position)
            kept = min(count, wanted.end - first)
            if rows is not None and kept > 0:
                yield rows if kept == count else rows.slice(0, kept)

    def _pull(
        self, pulls: _Pulls, position: int, _attempt: int
    ) -> tuple[int, int, RecordBatch | None]:
        """Return the first row index there is from `position` on, a number of rows, and the rows."""
        payload = pulls.take(position)
        _, indexes, rows = self.decode(payload)
        if not len(indexes):
            return self._first_available(pulls.wanted, position), 0, None
        first = int(indexes[0])
        is_run = np.array_equal(indexes, np.arange(first, first + len(indexes)))
        if first < position or not is_run:
            raise DataLossError(
                f"Rows from {position} on were requested in partition {pulls.wanted.partition}. The "
                f"answer of {len(indexes)} rows from {first} to {indexes[-1]} has gaps or repeats",
                remedy="Ask the administrators of the cluster: it breaks the order of the queue",
                queue=self.queue.path,
            )
        pulls.answered(len(indexes), len(payload))
        return first, len(indexes), rows

    def _first_available(self, wanted: PartitionRange, position: int) -> int:
        """Distinguish trimmed rows from late ones, when a pull returned nothing."""
        bounds = self.queue.state(wanted.partition + 1).partitions
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
            Event.SOURCE_ROWS_SKIPPED, partition=partition, start=start, end=end, rows=end - start
        )


class _Pulls:
    """The pulls of one range: the one whose rows are wanted now, and the one after it."""

    def __init__(
        self, queue: RemoteQueue, wanted: PartitionRange, pool: Callable[[], Executor]
    ) -> None:
        self.wanted = wanted
        self._queue = queue
        self._pool = pool
        self._rows = ROWS_PER_PULL
        self._is_steady = False
        self._reached = wanted.start
        self._ahead: Future[bytes] | None = None

    def begin(self, position: int) -> None:
        """Begin the pull from a row on, unless it has begun or nothing is wanted there."""
        if position >= self.wanted.end or (self._ahead is not None and self._reached == position):
            return
        if self._ahead is not None:
            self._ahead.cancel()
        self._reached = position
        self._ahead = self._pool().submit(self._pull, position)

    def wait(self) -> int:
        """Wait for the pull that has begun; return how many bytes it has returned."""
        assert self._ahead is not None
        return 0 if self._ahead.exception() else len(self._ahead.result())

    def first(self) -> bytes:
        """Return what the pull that has begun has returned; `take` returns it again."""
        assert self._ahead is not None
        return self._ahead.result()

    def take(self, position: int) -> bytes:
        """Return what the pull from a row on has returned; begin the next one, where it is known."""
        if self._ahead is not None and self._reached == position:
            ahead, self._ahead = self._ahead, None
            payload = ahead.result()
        else:
            payload = self._pull(position)
        if self._is_steady:
            # It runs while this one is decoded.
            self.begin(position + self._rows)
        return payload

    def answered(self, rows: int, size: int) -> None:
        """Learn how many rows the next pull is likely to return."""
        self._is_steady = True
        # Heavy rows come in fewer than asked for, and the row after them is to be pulled next.
        is_heavy = 2 * size >= BYTES_PER_PULL
        self._rows = min(self._rows, rows) if is_heavy else ROWS_PER_PULL

    def _pull(self, position: int) -> bytes:
        most = min(self._rows, self.wanted.end - position)
        return self._queue.pull(self.wanted.partition, position, most, BYTES_PER_PULL)
