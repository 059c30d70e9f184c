"""`python -m benchmarks.queries`: many queries in one driver, from their start to their first commits and on.

A fresh driver starts 1, 4 and 16 queries of one session, one right after the other. Each copies the same
queue of two partitions to a table of its own. Then the queue gets more rows, and all queries copy them. The
exit code is 1 if a query failed, or a table has not each row once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import positive
from benchmarks.modes.session import session
from benchmarks.page import put, rig
from benchmarks.processes import SparkProcesses, java_of, proportional_memory
from benchmarks.spyt import work
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from yt_exactly_once import Listener

PARTITIONS = 2
FIRST_ROWS = 500
"""Rows of each partition when the queries start."""

_BATCH_ROWS = 50_000
_PATIENCE_SECONDS = 300.0
_MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a query failed, or its table has not each row once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queries", description=__doc__)
    parser.add_argument("--counts", type=positive, nargs="+", default=(1, 4, 16))
    parser.add_argument("--rounds", type=positive, default=3, help="drivers of each count")
    parser.add_argument("--rows", type=positive, default=100_000, help="of each partition, later")
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    parser.add_argument("--json", type=Path, help="write the results here as well")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        drive(**json.loads(options.drive))
        return 0
    results = []
    for _ in range(options.rounds):
        for count in options.counts:
            results.append(in_a_fresh_driver(count, options.rows))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    lines = table(results)
    print("\n".join(lines))
    if options.page:
        put("queries", [f"{rig()}.", "", *lines])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return int(any(one["failed"] or not one["exact"] for one in results))


def in_a_fresh_driver(count: int, rows: int) -> dict[str, Any]:
    """Run so many queries in a process of its own, on a cluster of its own."""
    with LocalCluster() as cluster:
        client = cluster.client()
        queue = work.Queue.create(client, PARTITIONS)
        queue.append(FIRST_ROWS)
        targets = [f"//home/queries/target_{number}" for number in range(count)]
        for target in targets:
            work.create_table(client, target, work.QUEUE_TYPES, tablet_count=PARTITIONS)
        asked = {
            "proxy": cluster.proxy_urls[0],
            "proxies": cluster.proxy_pids,
            "queue": queue.path,
            "consumers": [queue.for_another().consumer for _ in targets],
            "targets": targets,
            "rows": PARTITIONS * rows,
        }
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.queries", "--drive", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdout.readline()  # all have committed
            began = cluster.request_counts().total()
            queue.append(rows)
            driver.stdin.write("go on\n")
            driver.stdin.close()
            told: dict[str, Any] = json.loads(driver.stdout.read().splitlines()[-1])
            told["requests"] = cluster.request_counts().total() - began
        wanted = sorted(row["id"] for row in queue.all_rows())
        told["exact"] = all(
            sorted(row["id"] for row in client.select_rows(f"id from [{target}]")) == wanted
            for target in targets
        )
    return {"count": count, **told}


def drive(
    proxy: str, proxies: list[int], queue: str, consumers: list[str], targets: list[str], rows: int
) -> None:
    """Start the queries, and say when all have committed; go on when told, and say what that took."""
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    with session() as spark, tempfile.TemporaryDirectory() as folder:
        register_source(spark)
        began = time.monotonic()
        copies = [
            _Copy(spark, proxy, queue, *names, f"{folder}/{number}")
            for number, names in enumerate(zip(consumers, targets, strict=True))
        ]
        _await(copies, lambda copy: copy.first is not None)
        firsts = [copy.first - began for copy in copies if copy.first is not None]
        processes = SparkProcesses(tuple(proxies), os.getpid(), java_of(os.getpid()))
        workers, cpu = processes.workers(), processes.cpu()
        print("all have committed", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        _await(copies, lambda copy: copy.rows >= rows + PARTITIONS * FIRST_ROWS)
        seconds = time.monotonic() - began
        spent = {name: after - cpu[name] for name, after in processes.cpu().items()}
        pids = [os.getpid(), processes.jvm, *workers]
        resident = [proportional_memory(pid) for pid in pids]
        told = {
            "firsts": firsts,
            "seconds": seconds,
            "rows": rows * len(copies),
            "workers": len(workers),
            "python_mib": (sum(resident) - resident[1]) / _MIB,
            "jvm_mib": resident[1] / _MIB,
            "cpu": spent,
            "failed": [str(error) for copy in copies if (error := copy.query.exception())],
        }
        for copy in copies:
            copy.query.stop()
    print(json.dumps(told), flush=True)


class _Copy:
    """A query that copies the queue, and what it has committed."""

    def __init__(
        self, spark: SparkSession, proxy: str, queue: str, consumer: str, target: str, folder: str
    ) -> None:
        self.first: float | None = None
        self.rows = 0
        sink = TransactionalSink(target, proxy=proxy, listener=self._heard())
        source = spark.readStream.format("yt").option("proxy", proxy)
        source = source.option("consumer_path", consumer)
        frame = source.option("max_rows_per_partition", _BATCH_ROWS).load(queue)
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", folder)
        self.query: StreamingQuery = writer.start()

    def _heard(self) -> Listener:
        lock = threading.Lock()

        def listener(event: str, fields: dict[str, Any]) -> None:
            if event == "batch.committed":
                with lock:
                    self.first = self.first or time.monotonic()
                    self.rows += fields["rows"]

        return listener


def _await(copies: Sequence[_Copy], is_done: Callable[[_Copy], bool]) -> None:
    """Wait until every query is done or has failed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not all(is_done(copy) or not copy.query.isActive for copy in copies):
        if time.monotonic() > deadline:
            message = f"Queries were not done in {_PATIENCE_SECONDS:.0f} s"
            raise TimeoutError(message)
        time.sleep(0.02)


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return medians over the rounds as Markdown."""
    heads = (
        "queries", "first commit of the first, s", "of the last, s", "rows/s, all together",
        "Python processes", "their memory, MiB", "memory of the JVM, MiB", "requests per query",
        "CPU seconds per million rows", "failed",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for count in sorted({one["count"] for one in results}):
        same = [one for one in results if one["count"] == count]

        def middle(value: Callable[[dict[str, Any]], float], same: Any = same) -> float:
            return statistics.median(map(value, same))

        cells = [
            f"{middle(lambda one: min(one['firsts'])):.1f}",
            f"{middle(lambda one: max(one['firsts'])):.1f}",
            f"{middle(lambda one: one['rows'] / one['seconds']):,.0f}",
            f"{middle(lambda one: one['workers']):.0f}",
            f"{middle(lambda one: one['python_mib']):,.0f}",
            f"{middle(lambda one: one['jvm_mib']):,.0f}",
            f"{middle(lambda one: one['requests'] / one['count']):.0f}",
            f"{middle(lambda one: sum(one['cpu'].values()) / one['rows'] * 1_000_000):.1f}",
            str(sum(len(one["failed"]) for one in same)),
        ]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
