"""A queue or a table as a query opens it: it and the options are checked where the query is defined.

What was found travels with the data source to the processes that plan and read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from yt_exactly_once.codec.schema import TableSchema
from yt_exactly_once.errors import ClusterUnavailableError, NotAQueueError, TableNotDynamicError
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.source.offsets import ENDING_OPTION
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.rows import RowFormat, arrow_schema_for
from yt_exactly_once.ytsaurus.browsing import Cluster, cluster_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.reading import WholeTable
from yt_exactly_once.ytsaurus.tables import TableInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_OF_QUEUES = (
    "starting_offsets", ENDING_OPTION, "consumer_path", "fail_on_data_loss",
    "include_service_columns", "include_queue_path", "include_timestamp",
)  # fmt: skip
"""Options that have no meaning for other tables."""


@dataclass(frozen=True)
class OpenedQueue:
    """A source whose options and queue were found in order.

    Attributes:
        queue: where, without links.
        cluster: where that is.
        info: the queue as it was when the query was defined.
        rows: how its rows become Spark's.
    """

    is_queue: ClassVar[bool] = True

    options: SourceOptions
    queue: RemoteQueue
    cluster: Cluster
    info: TableInfo
    rows: RowFormat

    @property
    def spark_schema(self) -> StructType:
        """The schema that Spark gets."""
        return self.rows.spark_schema

    @classmethod
    def open(cls, given: Mapping[str, str]) -> Self:
        """Check everything a query needs, by the options as Spark hands them over.

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
        return cls(options, queue.resolved(), cluster_of(connection), info, rows)


@dataclass(frozen=True)
class OpenedTable:
    """A table that is no queue, found in order, and its columns as Spark gets them."""

    is_queue: ClassVar[bool] = False

    options: SourceOptions
    table: WholeTable
    arrow: pa.Schema

    @property
    def spark_schema(self) -> StructType:
        """The schema that Spark gets."""
        return spark_schema_of(self.arrow)

    @classmethod
    def open(cls, given: Mapping[str, str], reason: Exception) -> Self:
        """Check everything a batch read needs; raise the reason for no queue if an option is for queues."""
        for name in given:
            if name.lower() in _OF_QUEUES:
                raise reason
        options = SourceOptions.parse(given)
        table = WholeTable.look(Connection(options.cluster), options.path)
        columns = TableSchema.from_yt(table.schema, by_type_v3=options.parsing_type_v3)
        return cls(options, table, arrow_schema_for(columns, options))


def open_table(given: Mapping[str, str]) -> OpenedQueue | OpenedTable:
    """Open what the path names: a queue for a stream or a batch read, another table for a batch read."""
    options = {name: value for name, value in given.items() if name.lower() != ENDING_OPTION}
    try:
        return OpenedQueue.open(options)
    except (NotAQueueError, TableNotDynamicError) as error:
        return OpenedTable.open(given, error)
