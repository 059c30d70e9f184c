"""`python -m benchmarks.telemetry`: what metrics cost a batch.

Two queries read one queue into tables of their own, batch by batch, on the embedded cluster. They take turns:
one with `serve_metrics`, scraped once a second, and with traces that nobody exports; and one without. Their
order changes from round to round. The ratio of the median batches is taken within a round.

A busy machine blurs that ratio. So the events of one batch are also reported alone, many times, with and
without listeners. What they cost more is all that telemetry adds on the thread of the batch.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from pyspark.sql import SparkSession

from benchmarks.arguments import positive
from benchmarks.source import QUEUE, SCHEMA, rows_in_queue
from yt_exactly_once import TransactionalSink, enable_telemetry, register_source, serve_metrics
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME, Event, emitter, reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yt.wrapper import YtClient


EVENT_ROUNDS = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=12, help="of both queries")
    parser.add_argument("--batches", type=positive, default=10, help="of a query in a round")
    parser.add_argument("--rows", type=positive, default=1_000, help="of a batch")
    options = parser.parse_args(arguments)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger(LOGGER_NAME).setLevel("WARNING")
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ratios, lasted = [], []
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        rows_in_queue(client, options.rows * options.batches)
        for number in range(options.rounds + 1):
            seconds = {}
            for is_on in (True, False) if number % 2 else (False, True):
                place = Path(folder) / f"{number}-{is_on}"
                with scraped(spark) if is_on else ExitStack():
                    register_source(spark)
                    seconds[is_on] = run(spark, client, proxy, place, options.rows)
            if number:  # the first one warms Spark up
                lasted.append(seconds[False])
                ratios.append(seconds[True] / seconds[False])
                print(
                    f"round {number:>2}: with {seconds[True]:.3f} s, without {seconds[False]:.3f} s, "
                    f"ratio {ratios[-1]:.3f}",
                    flush=True,
                )
    with scraped(spark):
        added = [milliseconds_of_events() for _ in range(EVENT_ROUNDS)]
    alone = [milliseconds_of_events() for _ in range(EVENT_ROUNDS)]
    spark.stop()
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"ratio {median:.3f}, quartiles {low:.3f} and {high:.3f}, {len(ratios)} rounds")
    for name, each in (("with", added), ("without", alone)):
        low, median, high = statistics.quantiles(each, n=4)
        print(f"events of a batch, {name}: {median:.3f} ms, quartiles {low:.3f} and {high:.3f}")
    more = statistics.median(added) - statistics.median(alone)
    share = more / 1000 / statistics.median(lasted)
    print(f"events of a batch: {more:.3f} ms more, {share:.2%} of the median batch")
    return 0


def milliseconds_of_events() -> float:
    """Report the events of one batch, as a sink does; return how long that took."""
    began = time.perf_counter()
    emit = emitter(query="q", batch=1, target="//home/t", mode="transactional")
    with reported(emit):
        emit(Event.BATCH_COMPUTED, rows=1_000)
        emit(Event.TRANSACTION_STARTED, attempt=1, transaction="1-2-3-4")
        emit(Event.ROWS_WRITTEN, path="//home/t", rows=1_000, replaced=0)
        emit(Event.OFFSETS_ADVANCED, partitions=1)
        emit(Event.LEDGER_RECORDED, transaction="1-2-3-4")
        emit(Event.TRANSACTION_COMMITTED, attempt=1, transaction="1-2-3-4")
        emit(
            Event.BATCH_COMMITTED,
            rows=1_000,
            bytes=70_000,
            attempts=1,
            transaction="1-2-3-4",
            seconds={"look_up": 0.001, "compute": 0.1, "commit": 0.05},
        )
    return 1000 * (time.perf_counter() - began)


@contextmanager
def scraped(spark: SparkSession) -> Iterator[None]:
    """Switch on everything, and scrape it once a second."""
    ended = threading.Event()
    with (
        serve_metrics(spark, port=0) as metrics,
        enable_telemetry(tracer_provider=TracerProvider()),
    ):

        def scrape() -> None:
            while not ended.wait(1):
                urllib.request.urlopen(f"http://localhost:{metrics.port}/metrics").read()

        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            yield
        finally:
            ended.set()
            scraper.join()


def run(spark: SparkSession, client: YtClient, proxy: str, place: Path, rows: int) -> float:
    """Copy the queue; return the median of its batches in seconds, as Spark measures them."""
    target = f"//home/benchmark/{place.name}"
    client.create("table", target, attributes={"dynamic": True, "schema": SCHEMA})
    client.mount_table(target, sync=True)
    query = (
        spark.readStream.format("yt")
        .option("proxy", proxy)
        .option("max_rows_per_partition", rows)
        .load(QUEUE)
        .writeStream.foreachBatch(TransactionalSink(target, proxy=proxy))
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress.batchDuration for progress in query.recentProgress]
    client.remove(target)
    # The first batch prepares the target and starts the workers.
    return statistics.median(batches[1:]) / 1000


if __name__ == "__main__":
    sys.exit(main())
