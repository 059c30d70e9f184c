"""What differs between the versions of PySpark that this package runs on: 3.5 to 4.3.

Nothing else asks for a version. Each difference is bridged here, or named in an error that says which version
has it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.java_gateway import local_connect_and_auth  # type: ignore[attr-defined]

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "HAS_ADMISSION_CONTROL",
    "STATE_STORE_WRITER",
    "ArrivingBatches",
    "ArrowStreamWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_batches",
    "require_formats",
]

SPARK = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
"""The installed version, major and minor."""

OLDEST_WITH_FORMATS = (4, 0)

_PLANS = "org.apache.spark.sql.execution.streaming"

STATE_STORE_WRITER = (
    f"{_PLANS}.operators.stateful.StateStoreWriter"
    if SPARK >= (4, 1)
    else f"{_PLANS}.StateStoreWriter"
)
"""Trait of every physical operator that writes state."""

HAS_ADMISSION_CONTROL = SPARK >= (4, 2)
"""Whether Spark gives a source the start and the limit of a batch, and prepares it for AvailableNow."""

if TYPE_CHECKING or HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """Spark asks no source here to prepare for AvailableNow."""

    class ReadLimit:
        """How much a batch may read."""

    class ReadAllAvailable(ReadLimit):
        """All there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """So many rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """So many bytes."""

        max_bytes: int


if TYPE_CHECKING or SPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif SPARK >= OLDEST_WITH_FORMATS:
    # Spark 4.0 asks only for this class when it decides whether a writer takes Arrow, for streams too.
    from pyspark.sql.datasource import DataSourceArrowWriter as ArrowStreamWriter


def require_formats() -> None:
    """Check that the installed version has data sources in Python, which the format yt is made of.

    Raises:
        ConfigError: it has none.
    """
    if SPARK < OLDEST_WITH_FORMATS:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no data sources in Python, so there is no format yt",
            remedy="Install pyspark>=4.0,<5. On this version the sink works without the format: "
            "writeStream.foreachBatch(TransactionalSink('//path/to/table')), reading from another source",
        )


def arrow_batches(frame: DataFrame) -> list[pa.RecordBatch]:
    """Compute a DataFrame, once, and return its rows in the order of the partitions.

    Columns of timestamps may have any time zone.
    """
    collect: Any = getattr(frame, "_collect_as_arrow", None)
    if collect is None:
        # Spark Connect.
        return list(frame.toArrow().to_batches())
    # What `toArrow` and `toPandas` call, in all versions. Around it, `toArrow` reads settings and casts
    # the columns to the schema that they have: eleven calls to the JVM more.
    collected: list[pa.RecordBatch] = collect()
    return collected


class ArrivingBatches:
    """The rows of a DataFrame, computed once, while Spark computes the others; iterate once, to the end.

    The rows of a partition come when its task has succeeded, all together and in order. Partitions come in
    any order. Spark keeps the end of the last rows back until there are more, in a buffer. Only the end shows
    that the job has succeeded.

    Attributes:
        order: after the end, the numbers of the batches in the order of the partitions.

    Args:
        frame: the DataFrame.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.order: Sequence[int] = ()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            Exception: what Spark raises when the job fails; some rows may have come before.
        """
        # Processes that read or plan need no Arrow.
        from pyarrow.ipc import open_stream  # noqa: PLC0415

        if not hasattr(self._frame, "_collect_as_arrow"):
            # Spark Connect.
            batches = arrow_batches(self._frame)
            self.order = range(len(batches))
            yield from batches
            return
        # What `_collect_as_arrow` does in all versions. But it returns when it has all batches.
        address, secret, server = self._frame._jdf.collectAsArrowToPython()  # noqa: SLF001
        try:
            stream, connection = local_connect_and_auth(address, secret)
            with connection, stream:
                connection.setblocking(True)
                count = 0
                for batch in open_stream(stream):
                    count += 1
                    yield batch
                # The number of batches and their order, or a negative number and an error.
                last = stream.read()
            if int.from_bytes(last[:4], "big", signed=True) != count or len(last) != 4 + 4 * count:
                raise EOFError(f"Spark gave {count} batches of rows, and then {last[:1000]!r}")
            self.order = struct.unpack(f">{count}i", last[4:])
        finally:
            with unwrap_spark_exception():
                server.getResult()

    @cached_property
    def knows_partitions(self) -> bool:
        """Whether `spark_partition_id()` at the top of the plan is computed by the tasks.

        Over rows that the driver has, as of a pandas DataFrame, Spark computes it before there are tasks: all
        rows get 0, and several tasks compute them.
        """
        java = getattr(self._frame, "_jdf", None)
        if java is None:
            return True
        return str(java.queryExecution().optimizedPlan().nodeName()) != "LocalRelation"
