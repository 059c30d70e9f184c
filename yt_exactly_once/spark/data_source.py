"""The data source `yt`: a queue as a source, and a dynamic table as a sink, on stock PySpark.

Spark knows one class under one name for both. What they do is in `source` and in `sink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from yt_exactly_once.spark.tuning.collector import uncollected

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.doors.batch_writer import JobWriter
    from yt_exactly_once.spark.doors.stream_writer import StreamWriter
    from yt_exactly_once.spark.source.packed import PackedQueue
    from yt_exactly_once.spark.source.reader import QueueStreamReader

FORMAT_NAME = "yt"

SECOND_NAME = "yt_exactly_once"
"""The name that no JAR has."""


class YtDataSource(DataSource):
    """Queues of YTsaurus, read as streams, and dynamic tables, written by streams.

    Every row of the queue is read exactly once, from the query's start on, and in order within its partition.
    A replayed batch has the same rows. Rows that are trimmed before they are read are an error. A batch is
    written as `TransactionalSink` does.

    Options: see `SourceOptions`, and `parse_writer_options`.
    """

    _packed: PackedQueue | None = None
    _has_travelled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in another process: Spark plans a batch with a new object, and ends it with a sent one."""
        vars(self).update(state)
        self._has_travelled = True

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the queue's columns, after checking all that a query needs; see `OpenedQueue.open`."""
        return self._open().spark_schema

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        """Return a reader; see `reader_of`."""
        from yt_exactly_once.spark.source.reader import reader_of  # noqa: PLC0415 - writers start sooner

        return reader_of(self._open(), schema, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a table or a part of a queue once; see `batch_reader`."""
        from yt_exactly_once.spark.source.tables import batch_reader  # noqa: PLC0415 - writers start sooner

        return batch_reader(self._open(), self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> JobWriter:
        """Return what writes a batch job; see `job_writer`."""
        from yt_exactly_once.spark.doors.batch_writer import job_writer  # noqa: PLC0415 - readers start sooner

        return job_writer(self.options, schema, overwrites=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter:
        """Return what writes the batch that Spark runs; see `stream_writer`."""
        from yt_exactly_once.spark.doors.stream_writer import stream_writer  # noqa: PLC0415 - readers start sooner

        plans = not self._has_travelled
        return stream_writer(self.options, schema, complete=overwrite, plans=plans)

    def _open(self) -> PackedQueue:
        """Open the queue or the table, once per query: Spark pickles the result."""
        if self._packed is None:
            with uncollected():
                # The process that only passes it on starts sooner.
                from yt_exactly_once.spark.source.opening import open_table  # noqa: PLC0415
                from yt_exactly_once.spark.source.packed import PackedQueue  # noqa: PLC0415

            self._packed = PackedQueue(open_table(self.options))
        return self._packed


def named(name: str) -> type[YtDataSource]:
    """Return the data source under another name."""
    if name == FORMAT_NAME:
        return YtDataSource

    class Named(YtDataSource):
        @classmethod
        def name(cls) -> str:
            return name

    return Named
