"""`python -m benchmarks.freshness`: from `insert_rows` into a queue until readers see a row.

One row comes each 50 ms, for ten minutes. A query copies it to a table, and each contender has a driver of
its own. For Spark's `noop` sink, which shows nobody anything, a row is "seen" when its batch is computed.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from yt.wrapper import YtClient

from benchmarks.arguments import positive
from benchmarks.floor.__main__ import SETTINGS
from benchmarks.modes.session import session
from benchmarks.page import put, rig
from benchmarks.spyt import work
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once import Listener

NOOP, SINK = "noop", "transactional"
PERCENTILES = (50, 90, 99, 99.9)
_TARGET = "//home/freshness/target"
WARM_ROWS = 400
"""Rows that do not count: the JVM compiles while they pass."""

_PATIENCE_SECONDS = 60.0
_ALL_PROGRESS = {"spark.sql.streaming.numRecentProgressUpdates": "1000000"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness", description=__doc__)
    parser.add_argument("--seconds", type=positive, default=600, help="of each contender")
    parser.add_argument("--pause", type=positive, default=50, help="ms from row to row")
    parser.add_argument(
        "--triggers", type=int, nargs="+", default=(0, 200), help="ms; 0: as soon as there are rows"
    )
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS)[:1], metavar="NAME",
        help="of Spark, as benchmarks.floor names them",
    )  # fmt: skip
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    parser.add_argument("--json", type=Path, help="write the results here as well")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        print(json.dumps(drive(**json.loads(options.drive))))
        return 0
    results = [
        in_a_fresh_driver(
            {
                "contender": contender,
                "trigger": trigger,
                "settings": settings,
                "count": options.seconds * 1000 // options.pause,
                "pause": options.pause / 1000,
            }
        )
        for settings in options.settings
        for trigger in options.triggers
        for contender in (NOOP, SINK)
    ]
    lines = table(results)
    print("\n".join(lines))
    if options.page:
        put("freshness", [f"{rig()}.", "", *lines])
    if options.json is not None:
        options.json.write_text(json.dumps(results) + "\n")
    return 0


def in_a_fresh_driver(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one contender in a process of its own, on a cluster of its own; return what it waited, in ms."""
    with LocalCluster() as cluster:
        client = cluster.client()
        queue = work.Queue.create(client)
        work.create_table(client, _TARGET, work.QUEUE_TYPES)
        spec |= {"proxy": cluster.proxy_urls[0], "queue": queue.path, "consumer": queue.consumer}
        driver = subprocess.run(
            [sys.executable, "-m", "benchmarks.freshness", "--drive", json.dumps(spec)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return {**spec, "waited": json.loads(driver.stdout.splitlines()[-1])}


def drive(
    contender: str,
    trigger: int,
    settings: str,
    count: int,
    pause: float,
    proxy: str,
    queue: str,
    consumer: str,
) -> list[float]:
    """Copy rows as they come; return how many ms each has waited."""
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    total = WARM_ROWS + count
    with (
        session(SETTINGS[settings] | _ALL_PROGRESS) as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        register_source(spark)
        source = spark.readStream.format("yt").option("proxy", proxy)
        frame = source.option("consumer_path", consumer).load(queue)
        seen: list[float] = []
        computed: dict[int, float] = {}

        def compute(batch: DataFrame, number: int) -> None:
            batch.write.format("noop").mode("overwrite").save()
            computed[number] = time.monotonic()

        sink = compute if contender == NOOP else TransactionalSink(
            _TARGET, proxy=proxy, listener=_seen_by(seen)
        )  # fmt: skip
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", folder)
        if trigger:
            writer = writer.trigger(processingTime=f"{trigger} milliseconds")
        query = writer.start()
        inserted = feed(proxy, queue, total, pause)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if contender == NOOP:
                seen[:] = [
                    computed[one["batchId"]]
                    for one in query.recentProgress
                    for _ in range(one["numInputRows"])
                ]
            if len(seen) >= total:
                break
            if time.monotonic() > deadline or not query.isActive:
                message = f"{len(seen)} of {total} rows came: {query.exception()}"
                raise RuntimeError(message)
            time.sleep(0.1)
        query.stop()
    return waits(seen, inserted)


def waits(seen: Sequence[float], inserted: Sequence[float]) -> list[float]:
    """Return how many ms each row that counts has waited."""
    return [1000 * (at - since) for at, since in zip(seen, inserted, strict=True)][WARM_ROWS:]


def _seen_by(seen: list[float]) -> Listener:
    """Return a listener that notes when each row could be seen: the queue has one partition."""
    lock = threading.Lock()

    def listener(event: str, fields: dict[str, Any]) -> None:
        if event == "batch.committed":
            now = time.monotonic()
            with lock:
                seen.extend([now] * fields["rows"])

    return listener


def feed(proxy: str, queue: str, total: int, pause: float) -> list[float]:
    """Insert row after row; return when each insert was sent."""
    client = YtClient(proxy=proxy)
    inserted, began = [], time.monotonic()
    for number in range(total):
        time.sleep(max(0.0, began + number * pause - time.monotonic()))
        inserted.append(time.monotonic())
        client.insert_rows(queue, [work.known_row(number)])
    return inserted


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return percentiles as Markdown."""
    rows = [
        (
            (
                one["settings"],
                f"{one['trigger']} ms" if one["trigger"] else "none",
                one["contender"],
            ),
            one["waited"],
        )
        for one in results
    ]
    return percentiles(("settings of Spark", "trigger", "sink"), rows)


def percentiles(
    names: Sequence[str], rows: Iterable[tuple[Sequence[str], Sequence[float]]]
) -> list[str]:
    """Return a table of what was waited, with columns of these names before."""
    marked = [f"p{percentile:g}, ms" for percentile in PERCENTILES]
    heads = [*names, "rows", *marked, "p99 / p50"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for cells, waited in rows:
        marks = [float(np.percentile(waited, percentile)) for percentile in PERCENTILES]
        told = [*cells, f"{len(waited):,}", *(f"{mark:.0f}" for mark in marks)]
        lines.append(f"| {' | '.join(told)} | {marks[2] / marks[0]:.2f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
