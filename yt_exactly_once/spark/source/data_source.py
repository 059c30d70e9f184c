"""The data source `yt`: a YTsaurus queue as a Structured Streaming source, on stock PySpark.

It checks everything that it can where the query is defined, at `load()`: options, proxy, token,
queue, consumer and registration. What it found travels with it to the processes that plan and read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

from yt_exactly_once.errors import ConfigError, SchemaMismatchError
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.reader import QueueStreamReader
from yt_exactly_once.spark.source.rows import RowFormat
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from yt_exactly_once.ytsaurus.tables import TableInfo

FORMAT_NAME = "yt"

_ENVIRONMENT = ("YT_PROXY", "YT_TOKEN")
"""What Spark must pass on: its Python workers have the environment of the JVM, not that of the driver."""


def register_source(spark: SparkSession) -> None:
    """Make `spark.readStream.format("yt")` known to a session.

    The package must be installed wherever Spark starts Python: on the driver and on every executor.
    The source takes `YT_PROXY` and `YT_TOKEN` as they are now, also when Spark was started before
    they were set.
    """
    # Spark Connect has no context: there the workers have what the server gives them.
    environment = getattr(getattr(spark, "sparkContext", None), "environment", {})
    for name in _ENVIRONMENT:
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]
    spark.dataSource.register(QueueDataSource)


@dataclass(frozen=True)
class _Opened:
    """A source whose options and queue were found in order."""

    options: SourceOptions
    queue: RemoteQueue
    cluster: str
    info: TableInfo
    rows: RowFormat


class QueueDataSource(DataSource):
    """A queue of YTsaurus, read as a stream.

    Every row of the queue from the query's start on is read exactly once and in order within its
    partition, and a replayed batch has the very rows it had. That ends where rows are trimmed before
    they are read, which is an error.

    Options: see `SourceOptions`.
    """

    _opened: _Opened | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the queue's columns, after checking everything a query needs.

        Raises:
            ConfigError: an option is wrong, or the token is refused.
            TableError: the queue or the consumer is not what it must be.
            ClusterUnavailableError: the proxy cannot be reached.
            SchemaMismatchError: a column's type cannot be read.
        """
        return self._open().rows.spark_schema

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        """Return a reader.

        Raises:
            SchemaMismatchError: the query was given a schema of its own, and it is another one.
        """
        opened = self._open()
        if schema != opened.rows.spark_schema:
            raise SchemaMismatchError(
                f"The query reads the queue as {schema.simpleString()}, and its columns are "
                f"{opened.rows.spark_schema.simpleString()}",
                remedy="Leave .schema(...) out and select or cast the columns afterwards",
                queue=opened.options.queue,
            )
        return QueueStreamReader(
            opened.options, opened.queue, opened.cluster, opened.info, opened.rows
        )

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002 - Spark's signature
        """Refuse batch reads.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("The format yt reads streams only", remedy="Use spark.readStream")

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002 - Spark's signature
        """Refuse batch writes.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("The format yt is a source, it does not write", remedy=_USE_SINK)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,  # noqa: ARG002 - Spark's signature
        overwrite: bool,  # noqa: ARG002 - Spark's signature
    ) -> NoReturn:
        """Refuse stream writes.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("The format yt is a source, it does not write", remedy=_USE_SINK)

    def _open(self) -> _Opened:
        """Check options, queue and consumer, once per query: Spark pickles the result."""
        if self._opened is None:
            options = SourceOptions.parse(self.options)
            queue = RemoteQueue(Connection(options.cluster), options.queue, options.consumer)
            info = queue.require_readable()
            rows = RowFormat(info.schema, options)
            self._opened = _Opened(options, queue, queue.cluster_name(), info, rows)
        return self._opened


_USE_SINK = "Use writeStream.foreachBatch(TransactionalSink('//path/to/table'))"
