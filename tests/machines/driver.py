"""The driver on the cluster: a query per flow, all over one queue, until it is killed.

`python -m tests.machines.driver PLAN`. The checkpoints are on YTsaurus, as executors write state too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests.crash.harness.child import Report
from tests.flows import QUERIES, read_queue
from tests.machines.environment import ENVIRONMENT
from tests.machines.standalone import ON_WORKER
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.checkpoints import gateway_at
from yt_exactly_once.nursery import open_nursery

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 0.1
_ERROR_LENGTH = 4_000


def main() -> None:
    """Run the flows of the plan; a query that fails is started again."""
    plan = json.loads(sys.argv[1])
    # Before the first thread, as it forks.
    scratch = Path(plan["scratch"])
    python = driver_python = open_nursery(scratch, plan["report"])
    if plan["is_packed"]:
        # Relative, so that it is the unpacked archive on executors. The driver has one too.
        os.chdir(scratch)
        python = Path(ENVIRONMENT, "bin", "python")
    if plan["executor_python"]:
        # One path, as Spark starts the same one everywhere, and another Python on executors.
        python = scratch / "python"
        python.write_text(
            f'#!/bin/sh\nif [ -n "${ON_WORKER}" ]; then exec {plan["executor_python"]} "$@"; fi\n'
            f'exec {driver_python} "$@"\n'
        )
        python.chmod(0o700)
    os.environ |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    _die_with_the_parent()
    report = Report(plan["report"])
    builder = SparkSession.builder.appName("machines")
    for name, value in plan["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway_at(plan["gateway"]).configure(spark, plan["checkpoints"])
    register_source(spark)
    running = {name: _start(spark, plan, name) for name in plan["flows"]}
    told: dict[str, int] = {}
    while True:
        for name, query in running.items():
            if not query.isActive:
                report.tell("failed", flow=name, error=str(query.exception())[:_ERROR_LENGTH])
                running[name] = _start(spark, plan, name)
                continue
            progress = query.lastProgress
            if progress and progress["batchId"] != told.get(name):
                told[name] = progress["batchId"]
                report.tell("progress", flow=name, batch=told[name])
        time.sleep(_LOOK_SECONDS)


def _start(spark: SparkSession, plan: dict[str, Any], name: str) -> StreamingQuery:
    flow = plan["flows"][name]
    query = QUERIES[flow["query"]]
    frame = read_queue(
        spark,
        plan["proxy"],
        plan["queue"],
        flow["consumer"],
        max_rows_per_partition=plan["batch_rows"],
    )
    sink = TransactionalSink(flow["target"], mode=flow["mode"], proxy=plan["proxy"])
    return (
        query.build(frame)
        .writeStream.foreachBatch(sink)
        .outputMode(query.output_mode)
        .option("checkpointLocation", f"yt:///{plan['checkpoints'][2:]}/{name}")
        .start()
    )


def _die_with_the_parent() -> None:
    """End this process group when the parent is gone, which closes our standard input."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
