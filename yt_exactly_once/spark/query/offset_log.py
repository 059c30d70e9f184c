"""What Spark's offset log says of a micro-batch, and the interface behind which it is read.

A sink must agree with what a replay will read, so it asks Spark's own log. `running` reads the log through
the JVM, `checkpoint` from files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.calls import Place
from yt_exactly_once.spark.query.queue_offset import QueueOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_LOGGED_BATCHES = 100
"""How many batches Spark keeps in its logs (`spark.sql.streaming.minBatchesToRetain`)."""


class OffsetLog(Protocol):
    """Identifies micro-batches."""

    def locate(self, frame: DataFrame, batch_id: int) -> Place:
        """Return the batch that Spark is running, and its run."""

    def identify(self, frame: DataFrame, place: Place) -> MicroBatch:
        """Return the micro-batch of a place, with the rows it covers."""

    def has_ended(self, place: Place) -> bool:
        """Return whether Spark has logged a batch as done although a call for it has not returned."""

    def may_be_written(self, batch: MicroBatch, is_unused: bool) -> bool:
        """Return whether an earlier run may have written rows of a batch that no ledger has.

        Args:
            is_unused: whether no sink has used the checkpoint. Then the batch is new if Spark has logged it
                since this application has started.
        """

    def ranges(self, batch: MicroBatch, number: int) -> tuple[SourceRange, ...]:
        """Return what another batch of the same query has read; nothing when it is not known."""


def may_have_read(
    batch: MicroBatch, ranges: Callable[[MicroBatch, int], tuple[SourceRange, ...]]
) -> bool:
    """Return whether batches before this one may have had rows; for `ranges` see `OffsetLog.ranges`."""
    if batch.batch_id == 0:
        return False
    if batch.others or not batch.sources or batch.batch_id > _LOGGED_BATCHES:
        return True
    before = [ranges(batch, number) for number in range(batch.batch_id)]
    return any(not read or any(source.moves for source in read) for read in before)


def source_ranges(now: Sequence[str], before: Sequence[str]) -> tuple[SourceRange, ...]:
    """Pair the end offsets of a batch with its starts, for the sources that are YTsaurus queues.

    Args:
        now: offsets of the batch, one JSON text per source.
        before: offsets of the batch before; empty for the first batch.

    Raises:
        ConfigError: one queue is there twice with the same consumer.
        NewerFormatError: a newer version of this package wrote an offset.
    """
    starts = {offset.key: offset for offset in _queue_offsets(before)}
    ends = _queue_offsets(now)
    if len({end.key for end in ends}) < len(ends):
        raise ConfigError(
            "The query reads one queue twice with the same consumer",
            remedy="Load the queue once for each use, each time with a consumer of its own",
        )
    ranges = []
    for end in ends:
        start = starts.get(end.key)
        # Spark logs no offset before the first one of a queue; ours carries where its batch began.
        first = end.start if start is None else start.partitions
        ranges.append(
            SourceRange(
                cluster=end.cluster,
                queue=end.queue,
                consumer=end.consumer,
                partitions=tuple(
                    PartitionRange(index, first.get(index, 0), offset)
                    for index, offset in sorted(end.partitions.items())
                ),
                queue_id=end.queue_id,
            )
        )
    return tuple(ranges)


def shares_tasks(now: Sequence[str]) -> bool:
    """Return whether a Spark task of a batch reads several queue partitions, by the offsets of the batch."""
    return any(offset.shared for offset in _queue_offsets(now))


def digest_of_others(now: Sequence[str], before: Sequence[str]) -> str:
    """Return a digest of where a batch begins and ends in the sources that are no queues.

    Args:
        now: offsets of the batch, one text per source.
        before: offsets of the batch before.
    """
    others = [
        sorted(_canonical(text) for text in texts if QueueOffset.from_text(text) is None)
        for texts in (before, now)
    ]
    if not any(others):
        return ""
    return hashlib.sha256(json.dumps(others).encode()).hexdigest()


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except json.JSONDecodeError:
        return text


def _queue_offsets(texts: Sequence[str]) -> list[QueueOffset]:
    """Return the offsets that our source wrote; any other source has no consumer to move."""
    return [offset for text in texts if (offset := QueueOffset.from_text(text)) is not None]
