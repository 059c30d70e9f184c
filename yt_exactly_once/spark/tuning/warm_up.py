"""What the first batch of a query waits for, done before and beside: while Spark prepares the query.

Spark opens a source in one Python process, passes it on with another one, and reads it with a third. It
starts each of them when it needs it, and then keeps it for a minute. Their imports take longer than all
requests of the first batch. The first job of a session also loads many classes of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from yt_exactly_once.observability import Event, emitter
from yt_exactly_once.spark.compat.jvm import open_format
from yt_exactly_once.spark.tuning import Where, tuning
from yt_exactly_once.spark.tuning.start import (
    OPEN,
    PASS_ON,
    READ,
    import_all,
    start_sooner,
    started_sooner,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_DESCRIPTION = "yt_exactly_once: start a Python worker before the first batch needs it"


@tuning(
    what="starts the Python processes that open and read a queue, and a Spark job of one row, in the "
    "background",
    where=Where.SESSION,
    why="Spark starts each of them when a query needs it, and the first job loads Spark's classes",
    gain="1.5 of 6.5 s from the session to the first commit, with the lines about the start of processes",
    off="`register_source(spark, warm_up=False)`",
)
def warm_up(spark: SparkSession) -> Thread | None:
    """Start Spark's Python processes and a job of one row in the background, once for each Spark context.

    It asks nothing of the cluster. What it fails with, the query meets again and says better, so that is an
    event at debug.

    Returns:
        The thread, which ends with the job; `None` if there is nothing to do.
    """
    if not start_sooner(spark.sparkContext):
        return None
    # It does not keep a program alive that ends before.
    thread = Thread(target=_run, args=(spark,), name="yt-warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    # Side by side: the job waits for the session, and the other processes do not.
    planners = Thread(target=_attempt, args=(_start_planners, spark), daemon=True)
    planners.start()
    _attempt(_start_worker, spark)
    planners.join()


def _attempt(step: Callable[[SparkSession], None], spark: SparkSession) -> None:
    try:
        step(spark)
    except Exception as error:  # noqa: BLE001 - the session may end at any moment
        emitter()(Event.WARM_UP_FAILED, reason=type(error).__name__, error=str(error))


def _start_planners(spark: SparkSession) -> None:
    """Let Spark open a source that only imports, and pass it on.

    Not by `spark.readStream`: that waits for the session, which takes its time to begin.
    """
    from pyspark.sql.udf import _wrap_function  # noqa: PLC0415 - as `spark.dataSource.register` does

    with started_sooner(spark):
        function = _wrap_function(spark.sparkContext, WarmUpSource)
    open_format(spark, function, WarmUpSource.name())


def _start_worker(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    try:
        context.setJobDescription(_DESCRIPTION)
        row = spark.range(1, numPartitions=1)
        with started_sooner(spark):
            job = row.mapInArrow(_import_what_reads, "id long")
        job.toArrow()
    finally:
        # Without PYSPARK_PIN_THREAD other threads have this description, too. The session may have ended.
        with suppress(Exception):
            context.setLocalProperty("spark.job.description", None)


class WarmUpSource(DataSource):
    """Imports what a process imports that opens the format `yt`, or passes it on."""

    @classmethod
    def name(cls) -> str:
        """Return a name that nobody registers."""
        return "yt_warm_up"

    def schema(self) -> str:
        """Import what opens a queue."""
        import_all(OPEN)
        return "id long"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Import what passes a queue on."""
        import_all(PASS_ON)
        return _NoRows()


class _NoRows(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:  # noqa: ARG002
        return iter(())


def _import_what_reads(rows: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Import in a task what a task imports that reads a queue."""
    import_all(READ)
    yield from rows
