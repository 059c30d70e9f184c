"""What a batch has read and written, as events tell it: queues and topics with ranges, targets with rows."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.commit.entry import LedgerEntry

Ranges = dict[str, list[int | None]]
"""First and last offset, exclusive, by partition; a start that is not known is `None`."""


def lineage_of(entry: LedgerEntry) -> dict[str, Any]:
    """Return fields of an event: `inputs`, those with rows in the batch, and `outputs`, rows by target."""
    inputs: list[dict[str, Any]] = []
    for (cluster, queue, consumer, _), partitions in entry.offsets.items():
        ranges: Ranges = {
            str(number): [one.start, one.end]
            for number, one in partitions.items()
            if one.end != one.start
        }
        inputs.append({"cluster": cluster, "queue": queue, "consumer": consumer, "ranges": ranges})
    topics: dict[str, Ranges] = {}
    for topic in (entry.others.topics() if entry.others else None) or ():
        if topic.start != topic.end:
            topics.setdefault(topic.topic, {})[str(topic.partition)] = [topic.start, topic.end]
    inputs += [{"topic": name, "ranges": ranges} for name, ranges in topics.items()]
    outputs = {path: tally.rows for path, tally in entry.tallies.items()}
    return {"inputs": [one for one in inputs if one["ranges"]], "outputs": outputs}
