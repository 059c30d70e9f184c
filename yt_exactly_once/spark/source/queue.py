"""One queue, and the consumer it is read with, as the source sees them: everything it asks a cluster.

A `RemoteQueue` travels by pickle to the tasks and opens its connection there. It decides nothing: what
an answer means is up to the planner and the reader.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConsumerNotRegisteredError,
    TableNotMountedError,
)
from yt_exactly_once.ytsaurus import consumers, queues

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.queues import QueueState
    from yt_exactly_once.ytsaurus.tables import TableInfo

_UNREADABLE = frozenset({"none", "unmounted", "mounting", "unmounting"})


@dataclass(frozen=True)
class RemoteQueue:
    """A queue on a cluster.

    Attributes:
        connection: the cluster.
        path: of the queue.
        consumer: path of the consumer; `None` reads without one.
    """

    connection: Connection
    path: str
    consumer: str | None

    def describe(self) -> TableInfo:
        """Return what the queue is like now."""
        return queues.describe_queue(self.connection, self.path)

    def require_readable(self) -> TableInfo:
        """Check that the queue and the consumer can be read, and describe the queue.

        Raises:
            TableError: no queue at the path, not mounted, no such consumer, or not registered.
            AccessError: the token or its permissions do not suffice.
            ClusterUnavailableError: the cluster does not answer.
        """
        info = self.describe()
        if info.tablet_state in _UNREADABLE:
            raise TableNotMountedError(
                f"The queue is {info.tablet_state}, not mounted",
                remedy=f"Run: yt mount-table {self.path} --sync",
                queue=self.path,
            )
        if self.consumer is not None:
            consumers.require_registration(self.connection, self.consumer, self.path)
        return info

    def cluster_name(self) -> str:
        """Return the name of the cluster."""
        return consumers.cluster_name(self.connection)

    def state(self) -> QueueState:
        """Return which queue it is now, and which rows every partition holds."""
        return queues.queue_state(self.connection, self.path)

    def stored_offsets(self, cluster: str, partitions: Collection[int]) -> dict[int, int]:
        """Return where the consumer stands; a partition it was never moved in is absent.

        Args:
            cluster: name of the cluster, as consumer rows have it.
            partitions: which ones.
        """
        if self.consumer is None:
            return {}
        return consumers.read_offsets(
            self.connection, self.consumer, self.path, cluster, partitions
        )

    def pull(self, partition: int, offset: int, max_rows: int, max_bytes: int) -> bytes:
        """Return rows from an offset on, as the codec decodes them.

        Raises:
            ClusterUnavailableError: no answer, or the proxy has not heard of the registration yet.
            ConsumerNotRegisteredError: the consumer is not registered any more.
        """
        with self._registration_may_lag():
            return queues.pull_rows(
                self.connection, self.path, self.consumer, partition, offset, max_rows, max_bytes
            )

    def advance(self, partition: int, old: int, new: int) -> None:
        """Move the consumer in one partition.

        Raises:
            OffsetConflictError: it does not stand at `old`.
            ClusterUnavailableError: no answer, or the proxy has not heard of the registration yet.
            ConsumerNotRegisteredError: the consumer is not registered any more.
        """
        assert self.consumer is not None
        with self._registration_may_lag():
            consumers.advance(self.connection, self.consumer, self.path, partition, old, new)

    @contextmanager
    def _registration_may_lag(self) -> Iterator[None]:
        """Tell a registration that a proxy does not know yet from one that is gone."""
        try:
            yield
        except ConsumerNotRegisteredError as error:
            assert self.consumer is not None
            consumers.require_registration(self.connection, self.consumer, self.path)
            raise ClusterUnavailableError(
                "The consumer is registered, and the proxy has not heard of it yet",
                remedy="Proxies refresh registrations every few seconds",
                queue=self.path,
                consumer=self.consumer,
            ) from error
