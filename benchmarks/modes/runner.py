"""A run: point by point, round by round, one turn of each contender per round, in changing order."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.modes.machine import stamp
from benchmarks.modes.memory import give_back
from benchmarks.modes.peers import AbsentError
from benchmarks.modes.results import MEMORY, PointResult, Sample
from benchmarks.modes.session import session
from benchmarks.modes.stage import Stage
from benchmarks.modes.usage import UsageMeter
from benchmarks.processes import SparkProcesses
from yt_exactly_once import register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.compat.java import require_java

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from benchmarks.modes.points import Point
    from benchmarks.modes.turns import Contender

_SEED = 20_260_101


def run(
    points: Sequence[Point],
    folder: Path,
    *,
    say: Callable[[str], None],
    advance: Callable[[str], None],
) -> None:
    """Measure the points and keep each result in the folder.

    Args:
        points: what to measure.
        folder: for the results.
        say: takes a line for the user.
        advance: called after each turn with whose it was.
    """
    require_java()
    with tempfile.TemporaryDirectory(prefix="yt-benchmark-") as work:
        Path(work).chmod(0o711)  # PostgreSQL may run under another account
        with LocalCluster(Path(work) / "cluster") as cluster, session() as spark:
            register_source(spark)
            measure = _Measure(spark, cluster, advance, stamp())
            for _, family in groupby(points, lambda point: point.family or point.name):
                for result in measure.family(list(family), Path(work)):
                    for name, reason in result.absent.items():
                        say(f"{result.point}: {name} is left out: {reason}")
                    if result.samples:
                        result.save(folder)


def turns_of(point: Point) -> int:
    """Return how many turns every contender has, those that are not counted too."""
    return point.warm_up + point.repetitions


class _Measure:
    """Measures points in one session on one cluster."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: LocalCluster,
        advance: Callable[[str], None],
        run: dict[str, str],
    ) -> None:
        self.run = run
        self._spark = spark
        self._cluster = cluster
        self._advance = advance
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to the JVM
        self._usage = UsageMeter(
            SparkProcesses(tuple(cluster.proxy_pids), os.getpid(), gateway.proc.pid)
        )

    def family(self, points: Sequence[Point], folder: Path) -> list[PointResult]:
        """Measure points that belong together: in every round each contender of each has one turn.

        Raises:
            RuntimeError: a contender has not written the rows it was given.
        """
        turns = turns_of(points[0])
        with ExitStack() as stack:
            results: list[PointResult] = []
            players: list[tuple[PointResult, Contender]] = []
            for point in points:
                result = PointResult(point.name, point.rows, point.encoded_bytes, self.run)
                results.append(result)
                stage = Stage(point, self._spark, self._cluster, folder / point.name, turns)
                stack.enter_context(stage)
                for name in point.contenders:
                    try:
                        players.append((result, stage.contender(name)))
                    except AbsentError as error:
                        result.absent[name] = str(error)
                        for _ in range(turns):
                            self._advance(f"{point.name}: {name} is left out")
            order = random.Random(_SEED)
            for repetition in range(-points[0].warm_up, points[0].repetitions):
                order.shuffle(players)
                for result, contender in players:
                    sample = self._turn(contender, repetition)
                    self._advance(f"{result.point}: {contender.name}")
                    if repetition >= MEMORY:
                        result.samples.append(sample)
            for result, contender in players:
                if result.design.query != "stateful":
                    _require_all_rows(result.design, contender, turns)
        return results

    def _turn(self, contender: Contender, repetition: int) -> Sample:
        contender.prepare()
        if repetition <= MEMORY:
            # Nobody else does so, and to get memory back from the kernel takes longer than to use it.
            give_back()
        before = self._cluster.request_counts()
        self._usage.begin()
        turn = contender.turn()
        used = self._usage.end()
        requests = Counter(self._cluster.request_counts())
        requests.subtract(before)
        return Sample(
            contender.name,
            repetition,
            turn.seconds,
            turn.write_seconds,
            turn.steps,
            {path: count for path, count in requests.items() if count},
            used.driver_bytes,
            used.turn_bytes,
            used.jvm_bytes,
            used.cpu,
            used.worker_bytes,
        )


def _require_all_rows(point: Point, contender: Contender, turns: int) -> None:
    """Check that nobody was fast because rows are missing, or wrote some twice."""
    found, expected = contender.rows_written(), turns * point.rows
    if found is not None and found != expected:
        message = (
            f"{point.name}: {contender.name} was given {expected} rows and has written {found}"
        )
        raise RuntimeError(message)
