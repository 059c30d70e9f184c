"""The process that dies: streaming queries as a user writes them, and a listener that kills it.

`python -m tests.crash.harness.child PLAN` runs the queries of a `Plan` to the end of their queues. Every
event of the sinks is told to the parent on a pipe, the last one right before the process kills its whole
process group.
"""

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.chaos.session import open_session
from tests.crash.crash_points import CrashPoint
from tests.crash.harness.plan import Plan, QueryPlan
from tests.flows import QUERIES, read_queue
from yt_exactly_once import Event, Target, TransactionalSink, register_source
from yt_exactly_once.testing.child import Report
from yt_exactly_once.testing.nursery import open_nursery

Fault = dict[str, Any]

_FAULTS = "/local/faults"
_LOOK_SECONDS = 0.05
_WRITES_THAT_PASS = 2
_STARTS_AT_ONCE = 3
_TASKS_AT_ONCE = 32
"""Room for the tasks of all queries, as some wait until they are killed."""

_NO_WORKER = "Python worker failed to connect back"
"""What Spark says on a machine that is too busy to start a process."""


class CrashAt:
    """A listener that tells every event and ends the process at one of them.

    Args:
        proxy: of the cluster, to ask for faults.
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
        self.begun = threading.Event()

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        self.begun.set()
        told = json.loads(json.dumps(fields, default=str))
        self._report.send(event, query=self._plan.target, batch=fields["batch"], fields=told)
        if self._point is None or fields["batch"] != self._plan.batch:
            return
        unknown = self._point is CrashPoint.COMMIT_OUTCOME_UNKNOWN
        if unknown and event == Event.TRANSACTION_STARTED:
            _inject(self._proxy, _lost_answer(fields["transaction"]))
        if self._point is CrashPoint.TASKS_WRITING and event == Event.LEDGER_READ:
            _inject(self._proxy, *_lost_writes(self._plan.target))
            threading.Thread(target=self._arrive_when_a_write_is_lost, daemon=True).start()
        if event == self._point.value.event:
            self._arrive()

    def returned(self, batch_id: int) -> None:
        """Note that the sink has returned."""
        if self._point is CrashPoint.SINK_RETURNED and batch_id == self._plan.batch:
            self._arrive()

    def _arrive_when_a_write_is_lost(self) -> None:
        pause = threading.Event()
        while not _lost(self._proxy, self._plan.target):
            pause.wait(_LOOK_SECONDS)
        self._arrive()

    def _arrive(self) -> None:
        self._report.send("arrived", query=self._plan.target, batch=self._plan.batch)
        self._die()


def _lost_answer(transaction_id: str) -> Fault:
    """Return a fault that applies the commit of a transaction and loses its answer."""
    return {
        "command": "commit_transaction",
        "action": "lose_answer",
        "match": {"transaction_id": transaction_id},
    }


def _lost_writes(target: str) -> list[Fault]:
    """Return faults that let the first writes of tasks into a target pass, and no other one."""
    matches = {"insert_rows": {"path": target}, "push_queue_producer": {"queue_path": target}}
    return [
        {
            "command": command,
            "action": "lose_request",
            "match": match,
            "after": _WRITES_THAT_PASS,
            "count": None,
        }
        for command, match in matches.items()
    ]


def _lost(proxy: str, target: str) -> bool:
    """Tell whether a write into the target was lost."""
    return any(rule["hits"] and target in rule["match"].values() for rule in _ask(proxy))


def _inject(proxy: str, *faults: Fault) -> None:
    _ask(proxy, json.dumps(faults).encode())


def _ask(proxy: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(proxy + _FAULTS, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def main(arguments: list[str]) -> int:
    plan = Plan.load(arguments[0])
    scratch = Path(plan.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    # Before the first thread, as it forks.
    interpreter = str(open_nursery(scratch, plan.report))
    os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    die_with_the_parent()
    report = Report(plan.report)
    # The last query to arrive ends them all, each of them at its crash point.
    gathered = threading.Barrier(
        max(1, sum(bool(query.point) for query in plan.queries)), action=_ending(plan)
    )

    def die() -> None:
        gathered.wait()

    spark = open_session(scratch, tasks=_TASKS_AT_ONCE)
    register_source(spark)
    report.send("session.ready")
    try:
        # The first alone: Spark completes the environment that all its Python workers share while it starts
        # one, and serializes it for the tasks of the others.
        first = _start(spark, plan, plan.queries[0], report, die)
        with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
            others = pool.map(
                lambda query: _start(spark, plan, query, report, die), plan.queries[1:]
            )
        started = [first, *others]
        running = {query.target: one for query, one in zip(plan.queries, started, strict=True)}
    except Exception as error:
        report.send("failed", error=str(error))
        raise
    failed = _wait_for_one(spark, running) if _kills(plan) else _wait_for_all(running)
    for target, error in failed.items():
        report.send("query.failed", query=target, error=error)
    report.send("failed" if failed else "finished", error="\n".join(failed.values()))
    spark.stop()
    return len(failed)


def _kills(plan: Plan) -> bool:
    return any(query.point for query in plan.queries) and not plan.stop


def _wait_for_one(spark: SparkSession, running: dict[str, StreamingQuery]) -> dict[str, str]:
    """Wait for the first failure: the query must not wait for those that stand at their crash point."""
    while any(query.isActive for query in running.values()):
        try:
            spark.streams.awaitAnyTermination()
        except StreamingQueryException:
            break
        spark.streams.resetTerminated()
    return _wait_for_all({name: query for name, query in running.items() if not query.isActive})


def _wait_for_all(running: dict[str, StreamingQuery]) -> dict[str, str]:
    """Wait until every query has ended; return the errors of those that failed."""
    failed = {}
    for target, query in running.items():
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            # Some reasons stand in the trace of the JVM alone.
            failed[target] = f"{error}\n{error._stackTrace}"
    return failed


def _ending(plan: Plan) -> Callable[[], None]:
    return partial(os.killpg, 0, signal.SIGSTOP if plan.stop else signal.SIGKILL)


def _start(
    spark: SparkSession, plan: Plan, query: QueryPlan, report: Report, die: Callable[[], None]
) -> StreamingQuery:
    crash = CrashAt(query, plan.proxy, report, die)
    writer = _writer(spark, plan, query, crash)
    while True:
        running = writer.start()
        # Its turn ends here: a Python worker must start within ten seconds, on any machine.
        while running.isActive and not _has_begun(running, crash):
            pass
        if crash.begun.is_set() or _NO_WORKER not in str(running.exception()):
            return running


def _has_begun(running: StreamingQuery, crash: CrashAt) -> bool:
    """Wait for a moment; tell whether the sink was called, or the format has written a batch."""
    return crash.begun.wait(_LOOK_SECONDS) or bool(running.recentProgress)


def _writer(spark: SparkSession, plan: Plan, query: QueryPlan, crash: CrashAt) -> DataStreamWriter:
    rows = read_queue(
        spark,
        plan.proxy,
        query.queue,
        query.consumer,
        max_rows_per_partition=plan.rows_per_partition,
        backend=plan.backend,
    )
    kind = QUERIES[query.kind]
    writer = (
        kind.build(rows)
        .writeStream.outputMode(kind.output_mode)
        .option("checkpointLocation", query.checkpoint)
        .trigger(availableNow=True)
    )
    if query.by_format:
        # On this thread, which is not always that of the session.
        register_source(spark)
        options = {"proxy": plan.proxy, "backend": plan.backend, "mode": query.mode}
        return writer.format("yt").options(path=query.target, **options, **query.options)
    sink = TransactionalSink(
        Target(query.target, digest=query.digest, create=query.create),
        mode=query.mode,
        proxy=plan.proxy,
        client_config={"backend": plan.backend},
        listener=crash,
        **query.options,
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        crash.returned(batch_id)

    return writer.foreachBatch(write)


def die_with_the_parent() -> None:
    """End this process group when the parent is gone, which closes our standard input."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
