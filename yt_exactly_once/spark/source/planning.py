"""Planning of batches: where the queue ends, where the next batch ends, which partitions share a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ClusterUnavailableError, ExactlyOnceError, SchemaMismatchError
from yt_exactly_once.spark.source.offsets import BEGIN_AGAIN, end_within, recreated, shared_tasks
from yt_exactly_once.spark.source.range import BYTES_PER_PULL

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import PartitionRange
    from yt_exactly_once.spark.source.packed import PatientQueue
    from yt_exactly_once.ytsaurus.queues import PartitionBounds, QueueState

LOOK_INTERVAL = 1.0
"""Seconds after which a batch that was planned is not read before the queue was looked at again.

Usually Spark takes less time to log the batch.
"""

WEIGHT_INTERVAL = 60.0
"""Seconds between two looks at how heavy rows are: each costs a pull of a few rows."""

_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 2**20


class BatchPlanner:
    """Plans the batches of one run of a query."""

    def __init__(self, queue: PatientQueue) -> None:
        self._queue = queue
        self._target: list[int] | None = None
        self._seen: QueueState | None = None
        self._seen_at = self._next_weight = queue.clock()
        self._row_bytes: float | None = None

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
        return {
            partition: self._end(partition, here.get(partition, 0), bound, limited=limited)
            for partition, bound in enumerate(bounds)
        }

    def look(self) -> list[PartitionBounds]:
        """Return the bounds of the queue; raise `DataLossError` if another one has taken its place."""
        expected = (
            self._queue.info.tablet_count if self._seen is None else len(self._seen.partitions)
        )
        state = self._queue.call(partial(self._queue.remote.state, expected))
        self._require_same_queue(state.id)
        self._seen, self._seen_at = state, self._queue.clock()
        return state.partitions

    def _end(self, partition: int, position: int, bound: PartitionBounds, *, limited: bool) -> int:
        """Return where the next batch ends in one partition."""
        end = bound.upper
        if self._target is not None:
            end = min(end, self._target[partition]) if partition < len(self._target) else position
        # Limits count rows that exist: trimmed ones are stepped over within one batch.
        first = max(position, bound.lower)
        if limited and end > first:
            if self._queue.options.max_rows_per_partition is not None:
                end = min(end, first + self._queue.options.max_rows_per_partition)
            if self._queue.options.max_bytes_per_partition is not None:
                end = end_within(
                    lambda row: self._weight_until(partition, row),
                    first,
                    end,
                    self._queue.options.max_bytes_per_partition,
                )
        return max(end, position)

    def shared(self, ranges: Sequence[PartitionRange]) -> tuple[tuple[int, ...], ...]:
        """Return which partitions share a task; none where it is not known how heavy their rows are."""
        shared = shared_tasks(ranges, self._queue.options.shared_task_rows)
        if not shared:
            return ()
        row_bytes = self._look_at_weight(max(ranges, key=lambda wanted: wanted.end - wanted.start))
        if row_bytes is None:
            return ()
        return shared_tasks(
            ranges, min(self._queue.options.shared_task_rows, int(BYTES_PER_PULL / row_bytes))
        )

    def _look_at_weight(self, sample: PartitionRange) -> float | None:
        """Return how many bytes of a pull a row takes, on average; `None` if it is not known."""
        if self._row_bytes is None or self._queue.clock() >= self._next_weight:
            self._next_weight = self._queue.clock() + WEIGHT_INTERVAL
            # No retries: a batch does not depend on it.
            with suppress(ExactlyOnceError):
                payload = self._queue.remote.pull(
                    sample.partition, sample.start, _SAMPLE_ROWS, _SAMPLE_BYTES
                )
                _, indexes, _ = self._queue.rows.decode(payload)
                self._row_bytes = len(payload) / len(indexes) if len(indexes) else None
        return self._row_bytes

    def _weight_until(self, partition: int, row: int) -> int:
        """Return the cumulative weight stored in a row, waiting for a row that is late."""

        def weight() -> int:
            found = self._queue.rows.weight(
                self._queue.remote.pull(partition, row, 1, BYTES_PER_PULL)
            )
            if found is None:
                raise ClusterUnavailableError(
                    f"Row {row} of partition {partition} is committed and not visible yet",
                    remedy="Check the health of the tablet",
                    queue=self._queue.remote.path,
                )
            return found

        return self._queue.call(weight)

    def require_unchanged(self) -> None:
        """Check, before a batch is read, that the queue still is what the query was defined over.

        Otherwise its columns have changed (`SchemaMismatchError`), or it is another one (`DataLossError`).
        """
        if self._seen is None or self._queue.clock() >= self._seen_at + LOOK_INTERVAL:
            self.look()
        assert self._seen is not None
        if self._seen.schema != self._queue.info.schema:
            raise SchemaMismatchError(
                "The queue's schema changed under the running query: "
                + _describe_change(self._queue.info.schema, self._seen.schema),
                remedy="Load the queue again (spark.readStream ... load) and start the query; the batch is "
                "read with the new schema",
                queue=self._queue.remote.path,
            )

    def _require_same_queue(self, queue_id: str) -> None:
        if queue_id != self._queue.info.id:
            remedy = (
                BEGIN_AGAIN
                if self._queue.options.fail_on_data_loss
                else "Load the queue again (spark.readStream ... load) and start the query; it then "
                "begins at the first row of the new queue"
            )
            raise recreated(self._queue.remote.path, self._queue.remote.consumer, remedy)


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
