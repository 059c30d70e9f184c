"""Queue consumers: where a reader of a queue stands, and how it is moved.

An offset is the index of the first unread row; a partition without a row in the consumer table stands
at 0. Registration is what gives a consumer the right to pull.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from yt.common import YtError

from yt_exactly_once.errors import ConsumerNotFoundError, ConsumerNotRegisteredError
from yt_exactly_once.ytsaurus.failures import TRANSPORT_ERRORS, translated

if TYPE_CHECKING:
    from collections.abc import Collection

    from yt_exactly_once.ytsaurus.client import Connection

_OFFSET_CONFLICT = 3100
_LOOKS = 12
_PAUSE_SECONDS = 1.0


def cluster_name(connection: Connection) -> str:
    """Return the name the cluster is configured with; consumer rows are keyed by it."""
    with translated("read the cluster's name"):
        return str(connection.reader.get("//sys/@cluster_name"))


def require_consumer(connection: Connection, consumer: str) -> None:
    """Check that a path is a queue consumer.

    Raises:
        ConsumerNotFoundError: it is not.
    """
    with translated("find the consumer", consumer=consumer):
        if not connection.reader.exists(consumer):
            raise ConsumerNotFoundError(
                "There is no such consumer",
                remedy=f"Run: yt create queue_consumer {consumer}",
                consumer=consumer,
            )
        is_consumer = connection.reader.get(f"{consumer}/@").get("treat_as_queue_consumer", False)
    if not is_consumer:
        raise ConsumerNotFoundError(
            "This is not a queue consumer",
            remedy="Name a consumer made with: yt create queue_consumer PATH",
            consumer=consumer,
        )


def require_registration(connection: Connection, consumer: str, queue: str) -> None:
    """Check that the consumer exists and is registered for the queue.

    A proxy answers from a list that it renews every ten seconds (`cache_refresh_period`), so a
    registration that it does not know is asked for again until then.

    Raises:
        ConsumerNotFoundError: no consumer at the path.
        ConsumerNotRegisteredError: it is not registered.
    """
    require_consumer(connection, consumer)
    with translated("read the registrations", consumer=consumer, queue=queue):
        for _ in range(_LOOKS):
            if connection.reader.list_queue_consumer_registrations(
                queue_path=queue, consumer_path=consumer
            ):
                return
            time.sleep(_PAUSE_SECONDS)
    raise ConsumerNotRegisteredError(
        "The consumer is not registered for the queue",
        remedy=f"Run: yt register-queue-consumer {queue} {consumer} --vital",
        consumer=consumer,
        queue=queue,
    )


def read_offsets(
    connection: Connection, consumer: str, queue: str, cluster: str, partitions: Collection[int]
) -> dict[int, int]:
    """Return the stored offsets with one request; a partition that was never moved is absent."""
    keys = [
        {"queue_cluster": cluster, "queue_path": queue, "partition_index": partition}
        for partition in partitions
    ]
    rows = connection.lookup(consumer, keys)
    return {int(row["partition_index"]): int(row["offset"]) for row in rows if row is not None}


def advance(
    connection: Connection, consumer: str, queue: str, partition: int, old: int, new: int
) -> None:
    """Move one partition from `old` to `new` in a transaction of its own.

    A repeat of a move that was already applied counts as success: then the consumer is at `new`.

    Raises:
        OffsetConflictError: the consumer is at another offset.
    """
    with translated(
        "advance the consumer", consumer=consumer, queue=queue, partition=partition, expected=old
    ):
        try:
            connection.reader.advance_queue_consumer(
                consumer, queue, partition, old, new, client_side=False
            )
        except (YtError, *TRANSPORT_ERRORS) as error:
            if not (isinstance(error, YtError) and _is_at(error, new)):
                raise


def _is_at(error: YtError, offset: int) -> bool:
    """Tell whether a conflict says that the consumer is at that offset."""
    # RPC proxies wrap an error in one of the same code, which lacks the attributes.
    conflict = error.find_matching_error(
        predicate=lambda inner: (
            int(inner.code) == _OFFSET_CONFLICT and "current_offset" in inner.attributes
        )
    )
    return conflict is not None and int(conflict.attributes["current_offset"]) == offset
