"""The process that dies: two stateful queries, one per kind of state store.

`python -m tests.checkpoints.driver PLAN` runs them until it is killed. A query that fails, because a proxy or
the gateway was away for too long, is started again, as a supervisor would. A line on standard input asks for
the state that the checkpoints hold.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.session import open_session
from tests.crash.harness.child import Report
from tests.flows import QUERIES, Query, Queue, Rows, read_queue
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.checkpoints.store import HADOOP_SETTINGS
from yt_exactly_once.nursery import open_nursery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STORES = {
    "aggregation": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "dedup": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""Which query keeps its state in which store."""

_STATE_COLUMNS = {
    "aggregation": ("key.key", "value.count", "value.sum", "unix_micros(value.max)"),
    "dedup": ("key.token", "key.mark"),
}
"""What to take from the state of each query: what its target has in the end."""

_ROWS = 40
"""Of each partition in a batch: so that there are many batches."""

_LOOK_SECONDS = 0.1


def state_must_hold(query: Query, queue: Queue) -> Rows:
    """Return what the state of a query must hold once it has read a queue."""
    return query.must_hold(queue, _ROWS, is_sorted=True)


def main() -> None:
    """Run the queries of the plan until the process is killed."""
    plan = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=plan["scratch"]) as scratch:
        # Before the first thread, as it forks.
        interpreter = str(open_nursery(Path(scratch), plan["report"]))
        os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
        asked = threading.Event()
        threading.Thread(target=_listen, args=(asked,), daemon=True).start()
        _run(plan, Path(scratch), Report(plan["report"]), asked)


def _listen(asked: threading.Event) -> None:
    """Note that the state is asked for, and end with the parent."""
    for _ in sys.stdin:
        asked.set()
    os.killpg(0, signal.SIGKILL)


def _run(plan: dict[str, Any], scratch: Path, report: Report, asked: threading.Event) -> None:
    spark = open_session(scratch)
    for name, value in HADOOP_SETTINGS.items():
        spark.conf.set(name, value)
    register_source(spark)
    running = {name: _start(spark, plan, name) for name in STORES}
    told: dict[str, Any] = {}
    while True:
        for name, query in list(running.items()):
            progress = query.lastProgress
            if progress and progress["batchId"] != told.get(name):
                told[name] = progress["batchId"]
                report.tell("progress", query=name, batch=told[name])
            if not query.isActive:
                report.tell("failed", query=name, error=str(query.exception())[:2_000])
                del running[name]
                if plan["restarts"]:
                    running[name] = _start(spark, plan, name)
        if asked.is_set():
            asked.clear()
            for name in STORES:
                report.tell("state", query=name, rows=_state(spark, plan, name))
        time.sleep(_LOOK_SECONDS)


def _start(spark: SparkSession, plan: dict[str, Any], name: str) -> StreamingQuery:
    while True:
        try:
            return _start_once(spark, plan, name)
        except Exception as error:  # noqa: BLE001 - the gateway may be away right now
            sys.stderr.write(f"{name} does not start: {error}"[:2_000] + "\n")
            time.sleep(_LOOK_SECONDS)


def _start_once(spark: SparkSession, plan: dict[str, Any], name: str) -> StreamingQuery:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[name])
    frame = read_queue(
        spark, plan["proxy"], plan["queue"], plan["consumers"][name], max_rows_per_partition=_ROWS
    )
    query = QUERIES[name]
    return (
        query.build(frame)
        .writeStream.foreachBatch(TransactionalSink(plan["targets"][name], proxy=plan["proxy"]))
        .outputMode(query.output_mode)
        .option("checkpointLocation", f"{plan['location']}/{name}")
        .queryName(name)
        .start()
    )


def _state(spark: SparkSession, plan: dict[str, Any], name: str) -> list[list[Any]]:
    """Return what Spark reads from the state store of a query."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[name])
    frame = spark.read.format("statestore").load(f"{plan['location']}/{name}")
    return [list(row) for row in frame.selectExpr(*_STATE_COLUMNS[name]).collect()]


if __name__ == "__main__":
    main()
