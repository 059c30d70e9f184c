"""Where a batch begins and ends in the sources that are no queues, as the ledger keeps it for people.

The offsets are Spark's own JSON, of whatever source. Those by topic and partition, as Kafka's are, can be
counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

LONGEST_TEXT = 1 << 16
"""Characters of offsets that the ledger keeps; of longer ones it keeps the digest."""


class TopicRange(NamedTuple):
    """What a batch reads from one partition of a topic.

    Attributes:
        start: first offset of the batch; `None` in the first batch that has the partition.
        end: first offset after it.
        latest: where the topic ended when Spark planned the batch; `None` if Spark did not say so.
    """

    topic: str
    partition: int
    start: int | None
    end: int
    latest: int | None

    @property
    def lag_rows(self) -> int | None:
        """Offsets after the batch that were there when Spark planned it; `None` if that is not known."""
        return None if self.latest is None else max(self.latest - self.end, 0)


@dataclass(frozen=True)
class OtherSources:
    """Offsets of a batch, an item for each source, in the order of their texts.

    Attributes:
        start: where the batch before has ended; nothing in the first batch.
        end: where the batch ends.
        latest: where the sources ended when Spark planned the batch, as far as it says so. A replay may see
            another end, so no batch is told from another by it.
    """

    start: tuple[Any, ...]
    end: tuple[Any, ...]
    latest: tuple[Any, ...] = ()

    @classmethod
    def from_log(cls, start: Iterable[str], end: Iterable[str]) -> Self:
        """Take the texts of Spark's log."""
        return cls(_parsed(start), _parsed(end))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read what the ledger keeps; `None` if that is a digest, or nothing."""
        try:
            found = json.loads(text)
            return cls(*(tuple(found[name]) for name in ("start", "end", "latest")))
        except (ValueError, KeyError, TypeError):
            return None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.start or self.end)

    def to_text(self) -> str:
        """Return the text for the ledger: JSON, or a digest of too many offsets."""
        text = json.dumps({"start": self.start, "end": self.end, "latest": self.latest})
        return text if len(text) <= LONGEST_TEXT else self.digest

    @property
    def digest(self) -> str:
        """Of where the batch begins and ends."""
        both = [[_spelled(one) for one in some] for some in (self.start, self.end)]
        return hashlib.sha256(json.dumps(both).encode()).hexdigest()

    def topics(self) -> list[TopicRange] | None:
        """Return the ranges by topic and partition; `None` if a source counts in another way."""
        start, end, latest = map(_by_partition, (self.start, self.end, self.latest))
        if end is None:
            return None
        return [
            TopicRange(*key, (start or {}).get(key), last, (latest or {}).get(key))
            for key, last in sorted(end.items())
        ]

    def rows_until(self, later: Self) -> int | None:
        """Return how many offsets a later batch ends after this one; `None` if they cannot be counted."""
        begun, ended = (_by_partition(one.end) for one in (self, later))
        if begun is None or ended is None:
            return None
        return sum(max(end - begun.get(key, 0), 0) for key, end in ended.items())


def is_same(kept: str, now: str) -> bool:
    """Return whether two texts, of which each may be a digest, are of one batch."""
    return _identity(kept) == _identity(now)


def _identity(text: str) -> str:
    known = OtherSources.from_text(text)
    return text if known is None else known.digest


def _parsed(texts: Iterable[str]) -> tuple[Any, ...]:
    return tuple(sorted((_offset(text) for text in texts), key=_spelled))


def _offset(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _spelled(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset, sort_keys=True)


def _by_partition(offsets: Sequence[Any]) -> dict[tuple[str, int], int] | None:
    """Return offsets by topic and partition; of a topic that is read twice the earlier ones."""
    found: dict[tuple[str, int], int] = {}
    try:
        for topic, partition, offset in _items(offsets):
            key = topic, int(partition)
            found[key] = min(int(offset), found.get(key, int(offset)))
    except (AttributeError, TypeError, ValueError):
        return None
    return found


def _items(offsets: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    for one in offsets:
        for topic, partitions in one.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
