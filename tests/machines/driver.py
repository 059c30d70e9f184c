"""The process that dies: a query per flow, all over one queue, on a cluster of Spark, until it is killed.

`python -m tests.machines.driver PLAN`. The checkpoints are on YTsaurus, as executors write state too. A query
that fails is started again, as a supervisor would. A line on standard input asks for the state that the
checkpoints hold.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.flows import QUERIES, read_queue
from tests.machines.environment import ENVIRONMENT
from tests.machines.standalone import ON_WORKER
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.checkpoints import gateway_at
from yt_exactly_once.testing.child import Report
from yt_exactly_once.testing.nursery import open_nursery

_LOOK_SECONDS = 0.1
_SPREAD = 3
"""Tasks after a shuffle; a target has as many tablets."""
_ERROR_LENGTH = 4_000


def main() -> None:
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
    asked = threading.Event()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    builder = SparkSession.builder.appName("machines")
    for name, value in plan["settings"].items():
        builder = builder.config(name, value)
    _run(builder.getOrCreate(), plan, Report(plan["report"]), asked)


def _listen(asked: threading.Event) -> None:
    """Note that the state is asked for; end this process group when the parent is gone."""
    for _ in sys.stdin:
        asked.set()
    os.killpg(0, signal.SIGKILL)


def _run(spark: SparkSession, plan: dict[str, Any], report: Report, asked: threading.Event) -> None:
    gateway_at(plan["gateway"]).configure(spark, plan["checkpoints"])
    register_source(spark)
    running = {name: _start(spark, plan, name) for name in plan["flows"]}
    told: dict[str, int] = {}
    while True:
        for name, query in list(running.items()):
            progress = query.lastProgress
            if progress and progress["batchId"] != told.get(name):
                told[name] = progress["batchId"]
                report.send("progress", flow=name, batch=told[name])
            if not query.isActive:
                report.send("failed", flow=name, error=str(query.exception())[:_ERROR_LENGTH])
                del running[name]
                if plan["restarts"]:
                    running[name] = _start(spark, plan, name)
        if asked.is_set():
            asked.clear()
            for name, flow in plan["flows"].items():
                if flow["state"]:
                    report.send("state", flow=name, rows=_state(spark, plan, name))
        time.sleep(_LOOK_SECONDS)


def _start(spark: SparkSession, plan: dict[str, Any], name: str) -> StreamingQuery:
    while True:
        try:
            return _start_once(spark, plan, name)
        except Exception as error:  # noqa: BLE001 - the gateway may be away right now
            sys.stderr.write(f"{name} does not start: {error}"[:_ERROR_LENGTH] + "\n")
            time.sleep(_LOOK_SECONDS)


def _start_once(spark: SparkSession, plan: dict[str, Any], name: str) -> StreamingQuery:
    flow = plan["flows"][name]
    query = QUERIES[flow["query"]]
    _keep_state(spark, flow)
    rows = read_queue(
        spark,
        plan["proxy"],
        plan["queue"],
        flow["consumer"],
        max_rows_per_partition=plan["batch_rows"],
    )
    spread = rows.repartition(_SPREAD) if flow["shuffles"] else rows
    writer = (
        query.build(spread)
        .writeStream.outputMode(query.output_mode)
        .option("checkpointLocation", _checkpoint(plan, name))
    )
    options = {"proxy": plan["proxy"], "mode": flow["mode"], "sent_by": flow["sent_by"]}
    options |= {"dyn_batch_size": flow["rows_per_request"], "history_path": plan["history"]}
    if flow["by_format"]:
        return writer.format("yt").options(**options).start(flow["target"])
    return writer.foreachBatch(TransactionalSink(flow["target"], **options)).start()


def _keep_state(spark: SparkSession, flow: dict[str, Any]) -> None:
    store = f"org.apache.spark.sql.execution.streaming.state.{flow['store']}StateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)


def _checkpoint(plan: dict[str, Any], name: str) -> str:
    return f"yt:///{plan['checkpoints'][2:]}/{name}"


def _state(spark: SparkSession, plan: dict[str, Any], name: str) -> list[list[Any]]:
    """Return what Spark reads from the state store of a query."""
    flow = plan["flows"][name]
    _keep_state(spark, flow)
    frame = spark.read.format("statestore").load(_checkpoint(plan, name))
    return [list(row) for row in frame.selectExpr(*flow["state"]).collect()]


if __name__ == "__main__":
    main()
