"""Queues and the consumers they are read with: bounds, rows by offset, stored offsets.

A queue is an ordered dynamic table, and a partition is one of its tablets. Reads return the newest
committed state and ignore transactions. A stored offset is the index of the first unread row; a partition
without a row in the consumer table is at 0.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from yt.common import YtError

from yt_exactly_once import advice, errors
from yt_exactly_once.ytsaurus.browsing import (
    attributes_of,
    is_copied,
    output,
    registration,
    request,
)
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.sender import BINARY
from yt_exactly_once.ytsaurus.tables import (
    TableInfo,
    columns_of,
    describe_table,
    not_mounted,
    require_unreplicated,
)

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

_UNREADABLE = frozenset({"none", "unmounted", "mounting", "unmounting"})

_OFFSET_CONFLICT = 3100
_LOOKS = 25
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class PartitionBounds:
    """Which rows a partition holds.

    Attributes:
        lower: first row that was not trimmed.
        upper: index the next row will get.
    """

    lower: int
    upper: int


def bounds_of(infos: Sequence[Mapping[str, Any]]) -> list[PartitionBounds]:
    """Return the bounds that tablets report."""
    return [
        PartitionBounds(int(info["trimmed_row_count"]), int(info["total_row_count"]))
        for info in infos
    ]


@dataclass(frozen=True)
class QueueState:
    """A queue at one moment.

    Attributes:
        id: object id of the table; another one when the queue was recreated.
        partitions: bounds of every partition.
        schema: its columns, as `TableInfo` has them.
    """

    id: str
    partitions: list[PartitionBounds]
    schema: list[dict[str, Any]]


@dataclass(frozen=True)
class RemoteQueue:
    """One queue, and the consumer it is read with.

    It travels by pickle to the tasks and opens its connection there.

    Attributes:
        consumer: path of the consumer; `None` reads without one.
    """

    connection: Connection
    path: str
    consumer: str | None = None

    def describe(self) -> TableInfo:
        """Return what the queue is like, see `describe_table`; raise `NotAQueueError` if it is sorted."""
        try:
            info = describe_table(self.connection, self.path)
        except errors.TableNotDynamicError as error:
            remedy = advice.make_dynamic(self.path)
            error.remedy = f"Check the path. Or, if no query has read it yet, run: {remedy}"
            raise
        if info.is_sorted:
            raise errors.NotAQueueError(
                "The table is sorted, but a queue is an ordered dynamic table",
                remedy="Pass the path of an ordered dynamic table",
                path=self.path,
            )
        return info

    def resolved(self) -> Self:
        """Return the same by its path without links: the server names it so in the rows of consumers."""
        with translated("find the queue", queue=self.path):
            return replace(self, path=str(self.connection.reader.get(f"{self.path}/@path")))

    def require_readable(self) -> TableInfo:
        """Check that the queue and the consumer can be read, and describe the queue.

        Raises:
            TableError: no queue at the path, not mounted, no such consumer, or not registered.
            AccessError: the token is refused or lacks a permission.
            ClusterUnavailableError: the cluster does not answer.
        """
        info = self.describe()
        if info.tablet_state in _UNREADABLE:
            raise not_mounted(self.path, info.tablet_state)
        if self.consumer is not None:
            require_registration(self.connection, self.consumer, self.path)
        return info

    def state(self, expected: int = 1) -> QueueState:
        """Return the queue's id and columns, and the bounds of its partitions as the tablets report them.

        Args:
            expected: how many partitions it probably has; another number costs a second request.
        """
        with translated("read the queue's bounds", queue=self.path):
            client = self.connection.reader
            attributes = ["id", "schema", "tablet_count"]
            indexes = list(range(expected))
            table, tablets = client.execute_batch(
                [
                    request("get", path=self.path, attributes=attributes, return_only_value=True),
                    request("get_tablet_infos", path=self.path, tablet_indexes=indexes),
                ]
            )["results"]
            found = output(table).attributes
            count = int(found["tablet_count"])
            if count == expected:
                infos = output(tablets)["tablets"]
            else:
                infos = client.get_tablet_infos(self.path, list(range(count)))["tablets"]
        return QueueState(str(found["id"]), bounds_of(infos), columns_of(found))

    def is_copied(self, first_row: float) -> bool:
        """Return whether the table is a copy, see `browsing.is_copied`."""
        found = attributes_of(self.connection, self.path, ["creation_time"]) or {}
        return is_copied(first_row, str(found["creation_time"]))

    def stored_offsets(self, cluster: str, partitions: Collection[int]) -> dict[int, int]:
        """Return the consumer's offsets with one request; a partition that was never moved is absent."""
        if self.consumer is None:
            return {}
        keys = [
            {"queue_cluster": cluster, "queue_path": self.path, "partition_index": partition}
            for partition in partitions
        ]
        rows = self.connection.lookup(self.consumer, keys)
        return {int(row["partition_index"]): int(row["offset"]) for row in rows if row is not None}

    def pull(
        self, partition: int, offset: int, max_rows: int, max_bytes: int | None = None
    ) -> bytes:
        """Return rows from an offset on, as a binary YSON list fragment, with one request and no retries.

        The answer may be shorter than asked for. It starts later than `offset` when rows were trimmed.
        `$tablet_index` and `$row_index` are part of every row.

        Args:
            offset: index of the first row wanted.
            max_bytes: about the most bytes to return.

        Raises:
            ClusterUnavailableError: no answer, or the proxy does not know the registration yet.
            ConsumerNotRegisteredError: the consumer is no longer registered.
        """
        command = "pull_queue" if self.consumer is None else "pull_queue_consumer"
        where: dict[str, Any] = {"queue": self.path, "consumer": self.consumer}
        parameters = {
            "queue_path": self.path,
            "consumer_path": self.consumer,
            "offset": offset,
            "partition_index": partition,
            "max_row_count": max_rows,
            "max_data_weight": max_bytes,
            "output_format": BINARY,
        }
        with (
            self._registration_may_lag(),
            self.connection.sending() as sender,
            translated("pull rows", **where, partition=partition, offset=offset),
        ):
            return sender.send(command, parameters)

    def advance(self, partition: int, old: int, new: int) -> None:
        """Move the consumer from `old` to `new` in one partition, in a transaction of its own.

        Repeating an advance that was already applied is a success: the consumer is at `new` then.

        Raises:
            OffsetConflictError: the consumer is at neither offset.
            ClusterUnavailableError: no answer, or the proxy does not know the registration yet.
            ConsumerNotRegisteredError: the consumer is no longer registered.
        """
        assert self.consumer is not None
        where: dict[str, Any] = {"queue": self.path, "consumer": self.consumer}
        with (
            self._registration_may_lag(),
            translated("advance the consumer", **where, partition=partition, expected=old),
        ):
            try:
                self.connection.reader.advance_queue_consumer(
                    self.consumer, self.path, partition, old, new, client_side=False
                )
            except YtError as error:
                if not _is_at(error, new):
                    raise

    @contextmanager
    def _registration_may_lag(self) -> Iterator[None]:
        """Distinguish a registration that the proxy does not know yet from one that is gone."""
        try:
            yield
        except errors.ConsumerNotRegisteredError as error:
            assert self.consumer is not None
            require_registration(self.connection, self.consumer, self.path)
            raise errors.ClusterUnavailableError(
                "The consumer is registered, but the proxy does not know it yet",
                remedy="Wait: proxies learn of a registration within 25 s",
                queue=self.path,
                consumer=self.consumer,
            ) from error


def require_registration(connection: Connection, consumer: str, queue: str) -> None:
    """Check that the consumer exists and is registered for the queue.

    A proxy answers from a cache. The older one refreshes its list every 10 s (`cache_refresh_period`). The
    newer one keeps a missing answer too, for 15 s, and refreshes it every 10 s. So this asks again for 25 s
    before it reports a missing registration.

    Raises:
        ConsumerNotFoundError: no consumer at the path.
        ConsumerNotRegisteredError: it is not registered.
    """
    require_consumer(connection, consumer, queue)
    for _ in range(_LOOKS):
        if registration(connection, queue, consumer) is not None:
            return
        time.sleep(_PAUSE_SECONDS)
    raise errors.ConsumerNotRegisteredError(
        "The consumer is not registered for the queue",
        remedy=f"Run: {advice.register(queue, consumer)}",
        consumer=consumer,
        queue=queue,
    )


def register_consumer(connection: Connection, queue: str, consumer: str, *, vital: bool) -> None:
    """Register a consumer for a queue, or change how it is registered."""
    with translated("register the consumer", queue=queue, consumer=consumer):
        connection.reader.register_queue_consumer(queue, consumer, vital=vital)


def require_consumer(connection: Connection, consumer: str, queue: str) -> None:
    """Check that there is a consumer of one cluster; raise `TableError` if not."""
    found = attributes_of(connection, consumer, ["type", "treat_as_queue_consumer", "schema"])
    if found is None:
        raise errors.ConsumerNotFoundError(
            "There is no such consumer",
            remedy=f"Run: {advice.create_consumer(consumer, queue)}",
            consumer=consumer,
        )
    require_unreplicated(consumer, found)
    if not found.get("treat_as_queue_consumer", False):
        raise errors.ConsumerNotFoundError(
            "This is not a queue consumer",
            remedy=f"Run: {advice.not_a_consumer(consumer, queue, columns_of(found))}",
            consumer=consumer,
        )


def _is_at(error: YtError, offset: int) -> bool:
    """Check whether a conflict reports that the consumer is at that offset."""
    # RPC proxies wrap an error in one of the same code, which lacks the attributes.
    conflict = error.find_matching_error(
        predicate=lambda inner: (
            int(inner.code) == _OFFSET_CONFLICT and "current_offset" in inner.attributes
        )
    )
    return conflict is not None and int(conflict.attributes["current_offset"]) == offset
