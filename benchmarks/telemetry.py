"""`python -m benchmarks.telemetry`: what metrics and traces cost a batch.

A query copies a queue on the embedded cluster, batch by batch. Every second batch has listeners for metrics
and traces, which change places from pair to pair. The ratio is that of the times in the sink, within a pair,
with an interval that holds the true median in 95 of 100 runs. CPU seconds are those of the driver's Python
process, all threads, during the same time.

A busy machine blurs these ratios. So the events of one batch are also reported alone, many times, with and
without listeners. What they cost more is all that telemetry adds on the thread of the batch. The source sends
one datagram for each batch besides, in a process of its own.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from pyspark.sql import SparkSession

from benchmarks.arguments import positive
from benchmarks.source import QUEUE, SCHEMA, rows_in_queue
from yt_exactly_once import TransactionalSink, enable_telemetry, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME, Event, emitter, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

TARGET = "//home/benchmark/target"
EVENT_ROUNDS = 500
WARM_PAIRS = 2
"""Pairs at the beginning that do not count."""


class Seconds(NamedTuple):
    """What the sink took for one batch."""

    wall: float
    cpu: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--pairs", type=positive, default=50, help="of batches")
    parser.add_argument("--rows", type=positive, default=1_000, help="of a batch")
    options = parser.parse_args(arguments)
    logging.getLogger(LOGGER_NAME).setLevel("WARNING")
    pairs = copy(options.pairs + WARM_PAIRS, options.rows)[WARM_PAIRS:]
    with listening():
        added = [seconds_of_events() for _ in range(EVENT_ROUNDS)]
    alone = [seconds_of_events() for _ in range(EVENT_ROUNDS)]
    for what in ("wall", "cpu"):
        seconds = {is_on: [getattr(each[is_on], what) for each in pairs] for is_on in (True, False)}
        show(f"batch with, {what}", seconds[True], "s")
        show(f"batch without, {what}", seconds[False], "s")
        ratios = [on / off for on, off in zip(seconds[True], seconds[False], strict=True)]
        show(f"ratio within a pair, {what}", ratios, "")
        low, high = interval(ratios)
        print(f"  95 % interval of its median: {low:.4f} to {high:.4f}")
    show("events of a batch with", [1000 * each for each in added], "ms")
    show("events of a batch without", [1000 * each for each in alone], "ms")
    more = statistics.median(added) - statistics.median(alone)
    share = more / statistics.median(each[False].wall for each in pairs)
    print(f"so the events cost {1000 * more:.3f} ms more, which is {share:.2%} of a batch")
    return 0


def show(name: str, values: list[float], unit: str) -> None:
    """Print the median and the quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    print(f"{name}: {median:.3f} {unit}, quartiles {low:.3f} and {high:.3f}, of {len(values)}")


def interval(values: list[float]) -> tuple[float, float]:
    """Return the values between which the median lies in 95 of 100 samples, whatever their distribution."""
    ordered = sorted(values)
    reach = 0.98 * math.sqrt(len(ordered))
    low, high = math.floor(len(ordered) / 2 - reach), math.ceil(len(ordered) / 2 + reach)
    return ordered[max(low, 0)], ordered[min(high, len(ordered) - 1)]


@contextmanager
def listening() -> Iterator[None]:
    """Record metrics and traces, with the SDK of OpenTelemetry."""
    metrics = MeterProvider([InMemoryMetricReader()])
    with enable_telemetry(meter_provider=metrics, tracer_provider=TracerProvider()):
        yield
    metrics.shutdown()


def copy(count: int, rows: int) -> list[dict[bool, Seconds]]:
    """Copy so many pairs of batches; return the seconds in the sink, with and without."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register_source(spark)
    pairs: list[dict[bool, Seconds]] = [{} for _ in range(count)]
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as checkpoint:
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        rows_in_queue(client, 2 * count * rows)
        client.create("table", TARGET, attributes={"dynamic": True, "schema": SCHEMA})
        client.mount_table(TARGET, sync=True)
        query = (
            spark.readStream.format("yt")
            .option("proxy", proxy)
            .option("max_rows_per_partition", rows)
            .load(QUEUE)
            .writeStream.foreachBatch(timed(TransactionalSink(TARGET, proxy=proxy), pairs))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()
    return pairs


def timed(
    sink: TransactionalSink, pairs: list[dict[bool, Seconds]]
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that notes how long the sink takes."""

    def write(frame: DataFrame, batch: int) -> None:
        pair, place = divmod(batch, 2)
        is_on = bool((pair + place) % 2)
        with listening() if is_on else ExitStack():
            began, worked = time.perf_counter(), time.process_time()
            sink(frame, batch)
            if pair < len(pairs):
                pairs[pair][is_on] = Seconds(
                    time.perf_counter() - began, time.process_time() - worked
                )

    return write


def seconds_of_events() -> float:
    """Report the events of one batch, as a sink does; return how long that took."""
    began = time.perf_counter()
    emit = emitter(query="q", batch=1, target=TARGET, mode="transactional")
    with reported(emit):
        emit(Event.BATCH_COMPUTED, rows=1_000)
        emit(Event.TRANSACTION_STARTED, attempt=1, transaction="1-2-3-4")
        emit(Event.ROWS_WRITTEN, path=TARGET, rows=1_000, replaced=0)
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
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
