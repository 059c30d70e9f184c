"""A queue as a query opens it: options and queue are checked where the query is defined, at `load()`.

What was found travels with the data source to the processes that plan and read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from yt_exactly_once.errors import ClusterUnavailableError
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.rows import RowFormat
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yt_exactly_once.ytsaurus.tables import TableInfo


@dataclass(frozen=True)
class OpenedQueue:
    """A source whose options and queue were found in order.

    Attributes:
        options: of the source.
        queue: where.
        cluster: name of the cluster.
        info: the queue as it was when the query was defined.
        rows: how its rows become Spark's.
    """

    options: SourceOptions
    queue: RemoteQueue
    cluster: str
    info: TableInfo
    rows: RowFormat

    @classmethod
    def open(cls, given: Mapping[str, str]) -> Self:
        """Check everything a query needs.

        Args:
            given: options as Spark hands them over.

        Raises:
            ConfigError: an option is wrong, or the token is refused.
            TableError: the queue or the consumer is not what it must be.
            ClusterUnavailableError: the proxy cannot be reached.
            SchemaMismatchError: a column's type cannot be read.
        """
        options = SourceOptions.parse(given)
        connection = Connection(options.cluster)
        # A proxy that is down gets the time that the client's retries take.
        with suppress(ClusterUnavailableError):
            connection.require_proxy()
        queue = RemoteQueue(connection, options.path, options.consumer_path)
        try:
            info = queue.require_readable()
        except ClusterUnavailableError as error:
            error.where.setdefault("proxy", options.cluster.proxy)
            raise
        rows = RowFormat(info.schema, options)
        return cls(options, queue, queue.cluster_name(), info, rows)
