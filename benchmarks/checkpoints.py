"""`python -m benchmarks.checkpoints`: what a batch costs with its checkpoint on a disk and on YTsaurus.

A query reads a queue of the embedded cluster, and writes in transactional mode. One kind copies rows, the
other one aggregates them in Spark's default state store. Each round runs each kind with both places of the
checkpoint, in an order that changes. Requests are counted from the call of the sink in one batch to that in
another one: what a checkpoint on a disk does not cause is caused by the gateway.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from benchmarks.arguments import positive
from benchmarks.source import QUEUE, SCHEMA, rows_in_queue
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.checkpoints import checkpoints
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame
    from yt.wrapper import YtClient

FOLDER = "//home/benchmark"
KINDS = ("stateless", "stateful")
PLACES = ("disk", "YTsaurus")
WARM_BATCHES = 2
"""Batches of each run that do not count."""


@dataclass
class Cost:
    """What the batches of one kind with one place of the checkpoint have cost.

    Attributes:
        seconds: of each batch, as Spark tells them.
        requests: of all batches, by command.
        batches: between the first and the last count of requests.
    """

    seconds: list[float] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    batches: int = 0

    def per_batch(self) -> dict[str, float]:
        """Return the requests of a batch."""
        return {path: count / self.batches for path, count in self.requests.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a line for each kind and place."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=6)
    parser.add_argument("--batches", type=positive, default=10, help="that count, of each run")
    parser.add_argument("--rows", type=positive, default=1_000, help="of a batch")
    parser.add_argument("--shuffle-partitions", type=positive, default=2)
    options = parser.parse_args(arguments)
    logging.getLogger(LOGGER_NAME).setLevel("WARNING")
    costs = {(kind, place): Cost() for kind in KINDS for place in PLACES}
    with LocalCluster() as cluster, checkpoints(proxy=cluster.proxy_urls[0]) as store:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", options.shuffle_partitions)
            .getOrCreate()
        )
        store.configure(spark)
        spark.sparkContext.setLogLevel("ERROR")
        register_source(spark)
        client = cluster.client()
        rows_in_queue(client, (options.batches + WARM_BATCHES) * options.rows)
        for number in range(options.rounds):
            for kind in KINDS:
                for place in PLACES[:: 1 if number % 2 else -1]:
                    name = f"{kind}-{number}"
                    with tempfile.TemporaryDirectory() as folder:
                        where = folder if place == "disk" else store.url(f"{FOLDER}/{name}")
                        run(
                            spark,
                            cluster,
                            create_target(client, kind, f"{FOLDER}/{name}-{place}"),
                            kind=kind,
                            checkpoint=where,
                            rows=options.rows,
                            cost=costs[kind, place],
                        )
            print(f"round {number + 1} of {options.rounds}", flush=True)
        spark.stop()
    for kind in KINDS:
        show(kind, *(costs[kind, place] for place in PLACES))
    return 0


def create_target(client: YtClient, kind: str, path: str) -> str:
    """Create and mount the target of a run."""
    schema = SCHEMA
    if kind == "stateful":
        schema = [
            {"name": "key", "type_v3": "int64", "sort_order": "ascending"},
            {"name": "amount", "type_v3": {"type_name": "optional", "item": "double"}},
        ]
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.mount_table(path, sync=True)
    return path


def run(
    spark: SparkSession,
    cluster: LocalCluster,
    target: str,
    *,
    kind: str,
    checkpoint: str,
    rows: int,
    cost: Cost,
) -> None:
    """Read the queue to its end, and add what that cost."""
    proxy = cluster.proxy_urls[0]
    frame = (
        spark.readStream.format("yt")
        .option("proxy", proxy)
        .option("max_rows_per_partition", rows)
        .load(QUEUE)
    )
    if kind == "stateful":
        frame = frame.groupBy("key").agg({"amount": "sum"}).toDF("key", "amount")
    counts: list[Counter[str]] = []
    query = (
        frame.writeStream.foreachBatch(
            counting(TransactionalSink(target, proxy=proxy), cluster, counts)
        )
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    cost.seconds += [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress["batchId"] >= WARM_BATCHES and progress["numInputRows"]
    ]
    cost.requests.update(counts[-1] - counts[WARM_BATCHES])
    cost.batches += len(counts) - 1 - WARM_BATCHES


def counting(
    sink: TransactionalSink, cluster: LocalCluster, counts: list[Counter[str]]
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that notes how many requests there were before its batch."""

    def write(frame: DataFrame, batch: int) -> None:
        counts.append(cluster.request_counts())
        sink(frame, batch)

    return write


def show(kind: str, disk: Cost, gateway: Cost) -> None:
    """Print what a kind costs with each place of the checkpoint."""
    for place, cost in zip(PLACES, (disk, gateway), strict=True):
        low, median, high = (1000 * each for each in statistics.quantiles(cost.seconds, n=4))
        print(
            f"{kind}, checkpoint on {place}: {median:.0f} ms per batch, quartiles {low:.0f} and "
            f"{high:.0f}, of {len(cost.seconds)} batches"
        )
    before, after = disk.per_batch(), gateway.per_batch()
    added = {path: count - before.get(path, 0) for path, count in after.items()}
    told = {path.rpartition("/")[2]: round(each, 1) for path, each in added.items()}
    listed = ", ".join(f"{each:g} {path}" for path, each in sorted(told.items()) if each)
    print(
        f"{kind}, requests that the gateway adds to a batch: {sum(added.values()):.1f} ({listed})"
    )


if __name__ == "__main__":
    sys.exit(main())
