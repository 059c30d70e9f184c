"""What a driver is before it has work: Spark is up, and it waits for a line of its parent.

Until then it asks nothing of the cluster and opens no checkpoint. So it can start while the driver before it
still runs.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import StreamingQueryException

from yt_exactly_once.observability import LOGGER_NAME
from yt_exactly_once.spark.compat.failures import without_query
from yt_exactly_once.spark.registration import register_source
from yt_exactly_once.testing.child import QUERY, QUERY_FAILED, SESSION_READY, Report, orders
from yt_exactly_once.testing.nursery import open_nursery
from yt_exactly_once.testing.session import open_session

if TYPE_CHECKING:
    import queue

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from yt_exactly_once.observability import Listener

_LOOK_SECONDS = 0.1
_SENT_FIELDS = {"batch", "rows", "reason"}


class Standby(NamedTuple):
    """A driver without work.

    Attributes:
        spark: has the format `yt`; its Python processes are forked, see `nursery`.
        lines: of the parent; the process ends with them, as the parent is gone.
        report: tells the parent.
    """

    spark: SparkSession
    lines: queue.SimpleQueue[str]
    report: Report

    def run(self, queries: Mapping[str, Callable[[Listener], DataStreamWriter]]) -> int:
        """Run queries side by side to the end of their sources; return the exit code.

        Args:
            queries: make each query, given a listener for its sink, by name. The parent hears all events.
        """
        self.report.send(SESSION_READY)
        try:
            # One after the other: Spark does not bear two queries of one Python source that start at once.
            running = [self._start(name, make) for name, make in queries.items()]
            while any(query.isActive for query in running):
                self.spark.streams.awaitAnyTermination()
                self.spark.streams.resetTerminated()
            for query in running:
                # Raises the failure of a query that ended unseen between the two calls above.
                query.awaitTermination()
        except StreamingQueryException as error:
            self.report.send(QUERY_FAILED, error=without_query(error))
            return 1
        finally:
            for query in self.spark.streams.active:
                query.stop()
            self.spark.stop()
        return 0

    def _start(self, name: str, make: Callable[[Listener], DataStreamWriter]) -> StreamingQuery:
        """Start a query, and return when its first batch has begun or it has nothing to do."""
        begun = threading.Event()

        def listen(event: str, fields: dict[str, Any]) -> None:
            begun.set()
            sent = {name: fields[name] for name in _SENT_FIELDS & fields.keys()}
            self.report.send(event, **sent, **{QUERY: name})

        running = make(listen).queryName(name).trigger(availableNow=True).start()
        while running.isActive and not begun.wait(_LOOK_SECONDS):
            pass
        return running


def begin(name: str, folder: Path, report: int) -> Standby:
    """Start Spark.

    Args:
        name: of the application.
        folder: for temporary files of Spark, which a killed process leaves behind.
        report: file descriptor to tell the parent on.
    """
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if sys.platform == "linux":
        # Before the first thread, as it forks. Elsewhere Spark's Python processes import what they need.
        interpreter = str(open_nursery(scratch, report))
        os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    lines = orders()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger(LOGGER_NAME).setLevel("INFO")
    parent = Report(report)
    spark = open_session(scratch, name=name, conf={"spark.log.level": "WARN"})
    register_source(spark)
    return Standby(spark, lines, parent)
