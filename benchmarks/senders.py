"""`python -m benchmarks.senders`: what it gives that tasks send the rows of transactional mode.

One query writes batches that tasks send into the transaction and batches that the driver sends, by turns.
Spark and the driver have half of the cores, and the embedded cluster has the other half, as a real cluster
would. A delay stands for the network and for the work of tablet nodes.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.arguments import positive
from benchmarks.modes.work import NARROW, WIDE
from yt_exactly_once import TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from benchmarks.modes.work import Shape
    from yt_exactly_once.spark.sink.run import Delivery


class Case(NamedTuple):
    """A kind of batch.

    Attributes:
        shape: of a row.
        rows: of a batch.
        partitions: of Spark, and tablets of the target.
        delay: milliseconds that each request takes longer.
        write_delay: milliseconds that each request with rows takes longer still.
    """

    shape: Shape
    rows: int
    partitions: int
    delay: float
    write_delay: float


CASES = (
    Case(NARROW, 10_000, 4, 0, 0),
    Case(NARROW, 100_000, 4, 0, 0),
    Case(NARROW, 800_000, 8, 0, 0),
    Case(WIDE, 100_000, 4, 0, 0),
    Case(WIDE, 100_000, 4, 5, 50),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.senders", description=__doc__)
    parser.add_argument(
        "--pairs", type=positive, default=20, help="batches of either kind per case"
    )
    options = parser.parse_args(arguments)
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    pin(cores[half:] or cores)
    with LocalCluster() as cluster:
        pin(cores[:half])
        builder = SparkSession.builder.master(f"local[{half}]")
        spark = builder.config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        print("| rows, Spark partitions | delay, ms | tasks, ms | driver, ms | ratio | pairs |")
        print("|---|---|---|---|---|---|")
        for number, case in enumerate(CASES):
            tasks, driver = by_turns(spark, cluster, f"//t{number}", case, options.pairs)
            print(row_of(case, tasks, driver), flush=True)
    return 0


def pin(cores: Sequence[int]) -> None:
    """Keep this process, and those that it starts from now on, to some cores."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def by_turns(
    spark: SparkSession, cluster: LocalCluster, path: str, case: Case, pairs: int
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of batches that tasks sent, and of those before each of them."""
    client = cluster.client()
    attributes = {"schema": case.shape.columns(), "tablet_count": case.partitions}
    attributes["mount_config"] = {"max_rows_per_transaction": 2_000_000}
    client.create("table", path, attributes={"dynamic": True, **attributes})
    client.mount_table(path, sync=True)
    cluster.clear_faults()
    for command, delay in (("*", case.delay), ("insert_rows", case.write_delay)):
        if delay:
            cluster.inject("delay", command, seconds=delay / 1000, count=None)
    rows = spark.readStream.format("rate-micro-batch")
    rows = rows.option("rowsPerBatch", case.rows).option("numPartitions", case.partitions)
    frame = case.shape.of(rows.load().selectExpr("value as id"))
    sink = ByTurns(path, cluster.proxy_urls[0])
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
        )
        # The first third warms up.
        while len(sink.turns) < 3 * pairs:
            if not query.isActive:
                raise query.exception() or RuntimeError("The query has ended")
            time.sleep(0.05)
        query.stop()
    counted = sink.turns[pairs - pairs % 2 : 3 * pairs - pairs % 2]
    return counted[1::2], counted[::2]


class ByTurns(TransactionalSink):
    """A sink that lets tasks send every second batch, and knows how long its batches took."""

    def __init__(self, path: str, proxy: str) -> None:
        super().__init__(path, proxy=proxy, rows_per_tablet_limit=2_000_000)
        self.turns: list[float] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this."""
        began = time.perf_counter()
        super().__call__(frame, batch_id)
        self.turns.append((time.perf_counter() - began) * 1000)

    def _tasks_send(self, delivery: Delivery) -> bool:
        return bool(delivery.batch.batch_id % 2)


def row_of(case: Case, tasks: Sequence[float], driver: Sequence[float]) -> str:
    """Return a row of the table: medians, and the quartiles of the ratio of neighbours."""
    low, middle, high = statistics.quantiles(
        [one / other for one, other in zip(tasks, driver, strict=True)], n=4
    )
    delay = "; ".join(f"{one:g}" for one in (case.delay, case.write_delay) if one) or "0"
    return (
        f"| {case.rows:,} {case.shape.name}, {case.partitions} | {delay} | {statistics.median(tasks):,.0f} "
        f"| {statistics.median(driver):,.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {len(tasks)} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
