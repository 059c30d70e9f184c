"""What Spark's offset log says of a micro-batch.

A sink must agree with what a replay will read, so it asks Spark's own log. `running` reads the log through
the JVM, `checkpoint` from files.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.notes import Notes
from yt_exactly_once.errors import ConfigError, ExactlyOnceError
from yt_exactly_once.spark.query.queue_offset import QueueOffset

_LOGGED_BATCHES = 100
"""How many batches Spark keeps in its logs (`spark.sql.streaming.minBatchesToRetain`)."""


@dataclass(frozen=True)
class Place:
    """Where Spark is when it calls a sink.

    Attributes:
        batch_id: number of the batch that Spark runs.
        log: of the query.
        in_background: whether Spark does not wait for the calling thread.
        problem: why the call must fail although its place is known.
    """

    query_id: str
    run_id: str
    batch_id: int
    log: OffsetLog
    in_background: bool = False
    problem: ExactlyOnceError | None = None


class OffsetLog(ABC):
    """What Spark says of one query.

    Attributes:
        notes: in the checkpoint of the query.
    """

    notes: Notes

    @abstractmethod
    def identify(self, place: Place) -> MicroBatch:
        """Return the micro-batch of a place, with the rows it covers."""

    @abstractmethod
    def texts(self, number: int) -> tuple[Sequence[str], Sequence[str]]:
        """Return the logged offsets of a batch, and of the one before.

        Of a batch that is not logged there are none, or it is a `FileNotFoundError`.
        """

    @abstractmethod
    def has_ended(self, place: Place) -> bool:
        """Return whether Spark has logged a batch as done although a call for it has not returned."""

    @abstractmethod
    def is_new(self, number: int, is_unused: bool) -> bool:
        """Return whether it is sure that no earlier run has begun the batch that runs.

        Args:
            is_unused: whether no sink has used the checkpoint. Then the batch is new if Spark has logged it
                since this application has started.
        """

    def ranges(self, number: int) -> tuple[SourceRange, ...]:
        """Return what a batch of the query has read; nothing when it is not known."""
        with suppress(FileNotFoundError):
            return source_ranges(*self.texts(number))
        return ()

    def may_be_written(self, batch: MicroBatch, is_unused: bool) -> bool:
        """Return whether an earlier run may have written rows of a batch that no ledger has; see `is_new`."""
        if batch.batch_id == 0 or self.is_new(batch.batch_id, is_unused):
            return False
        if batch.others or not batch.sources or batch.batch_id > _LOGGED_BATCHES:
            return True
        before = [self.ranges(number) for number in range(batch.batch_id)]
        return any(not read or any(source.moves for source in read) for read in before)


def identified(place: Place, now: Sequence[str], before: Sequence[str], **more: Any) -> MicroBatch:
    """Return the micro-batch of a place by the offsets of the batch and of the one before."""
    return MicroBatch(
        query_id=place.query_id,
        batch_id=place.batch_id,
        run_id=place.run_id,
        sources=source_ranges(now, before),
        others=digest_of_others(now, before),
        # By the offsets of the batch: whether a Spark task of it reads several queue partitions.
        shares_tasks=any(offset.shared for offset in _queue_offsets(now)),
        **more,
    )


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
