"""The process that suffers: a Spark driver with several queries, run as a user would run them.

`python -m tests.chaos.driver OPTIONS` boots a session and then waits for commands on its standard
input, so that a driver can stand by until another one has died. Every event of the sinks goes up a pipe.
It never prepares itself for being killed.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from tests.chaos.messages import (
    BATCH_COLUMN,
    DO,
    DRAIN,
    DRAINED,
    LEASE_SECONDS,
    NOT_DRAINED,
    QUERY,
    QUERY_FAILED,
    QUERY_STARTED,
    RESTART,
    SESSION_READY,
    START,
    DriverOptions,
    QueryTask,
    RoundTask,
)
from tests.chaos.trouble import Trouble
from tests.flows import NUMBERED, QUERIES, read_queue
from yt_exactly_once import RetryPolicy, TransactionalSink, config, register_source
from yt_exactly_once.delivery import route
from yt_exactly_once.observability import Listener
from yt_exactly_once.testing.child import Report
from yt_exactly_once.testing.nursery import open_nursery
from yt_exactly_once.testing.session import open_session

RETRY = RetryPolicy(
    attempts=60,
    deadline=timedelta(seconds=60),
    first_wait=timedelta(milliseconds=10),
    max_wait=timedelta(milliseconds=200),
)

_AT_ONCE = {"backoff": {"policy": "constant_time", "constant_time": 50}}

_CLIENT = {
    "proxy": {
        # Long delays must become lost answers, and a proxy that failed once must soon be tried again.
        "request_timeout": 4_000,
        "heavy_request_timeout": 4_000,
        "proxy_ban_timeout": 2_000,
        "retries": _AT_ONCE,
    },
    "dynamic_table_retries": _AT_ONCE,
}
_CONNECTIONS = 2
_TOLD = ("batch", "rows", "reason", "attempt", "attempts", "transaction", "verdict")
_ERROR_LENGTH = 30_000


class Queries:
    """The queries of a round, as this driver runs them."""

    def __init__(self, spark: SparkSession, task: RoundTask, report: Report, backend: str) -> None:
        self._spark = spark
        self._backend = backend
        self._task = task
        self._report = report
        self._running: dict[str, StreamingQuery] = {}

    def start(self) -> None:
        """Start all that do not run."""
        for name, value in self._task.conf.items():
            self._spark.conf.set(name, value)
        for query in self._task.queries:
            self.restart(query.name)

    def restart(self, name: str) -> None:
        """Start one that has failed; one that runs is left alone."""
        if self._is_active(name):
            return
        try:
            self._start(next(query for query in self._task.queries if query.name == name))
        except Exception as error:  # noqa: BLE001 - whatever it is, the runner must hear of it
            self._report.send(QUERY_FAILED, query=name, error=str(error)[:_ERROR_LENGTH])

    def drain(self) -> None:
        """Let every query take what is left in the queue, and stop it.

        Raises:
            StreamingQueryException: one failed.
        """
        self.start()
        for query in self._task.queries:
            self._running[query.name].processAllAvailable()
        for running in self._running.values():
            running.stop()

    def _is_active(self, name: str) -> bool:
        running = self._running.get(name)
        return running is not None and running.isActive

    def _start(self, query: QueryTask) -> None:
        task = self._task
        rows = read_queue(
            self._spark,
            task.proxy,
            query.queue,
            query.consumer,
            max_rows_per_partition=task.rows_per_partition,
            # Ranges as long as the limit have tasks of their own; shorter ones share some.
            shared_task_rows=3 * task.rows_per_partition // 2,
            backend=self._backend,
        )
        rows = rows.mapInArrow(Trouble(task.trouble), rows.schema)
        kind = NUMBERED if query.by_source else QUERIES[query.kind]
        frame = kind.build(rows)
        sink = TransactionalSink(
            query.target,
            mode=task.mode,
            proxy=task.proxy,
            retry=RETRY,
            connections=_CONNECTIONS,
            client_config={**_CLIENT, "backend": self._backend},
            listener=self._listener(query.name),
            **query.sink,
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            sink(batch.withColumn(BATCH_COLUMN, sf.lit(batch_id).cast("bigint")), batch_id)

        running = (
            frame.writeStream.foreachBatch(write)
            .queryName(query.name)
            .outputMode(kind.output_mode)
            .option("checkpointLocation", query.checkpoint)
            .start()
        )
        self._running[query.name] = running
        self._report.send(QUERY_STARTED, query=query.name)
        threading.Thread(target=self._attend, args=(query.name, running), daemon=True).start()

    def _attend(self, name: str, running: StreamingQuery) -> None:
        try:
            running.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever it is, the runner must hear of it
            self._report.send(QUERY_FAILED, query=name, error=str(error)[:_ERROR_LENGTH])

    def _listener(self, name: str) -> Listener:
        def listen(event: str, fields: dict[str, Any]) -> None:
            told = {field: fields[field] for field in _TOLD if field in fields}
            self._report.send(event, **(told | {QUERY: name}))

        return listen


def main(arguments: list[str]) -> int:
    """Obey until the runner goes away; return the exit code."""
    options = DriverOptions.load(arguments[0])
    if options.by_tasks:
        route.LARGE = 0
    config.LEASE = timedelta(seconds=LEASE_SECONDS)
    scratch = Path(options.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    interpreter = str(open_nursery(scratch, options.report))
    os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    commands = _commands()
    report = Report(options.report)
    # The comparison at the end needs the offsets of every batch; tasks that are made to fail are tried again.
    kept = {"spark.sql.streaming.minBatchesToRetain": "1000000"}
    spark = open_session(scratch, name="chaos", master="local[2, 8]", conf=kept)
    register_source(spark)
    report.send(SESSION_READY)
    queries: Queries | None = None
    for command in commands:
        if command[DO] == START:
            queries = Queries(spark, RoundTask.from_json(command["round"]), report, options.backend)
        assert queries is not None, "the first command is to start"
        if command[DO] == START:
            queries.start()
        elif command[DO] == RESTART:
            queries.restart(command[QUERY])
        elif command[DO] == DRAIN:
            _drain(queries, report)
    return 0


def _drain(queries: Queries, report: Report) -> None:
    try:
        queries.drain()
    except Exception as error:  # noqa: BLE001 - the runner decides whether to try again
        report.send(NOT_DRAINED, error=str(error)[:_ERROR_LENGTH])
    else:
        report.send(DRAINED)


def _commands() -> Iterator[dict[str, Any]]:
    """Yield commands; end this process and its JVM when the runner is gone."""
    received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def receive() -> None:
        for line in sys.stdin:
            received.put(json.loads(line))
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=receive, daemon=True).start()
    return iter(received.get, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
