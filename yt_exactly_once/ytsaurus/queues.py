"""Reading queues: how far each partition goes, and rows by offset.

A queue is an ordered dynamic table, a partition one of its tablets. Reads see the newest committed
state and ignore transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt.wrapper import YsonFormat

from yt_exactly_once.errors import NotAQueueError
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.tables import TableInfo, describe_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection


@dataclass(frozen=True)
class PartitionBounds:
    """Which rows a partition holds.

    Attributes:
        lower: first row that was not trimmed.
        upper: index the next row will get.
    """

    lower: int
    upper: int


@dataclass(frozen=True)
class QueueState:
    """A queue at one moment.

    Attributes:
        id: object id of the table; another one when the queue was recreated.
        partitions: bounds of every partition.
    """

    id: str
    partitions: list[PartitionBounds]


def describe_queue(connection: Connection, path: str) -> TableInfo:
    """Describe a queue, see `describe_table`.

    Raises:
        NotAQueueError: the table is sorted.
    """
    info = describe_table(connection, path)
    if info.is_sorted:
        raise NotAQueueError(
            "The table is sorted, and a queue is an ordered dynamic table",
            remedy="Name an ordered dynamic table",
            path=path,
        )
    return info


def queue_state(connection: Connection, path: str) -> QueueState:
    """Return what a queue is now: its id, and the bounds as the tablets themselves tell them."""
    with translated("read the queue's bounds", queue=path):
        client = connection.reader
        found = client.get(path, attributes=["id", "tablet_count"]).attributes
        infos = client.get_tablet_infos(path, list(range(int(found["tablet_count"]))))["tablets"]
    bounds = [
        PartitionBounds(lower=int(info["trimmed_row_count"]), upper=int(info["total_row_count"]))
        for info in infos
    ]
    return QueueState(str(found["id"]), bounds)


def pull_rows(
    connection: Connection,
    queue: str,
    consumer: str | None,
    partition: int,
    offset: int,
    max_row_count: int,
    max_data_weight: int | None = None,
) -> bytes:
    """Return rows from an offset on, as a binary YSON list fragment.

    The answer may be shorter than asked for and starts later than `offset` when rows were trimmed;
    `$tablet_index` and `$row_index` are part of every row.

    Args:
        connection: the cluster.
        queue: path of the queue.
        consumer: path of the consumer whose registration grants the read, or `None`.
        partition: index of the partition.
        offset: index of the first row wanted.
        max_row_count: how many rows at most.
        max_data_weight: how many bytes about at most.
    """
    with translated(
        "pull rows", queue=queue, consumer=consumer, partition=partition, offset=offset
    ):
        client = connection.reader
        limits = {"max_row_count": max_row_count, "max_data_weight": max_data_weight}
        options = {**limits, "format": YsonFormat(format="binary"), "raw": True}
        if consumer is None:
            answer = client.pull_queue(queue, offset, partition, **options)
        else:
            answer = client.pull_queue_consumer(consumer, queue, offset, partition, **options)
        rows: bytes = answer.read()
    return rows
