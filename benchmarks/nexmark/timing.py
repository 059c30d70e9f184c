"""How long each query takes with each writer: in one warm session, in rounds, in changing order."""

from __future__ import annotations

import random
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.modes import peers
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.oracle import Oracle, read, without_zones
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.stage import Run, frame_of, modes_of, sink_of, tables_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from yt.wrapper import YtClient

NOOP, DELTA = "noop", "delta"

_MILLISECONDS = 1_000
_BATCH_FACTOR = 2
"""Batches have so many times as many rows as under kills, and so are half as many."""


@dataclass(frozen=True)
class Times:
    """Seconds in all batches of a run, of one query, in the order of the rounds, by writer."""

    query: str
    seconds: dict[str, list[float]]

    def median(self, writer: str) -> float:
        """Return the median of its rounds."""
        return statistics.median(self.seconds[writer])

    def ratio(self, writer: str, to: str) -> float:
        """Return the median of the ratios within a round."""
        pairs = zip(self.seconds[writer], self.seconds[to], strict=True)
        return statistics.median(one / other for one, other in pairs)


@dataclass(frozen=True)
class Timing:
    """What all runs share.

    Attributes:
        folder: for checkpoints and for Delta.
        say: takes a line for the user.
    """

    spark: SparkSession
    client: YtClient
    proxy: str
    folder: Path
    events: Events
    say: Callable[[str], None]

    def measure(self, queries: Sequence[Query], rounds: int, seed: int) -> list[Times]:
        """Let every writer take a turn in each round; the first round warms up and does not count.

        Raises:
            RuntimeError: rows of a table are missing, or there twice: nobody may be fast because of that.
        """
        oracle = Oracle(self.events)
        order = random.Random(seed)
        found = []
        for query in queries:
            seconds: dict[str, list[float]] = defaultdict(list)
            writers = [NOOP, *modes_of(query), DELTA]
            for number in range(rounds + 1):
                for writer in order.sample(writers, len(writers)):
                    spent = self._turn(query, writer, number, oracle)
                    if number:
                        seconds[writer].append(spent)
            times = Times(query.name, dict(seconds))
            found.append(times)
            shown = ", ".join(f"{name} {times.median(name):.2f} s" for name in writers)
            self.say(f"{query.name}: {shown}")
        return found

    def _turn(self, query: Query, writer: str, number: int, oracle: Oracle) -> float:
        """Run a query once, and return the seconds in its batches."""
        run = Run.of(
            self.events, 0, proxy=self.proxy, folder=str(self.folder), name=f"round_{number}"
        ).larger(_BATCH_FACTOR)
        frame = frame_of(self.spark, query, run, writer)
        lake = self.folder / "delta"
        if writer == NOOP:
            write: Callable[[DataFrame, int], None] = _noop
        elif writer == DELTA:
            write = peers.delta(lake, query.keys).write
        else:
            write = sink_of(query, run, writer, frame)
        running = (
            frame.writeStream.foreachBatch(write)
            .outputMode(query.output_mode)
            .option("checkpointLocation", run.checkpoint(query, writer))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        if writer != NOOP:
            found = self._written(query, run, writer, lake, oracle)
            if not (outcome := oracle.judge(query, found)).exact:
                message = f"{query.name} {writer}: the table is not what it must be: {outcome}"
                raise RuntimeError(message)
        self.client.remove(run.home(query, writer), recursive=True, force=True)
        shutil.rmtree(lake, ignore_errors=True)
        progress: list[Any] = list(running.recentProgress)
        return sum(told["durationMs"]["triggerExecution"] for told in progress) / _MILLISECONDS

    def _written(self, query: Query, run: Run, writer: str, lake: Path, oracle: Oracle) -> pa.Table:
        if writer == DELTA:
            from deltalake import DeltaTable  # noqa: PLC0415 - only to be timed beside

            return without_zones(DeltaTable(str(lake)).to_pyarrow_table())
        return read(
            self.client, tables_of(self.client, query, run, writer), oracle.expected(query).schema
        )


def _noop(frame: DataFrame, _batch: int) -> None:
    frame.write.format("noop").mode("overwrite").save()
