"""`python -m benchmarks.ahead`: what it gives to send rows while Spark computes others.

One query writes batches that begin their commit ahead and batches that begin it at the end, by turns. Spark
and the driver have half of the cores, and the embedded cluster has the other half, as a real cluster would.
A delay stands for the network and for the work of tablet nodes.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.arguments import positive
from benchmarks.modes.work import NARROW
from yt_exactly_once import TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.parts import SendAhead
    from yt_exactly_once.commit.transactional import BatchCommit
    from yt_exactly_once.spark.sink.run import Delivery


class Case(NamedTuple):
    """A kind of batch.

    Attributes:
        rows: of a batch.
        partitions: of Spark, and tablets of the target.
        delay: milliseconds that each request takes longer.
        write_delay: milliseconds that each request with rows takes longer still.
    """

    rows: int
    partitions: int
    delay: float
    write_delay: float


CASES = (
    Case(1, 4, 0, 0),
    Case(1, 4, 5, 0),
    Case(100_000, 4, 0, 0),
    Case(100_000, 4, 5, 20),
    Case(800_000, 8, 0, 0),
    Case(800_000, 8, 5, 50),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ahead", description=__doc__)
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
        print("| rows, Spark partitions | delay, ms | ahead, ms | at the end, ms | ratio | pairs |")
        print("|---|---|---|---|---|---|")
        for number, case in enumerate(CASES):
            ahead, end = by_turns(spark, cluster, f"//t{number}", case, options.pairs)
            print(row_of(case, ahead, end), flush=True)
    return 0


def pin(cores: Sequence[int]) -> None:
    """Keep this process, and those that it starts from now on, to some cores."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def by_turns(
    spark: SparkSession, cluster: LocalCluster, path: str, case: Case, pairs: int
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of batches that were begun ahead, and of those before each of them."""
    client = cluster.client()
    attributes = {"schema": NARROW.columns(), "tablet_count": case.partitions}
    client.create("table", path, attributes={"dynamic": True, **attributes})
    client.mount_table(path, sync=True)
    cluster.clear_faults()
    for command, delay in (("*", case.delay), ("insert_rows", case.write_delay)):
        if delay:
            cluster.inject("delay", command, seconds=delay / 1000, count=None)
    rows = spark.readStream.format("rate-micro-batch")
    rows = rows.option("rowsPerBatch", case.rows).option("numPartitions", case.partitions)
    frame = NARROW.of(rows.load().selectExpr("value as id"))
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
    """A sink that begins the commit of every second batch ahead, and knows how long its batches took."""

    def __init__(self, path: str, proxy: str) -> None:
        super().__init__(path, proxy=proxy)
        self.turns: list[float] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this."""
        began = time.perf_counter()
        super().__call__(frame, batch_id)
        self.turns.append((time.perf_counter() - began) * 1000)

    def _ahead(
        self, delivery: Delivery, committer: BatchCommit
    ) -> AbstractContextManager[SendAhead | None]:
        is_ahead = delivery.batch.batch_id % 2
        return super()._ahead(delivery, committer) if is_ahead else nullcontext()


def row_of(case: Case, ahead: Sequence[float], end: Sequence[float]) -> str:
    """Return a row of the table: medians, and the quartiles of the ratio of neighbours."""
    low, middle, high = statistics.quantiles(
        [one / other for one, other in zip(ahead, end, strict=True)], n=4
    )
    delay = "; ".join(f"{one:g}" for one in (case.delay, case.write_delay) if one) or "0"
    return (
        f"| {case.rows:,}, {case.partitions} | {delay} | {statistics.median(ahead):,.0f} "
        f"| {statistics.median(end):,.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {len(ahead)} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
