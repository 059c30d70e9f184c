"""The process that dies: streaming queries as a user writes them, and a listener that kills it.

`python -m tests.crash.harness.child PLAN` runs the queries of a `Plan` to the end of their queues. Every
event of the sinks is told to the parent on a pipe, the last one right before the process kills its whole
process group.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests.crash.harness.plan import Plan, QueryPlan
from tests.flows import QUERIES, read_queue
from tests.protections import switch_off
from yt_exactly_once import Event, TransactionalSink, register_source
from yt_exactly_once.commit.crash_points import CrashPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_FAULTS = "/local/faults"


class Report:
    """Tells the parent what happens, one JSON object per line."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event; a line is short enough to arrive whole."""
        line = json.dumps({"event": event, **fields}, default=str) + "\n"
        os.write(self._descriptor, line.encode())


class CrashAt:
    """A listener that tells every event and ends the process at one of them.

    Args:
        plan: of the query.
        proxy: of the cluster, to ask for a lost answer.
        report: takes the events.
        die: ends the process; called at the crash point.
    """

    def __init__(
        self, plan: QueryPlan, proxy: str, report: Report, die: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._proxy = proxy
        self._report = report
        self._die = die
        self._point = CrashPoint[plan.point] if plan.point else None

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        self._report.tell(event, query=self._plan.target, batch=fields["batch"], fields=fields)
        if self._point is None or fields["batch"] != self._plan.batch:
            return
        unknown = self._point is CrashPoint.COMMIT_OUTCOME_UNKNOWN
        if unknown and event == Event.TRANSACTION_STARTED:
            lose_answer(self._proxy, fields["transaction"])
        if event == self._point.value.event:
            self._arrive()

    def returned(self, batch_id: int) -> None:
        """Note that the sink has returned."""
        if self._point is CrashPoint.SINK_RETURNED and batch_id == self._plan.batch:
            self._arrive()

    def _arrive(self) -> None:
        self._report.tell("arrived", query=self._plan.target, batch=self._plan.batch)
        self._die()


def lose_answer(proxy: str, transaction_id: str) -> None:
    """Make the cluster apply the commit of a transaction and lose its answer."""
    rule = {
        "command": "commit_transaction",
        "action": "lose_answer",
        "match": {"transaction_id": transaction_id},
    }
    request = urllib.request.Request(
        proxy + _FAULTS,
        data=json.dumps([rule]).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10):
        pass


def main(arguments: list[str]) -> int:
    """Run the plan; return the exit code."""
    _die_with_the_parent()
    plan = Plan.load(arguments[0])
    report = Report(plan.report)
    if plan.off:
        switch_off(plan.off)
    # The last query to arrive ends them all, each of them at its crash point.
    gathered = threading.Barrier(
        max(1, sum(bool(query.point) for query in plan.queries)), action=_ending(plan)
    )

    def die() -> None:
        gathered.wait()

    spark = _session(Path(plan.scratch))
    register_source(spark)
    report.tell("session.ready")
    try:
        running = [_start(spark, plan, query, report, die) for query in plan.queries]
        while any(query.isActive for query in running):
            # A query that fails must not wait for one that stands at its crash point.
            spark.streams.awaitAnyTermination()
            spark.streams.resetTerminated()
        for query in running:
            query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        report.tell("failed", error=str(error))
        traceback.print_exc()
        return 1
    report.tell("finished")
    spark.stop()
    return 0


def _ending(plan: Plan) -> Callable[[], None]:
    how = signal.SIGSTOP if plan.stop else signal.SIGKILL
    return lambda: os.killpg(0, how)


def _start(
    spark: SparkSession, plan: Plan, query: QueryPlan, report: Report, die: Callable[[], None]
) -> StreamingQuery:
    crash = CrashAt(query, plan.proxy, report, die)
    sink = TransactionalSink(
        query.target, mode=query.mode, proxy=plan.proxy, listener=crash, **query.options
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        crash.returned(batch_id)

    rows = read_queue(
        spark,
        plan.proxy,
        query.queue,
        query.consumer,
        max_rows_per_partition=plan.rows_per_partition,
    )
    kind = QUERIES[query.kind]
    return (
        kind.build(rows)
        .writeStream.foreachBatch(write)
        .outputMode(kind.output_mode)
        .option("checkpointLocation", query.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _session(scratch: Path) -> SparkSession:
    scratch.mkdir(parents=True, exist_ok=True)
    return (
        SparkSession.builder.appName("crash")
        .master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={scratch}" -XX:TieredStopAtLevel=1'
        )
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def _die_with_the_parent() -> None:
    """End this process group when the parent is gone, which closes our standard input."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
