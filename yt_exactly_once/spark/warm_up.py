"""What the first batch of a query waits for, done before and beside: while Spark prepares the query.

The first job of a session loads many classes of Spark, and its first task starts a Python and imports what
reads a queue. Both take longer than all requests of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from yt_exactly_once.observability import Event, emitter

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

_DESCRIPTION = "yt_exactly_once: start a Python worker before the first batch needs it"

_warm: WeakSet[Any] = WeakSet()
_lock = Lock()


def warm_up(spark: SparkSession) -> Thread | None:
    """Run a job of one row in the background, once for each Spark context.

    It asks nothing of the cluster and changes nothing. What it fails with, the query meets again and says
    better, so that is an event at debug.

    Returns:
        The thread, which ends with the job; `None` if there is nothing to do.
    """
    context = spark.sparkContext
    with _lock:
        if context in _warm:
            return None
        _warm.add(context)
    # It does not keep a program alive that ends before.
    thread = Thread(target=_run, args=(spark,), name="yt-warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    try:
        context.setJobDescription(_DESCRIPTION)
        spark.range(1, numPartitions=1).mapInArrow(_import_what_reads, "id long").toArrow()
    except Exception as error:  # noqa: BLE001 - the session may end at any moment
        emitter()(Event.WARM_UP_FAILED, reason=type(error).__name__, error=str(error))
    # Without PYSPARK_PIN_THREAD other threads have this description, too. The session may have ended.
    with suppress(Exception):
        context.setLocalProperty("spark.job.description", None)


def _import_what_reads(rows: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Import in a task what a task imports that reads a queue."""
    import yt_exactly_once.spark.source.opening  # noqa: PLC0415
    import yt_exactly_once.spark.source.reader  # noqa: F401, PLC0415

    yield from rows
