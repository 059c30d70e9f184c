"""`python -m benchmarks.writers`: what a batch costs with `foreachBatch` and with `format("yt")`.

Queries copy a queue of one partition on the embedded cluster: with Spark's noop sink, with
`TransactionalSink` and with the format. In a round each of them takes a turn, in an order drawn for the
round: a run of one batch, then a run of several. The time of a batch is what Spark reports for its trigger:
everything that happens between two batches. The first batch of a run prepares; its time is told
apart. Requests of a batch are those of the long run less those of the short one, divided by the batches
between them.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from benchmarks.arguments import positive
from benchmarks.modes.machine import stamp
from benchmarks.modes.session import session
from benchmarks.source import QUEUE, SCHEMA, rows_in_queue
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOOP, FUNCTION, FORMAT = "noop", "foreachBatch", "format"
CONTENDERS = (NOOP, FUNCTION, FORMAT)
SIZES = (1_000, 100_000)
MODES = (DeliveryMode.TRANSACTIONAL.value, DeliveryMode.AT_LEAST_ONCE.value)
_SEED = 20_261_122
_NO_WORKER = "Python worker failed to connect back"
"""What Spark says on a machine that is too busy to start a process; the run is then repeated."""


@dataclass
class Measured:
    """What the runs of a contender took.

    Attributes:
        milliseconds: of each batch that is not the first of its run.
        first: milliseconds of each batch that is.
        requests: of a batch, per round.
    """

    milliseconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


@dataclass
class Stage:
    """What the contenders of one size share.

    Attributes:
        spark: session.
        cluster: where.
        folder: for checkpoints.
        mode: of writing.
        rows: of a batch.
    """

    spark: SparkSession
    cluster: LocalCluster
    folder: Path
    mode: str
    rows: int

    def __post_init__(self) -> None:
        self._proxy = self.cluster.proxy_urls[0]
        self._client = self.cluster.client()
        self._queued = rows_in_queue(self._client, 1)
        for name in CONTENDERS:
            target = self._path(name)
            self._client.create("table", target, attributes={"dynamic": True, "schema": SCHEMA})
            self._client.mount_table(target, sync=True)
            consumer = f"{target}_consumer"
            self._client.create("queue_consumer", consumer)
            self._client.mount_table(consumer, sync=True)
            self._client.register_queue_consumer(QUEUE, consumer, vital=False)
            self._client.advance_consumer(
                consumer, QUEUE, partition_index=0, old_offset=0, new_offset=self._queued
            )

    def feed(self, batches: int) -> None:
        """Put rows for so many batches into the queue."""
        self._queued = rows_in_queue(self._client, self._queued + batches * self.rows)

    def run(self, name: str) -> tuple[list[float], int]:
        """Copy what is new; return the milliseconds of each batch, and how many requests came."""
        while True:
            before = self.cluster.request_counts().total()
            query = self._start(name)
            try:
                query.awaitTermination()
                break
            except StreamingQueryException as error:
                if _NO_WORKER not in str(error):
                    raise
        requests = self.cluster.request_counts().total() - before
        progress: list[Any] = list(query.recentProgress)
        return [
            float(told["durationMs"]["triggerExecution"])
            for told in progress
            if told["numInputRows"]
        ], requests

    def require_all_rows(self) -> None:
        """Check that nobody was fast because rows are missing, or wrote some twice.

        Raises:
            RuntimeError: somebody has.
        """
        counts = {
            name: self._client.get_tablet_infos(self._path(name), [0])["tablets"][0][
                "total_row_count"
            ]
            for name in (FUNCTION, FORMAT)
        }
        if len(set(counts.values())) > 1:
            message = f"{counts} rows were written"
            raise RuntimeError(message)

    def _start(self, name: str) -> StreamingQuery:
        target = self._path(name)
        rows = (
            self.spark.readStream.format("yt")
            .option("proxy", self._proxy)
            .option("consumer_path", f"{target}_consumer")
            .option("max_rows_per_partition", self.rows)
            .load(QUEUE)
        )
        checkpoint = str(self.folder / target.rpartition("/")[2])
        writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        )
        if name == NOOP:
            return writer.foreachBatch(_noop).start()
        if name == FUNCTION:
            sink = TransactionalSink(target, mode=self.mode, proxy=self._proxy)
            return writer.foreachBatch(sink).start()
        return writer.format("yt").options(proxy=self._proxy, mode=self.mode).start(target)

    def _path(self, name: str) -> str:
        return f"//home/benchmark/{self.mode}_{self.rows}_{name}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.writers", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--batches", type=positive, default=10, help="of a long run; 2 or more")
    parser.add_argument("--rows", type=positive, nargs="+", default=SIZES, help="of a batch")
    parser.add_argument("--mode", choices=MODES, default=MODES[0])
    options = parser.parse_args(arguments)
    if options.batches == 1:
        parser.error("--batches must be 2 or more")
    logging.getLogger(LOGGER_NAME).setLevel("WARNING")
    print(" ".join(f"{name}={value}" for name, value in stamp().items() if value != "absent"))
    print("| rows | writer | ms, median | quartiles | requests | first batch of a run, ms |")
    print("|---:|---|---:|---:|---:|---:|")
    with LocalCluster() as cluster, session() as spark, tempfile.TemporaryDirectory() as folder:
        register_source(spark)
        for rows in options.rows:
            stage = Stage(spark, cluster, Path(folder), options.mode, rows)
            for name, found in measure(stage, options.rounds, options.batches).items():
                print(line(rows, name, found), flush=True)
            stage.require_all_rows()
    return 0


def measure(stage: Stage, rounds: int, batches: int) -> dict[str, Measured]:
    """Let every contender take a turn in each round; the first round warms up and does not count."""
    chance = random.Random(_SEED)
    found = {name: Measured() for name in CONTENDERS}
    for number in range(rounds + 1):
        spent: dict[str, list[int]] = defaultdict(list)
        for size in (1, batches):
            stage.feed(size)
            for name in chance.sample(CONTENDERS, len(CONTENDERS)):
                milliseconds, requests = stage.run(name)
                spent[name].append(requests)
                if number:
                    found[name].first.append(milliseconds[0])
                    found[name].milliseconds += milliseconds[1:]
        if number:
            for name, (short, long) in spent.items():
                found[name].requests.append((long - short) / (batches - 1))
    return found


def line(rows: int, name: str, found: Measured) -> str:
    """Return a line of the table."""
    low, median, high = statistics.quantiles(found.milliseconds, n=4)
    return (
        f"| {rows:,} | {name} | {median:.0f} | {low:.0f} to {high:.0f} "
        f"| {statistics.median(found.requests):.1f} | {statistics.median(found.first):.0f} |"
    )


def _noop(frame: DataFrame, _batch: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    sys.exit(main())
