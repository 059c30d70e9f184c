"""What differs between the versions of PySpark that this package runs on: 3.5 to 4.3.

Nothing else asks for a version. Each difference is bridged here, or named in an error that says which version
has it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyspark

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame

__all__ = ["ArrowStreamWriter"]

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

if TYPE_CHECKING or SPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif SPARK >= OLDEST_WITH_FORMATS:
    # Spark 4.0 asks only for this class when it decides whether a writer takes Arrow, for streams too.
    from pyspark.sql.datasource import DataSourceArrowWriter as ArrowStreamWriter


def require_formats() -> None:
    """Check that this PySpark has data sources in Python; raise `ConfigError` if it has none."""
    if SPARK < OLDEST_WITH_FORMATS:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no data sources in Python, so there is no format yt",
            remedy="Install pyspark>=4.0,<5. On this version the sink works without the format: "
            "writeStream.foreachBatch(TransactionalSink('//path/to/table')), reading from another source",
        )


def is_known_format(error: AnalysisException) -> bool:
    """Return whether Spark has found the format by itself, and keeps it, as PySpark 4.0 does."""
    return error.getCondition() == "DATA_SOURCE_ALREADY_EXISTS"


_ROWS_OF_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ROUND = 100
"""A number is round if this divides it."""


def arrow_batches(frame: DataFrame) -> list[pa.RecordBatch]:
    """Compute a DataFrame, once, and return its rows in the order of the partitions.

    Columns of timestamps may have any time zone.
    """
    collect = _collect_of(frame)
    if collect is None:
        return list(frame.toArrow().to_batches())
    # What `toArrow` and `toPandas` call, in all versions. Around it, `toArrow` reads settings and casts
    # the columns to the schema that they have: eleven calls to the JVM more.
    collected: list[pa.RecordBatch] = collect(frame)
    return collected


def _collect_of(frame: DataFrame) -> Any:
    """Return the method that brings rows to the driver as Arrow; `None` on Spark Connect."""
    # Of the class: a DataFrame of Spark Connect takes any name for a column.
    return getattr(type(frame), "_collect_as_arrow", None)


def has_batch_ends(frame: DataFrame) -> bool:
    """Return whether `ended_batches` can compute it: on Spark Connect, batches end after some bytes."""
    return _collect_of(frame) is not None


def ended_batches(frame: DataFrame) -> tuple[list[pa.RecordBatch], int | None]:
    """Compute a DataFrame as `arrow_batches` does, and return how many rows a full batch has.

    All batches are full but the last one of each Spark partition. Source: `ArrowConverters.toBatchIterator`,
    which counts nothing but rows. `None` if somebody changed the setting meanwhile.

    A partition with a round number of rows is common, and its last batch would be full. So where the session
    has a round number, it has one less until the rows are here. Everything that the function of the query
    does shares this session.
    """
    conf = frame.sparkSession.conf
    given = int(str(conf.get(_ROWS_OF_BATCH)))
    most = given - 1 if given > 0 and given % _ROUND == 0 else given
    if most != given:
        conf.set(_ROWS_OF_BATCH, most)
    try:
        batches = arrow_batches(frame)
    finally:
        is_kept = str(conf.get(_ROWS_OF_BATCH)) == str(most)
        if is_kept and most != given:
            conf.set(_ROWS_OF_BATCH, given)
    full = most if most > 0 else sys.maxsize
    is_full = all(batch.num_rows <= full for batch in batches)
    return batches, full if is_kept and is_full else None
