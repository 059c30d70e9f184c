"""Where a query begins, what of a queue it can still read, and how the next offset is planned.

Everything here is arithmetic: nothing sends a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from yt_exactly_once import advice
from yt_exactly_once.errors import ConfigError, DataLossError
from yt_exactly_once.spark.source.options import StartingPoint

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import PartitionRange
    from yt_exactly_once.spark.query.offset_log import QueueOffset
    from yt_exactly_once.ytsaurus.queues import PartitionBounds

BEGIN_AGAIN = (
    "Or begin again: put the consumer where the ledger has the query, and start with a new checkpoint "
    "location. Run: yt-exactly-once repair TARGET --new-checkpoint --apply"
)
"""A new query begins at the consumer's offset: rows before that are passed over."""

_TOLERANCE = 0.05
_PROBES = 40

ENDING_OPTION = "ending_offsets"
"""Of batch reads: the first row of each queue partition that is not read."""


def chosen_rows(
    choice: StartingPoint | dict[int, int],
    bounds: Sequence[PartitionBounds],
    stored: Mapping[int, int],
    *,
    queue: str,
    option: str = "starting_offsets",
) -> dict[int, int]:
    """Return the row of each partition that an option chooses; raise `ConfigError` if a choice does not fit.

    A partition that the consumer has never moved in begins at the first row there is: the consumer
    never read the trimmed ones.

    Args:
        bounds: of every partition.
        stored: the consumer's offsets, without partitions it was never moved in.
    """
    ends = {index: bound.upper for index, bound in enumerate(bounds)}
    if choice is StartingPoint.LATEST:
        return ends
    if choice is StartingPoint.EARLIEST:
        return {index: bound.lower for index, bound in enumerate(bounds)}
    if choice is StartingPoint.COMMITTED:
        return {index: stored.get(index, bound.lower) for index, bound in enumerate(bounds)}
    if choice.keys() != ends.keys() or any(row > ends[index] for index, row in choice.items()):
        raise ConfigError(
            f"{option} is {choice}, and the partitions of the queue end at {ends}",
            remedy="Name every partition of the queue, and no other, with a row that exists or the one after "
            "the last; or use latest",
            option=option,
            queue=queue,
        )
    return dict(sorted(choice.items()))


def check_reachable(
    offset: QueueOffset, bounds: Sequence[PartitionBounds], *, fail_on_data_loss: bool
) -> None:
    """Check that the queue still holds what comes next, before a batch is planned.

    `DataLossError`: partitions are gone, rows were trimmed unread, or it is not the queue that was read.
    """
    if offset.partitions and max(offset.partitions) >= len(bounds):
        raise DataLossError(
            f"The query has read {max(offset.partitions) + 1} partitions, the queue now has "
            f"{len(bounds)}",
            remedy=f"A running query cannot lose partitions: their rows moved to other indexes. "
            f"{BEGIN_AGAIN}",
            queue=offset.queue,
        )
    consumer = offset.consumer
    for partition, bound in enumerate(bounds):
        position = offset.partitions.get(partition, 0)
        if position > bound.upper:
            raise DataLossError(
                f"The query is at row {position} of partition {partition}, which ends at "
                f"{bound.upper}: it is not the queue that the query has read",
                remedy=f"The queue was recreated or the consumer was moved too far. {BEGIN_AGAIN}. "
                + advice.back_into_the_queue(
                    consumer or "CONSUMER", offset.queue, partition, bound.upper - bound.lower
                ),
                queue=offset.queue,
                consumer=consumer,
            )
        if position < bound.lower and fail_on_data_loss:
            raise trimmed_rows(offset.queue, consumer, partition, position, bound.lower)


def end_within(weight_until: Callable[[int], int], start: int, end: int, max_bytes: int) -> int:
    """Return where to end a batch that begins at `start` so that it weighs at most `max_bytes`.

    A few single rows are pulled to find the end; the rows of the batch are not read twice. The weight of
    the first row is not known and not counted. The end is found to within a twentieth of the limit, and
    never after it.

    Args:
        weight_until: gives the weight of all rows up to a row, which the queue keeps in that row.
        start: first row of the batch.
        end: where the batch would end without this limit, more than `start`.
    """
    low, high = start, end - 1
    if low == high:
        return end
    low_weight, high_weight = weight_until(low), weight_until(high)
    limit = low_weight + max_bytes
    if high_weight <= limit:
        return end
    for probe in range(_PROBES):
        if high - low == 1 or limit - low_weight <= _TOLERANCE * max_bytes:
            break
        if probe % 2:
            # Even rows are found by interpolation at once; halving in between bounds the search
            # when a few rows are much heavier than the rest.
            guess = (low + high) // 2
        else:
            guess = low + (high - low) * (limit - low_weight) // max(1, high_weight - low_weight)
        row = min(max(guess, low + 1), high - 1)
        weight = weight_until(row)
        if weight <= limit:
            low, low_weight = row, weight
        else:
            high, high_weight = row, weight
    return low + 1


def shared_tasks(ranges: Sequence[PartitionRange], max_rows: int) -> tuple[tuple[int, ...], ...]:
    """Return which queue partitions share a Spark task: neighbours, as many as `max_rows` allow together.

    A Spark task costs tens of milliseconds, which short ranges do not outweigh.
    """
    groups: list[list[int]] = []
    rows = max_rows
    for partition, start, end in ranges:
        rows += end - start
        if rows > max_rows:
            groups.append([])
            rows = end - start
        groups[-1].append(partition)
    return tuple(tuple(group) for group in groups if len(group) > 1)


def recreated(queue: str, consumer: str | None, remedy: str) -> DataLossError:
    """Return the error for a queue that is not the one the offsets count rows of."""
    return DataLossError(
        "The queue was recreated: its rows are not the ones that the offsets count",
        remedy=remedy,
        queue=queue,
        consumer=consumer,
    )


def copied(queue: str, consumer: str | None) -> DataLossError:
    """Return the error for a copy in the place of the queue: from its first row on, all would be repeated."""
    return DataLossError(
        "A copy of a queue is in the place of the one that the query has read: its rows are older than it",
        remedy=advice.QUEUE_IS_COPY,
        queue=queue,
        consumer=consumer,
    )


def trimmed_rows(
    queue: str, consumer: str | None, partition: int, start: int, end: int
) -> DataLossError:
    """Return the error for rows that were trimmed before they were read."""
    return DataLossError(
        f"Rows {start} to {end - 1} of partition {partition} were trimmed before they were read",
        remedy="The queue keeps unread rows for a vital consumer, unless a person or a ttl trims them. To "
        "continue without these rows set fail_on_data_loss to false",
        queue=queue,
        consumer=consumer,
    )
