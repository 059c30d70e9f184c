"""Points where SPYT takes part: turns of `benchmarks.spyt speed`, in the form of the other points.

SPYT needs a PySpark of its own, so each contender has a driver of its own, ours too. Its batches are timed
by Spark. Only contenders of one such point can be compared with each other.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.modes.results import PointResult, Sample
from benchmarks.spyt import environments
from benchmarks.spyt.speed import measure
from benchmarks.spyt.trials import SAME_SPARK, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.modes.points import Point
    from yt_exactly_once.local import LocalCluster

_INSTALL = "python -m benchmarks.spyt speed"


def family(
    points: Sequence[Point],
    cluster: LocalCluster,
    folder: Path,
    run: dict[str, str],
    advance: Callable[[str], None],
    *,
    cache: Path = environments.DEFAULT_CACHE,
) -> list[PointResult]:
    """Measure the points; without SPYT nobody takes part.

    Args:
        points: of the same contenders and repetitions.
        cluster: where.
        folder: for checkpoints and logs.
        run: the stamp of the run.
        advance: called after each turn with whose it was.
        cache: where SPYT is installed.
    """
    results = {
        point.rows: PointResult(point.name, point.rows, point.encoded_bytes, run)
        for point in points
    }
    first = points[0]
    chosen = [who for who in SAME_SPARK if who.name in first.contenders]
    absent = {}
    if not environments.is_installed(cache, pyspark=environments.NEWEST_PYSPARK):
        reason = f"SPYT {environments.SPYT} is not installed. Run: {_INSTALL}"
        absent = {who.name: reason for who in chosen}
    for result in results.values():
        result.absent |= absent
        for name in absent:
            for _ in range(first.repetitions):
                advance(f"{result.point}: {name} is left out")
    present = [who for who in chosen if who.name not in absent]
    if present:
        folder.joinpath("spyt").mkdir(exist_ok=True)

        def keep(turn: dict[str, Any]) -> None:
            result = results[turn["rows"]]
            result.samples.append(sample(turn))
            advance(f"{result.point}: {turn['contender']}")

        stage = Stage(cluster, cache, folder / "spyt")
        measure(stage, present, list(results), first.repetitions, keep)
    return list(results.values())


def sample(turn: dict[str, Any]) -> Sample:
    """Return a turn of `benchmarks.spyt speed` as a sample."""
    seconds = median(turn["batches"])
    return Sample(
        contender=turn["contender"],
        repetition=turn["round"],
        seconds=seconds,
        write_seconds=seconds,
        steps={},
        requests=None,
        driver_bytes=None,
        turn_bytes=None,
        jvm_bytes=turn["jvm_bytes"] or None,
        cpu=turn["cpu"],
        worker_bytes=turn["worker_bytes"] or None,
    )
