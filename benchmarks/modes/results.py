"""Results: samples of every turn, kept as one JSON file per point, and the numbers made of them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benchmarks.modes.points import BY_NAME, Point
from yt_exactly_once import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """One turn of one contender.

    Attributes:
        contender: who.
        repetition: in which round of the point; those of one round ran right after each other.
        seconds: of the whole micro-batch.
        write_seconds: of the writer.
        steps: seconds by step.
        requests: round trips to the cluster by path, of all processes together.
        driver_bytes: peak memory of the driver's Python above its idle state.
        jvm_bytes: peak memory of the JVM, which is driver and executor here.
    """

    contender: str
    repetition: int
    seconds: float
    write_seconds: float
    steps: dict[str, float]
    requests: dict[str, int]
    driver_bytes: int | None
    jvm_bytes: int | None


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles around it."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarise values."""
        return cls(*(float(value) for value in np.percentile(values, [25, 50, 75])))


@dataclass
class PointResult:
    """Everything measured at one point.

    Attributes:
        point: its name.
        rows: of a batch.
        encoded_bytes: data weight of a batch.
        stamp: when and where.
        samples: of all turns.
        absent: contenders that could not take part, and why.
    """

    point: str
    rows: int
    encoded_bytes: int
    stamp: dict[str, str]
    samples: list[Sample] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read the result of an earlier run."""
        kept = json.loads(file.read_text())
        kept["samples"] = [Sample(**sample) for sample in kept["samples"]]
        return cls(**kept)

    def save(self, folder: Path) -> None:
        """Write the result, in place of an earlier one of the same point."""
        text = json.dumps(asdict(self), indent=1)
        (folder / f"{self.point}.json").write_text(text + "\n")

    @property
    def contenders(self) -> list[str]:
        """Who took part, in the order of the design."""
        taken = {sample.contender for sample in self.samples}
        return [name for name in BY_NAME[self.point].contenders if name in taken]

    @property
    def design(self) -> Point:
        """The point as it is designed."""
        return BY_NAME[self.point]

    def seconds(self, contender: str) -> list[float]:
        """Return how long each batch took."""
        return [sample.seconds for sample in self.samples if sample.contender == contender]

    def of(self, contender: str, value: Callable[[Sample], float | None]) -> list[float]:
        """Return a value of each turn that has it."""
        found = (value(sample) for sample in self.samples if sample.contender == contender)
        return [number for number in found if number is not None]

    def slowdown(self, contender: str, reference: str) -> Spread | None:
        """Return how many times longer a contender takes than the reference in the same round."""
        rounds: dict[int, dict[str, float]] = defaultdict(dict)
        for sample in self.samples:
            rounds[sample.repetition][sample.contender] = sample.seconds
        ratios = [
            taken[contender] / taken[reference]
            for taken in rounds.values()
            if contender in taken and reference in taken
        ]
        return Spread.of(ratios) if ratios else None

    def added(self, contender: str, reference: str) -> Spread | None:
        """Return how many seconds longer a contender takes than the reference in the same round."""
        rounds: dict[int, dict[str, float]] = defaultdict(dict)
        for sample in self.samples:
            rounds[sample.repetition][sample.contender] = sample.seconds
        differences = [
            taken[contender] - taken[reference]
            for taken in rounds.values()
            if contender in taken and reference in taken
        ]
        return Spread.of(differences) if differences else None

    def requests(self, contender: str) -> float | None:
        """Return the median number of round trips of a batch."""
        counts = self.of(contender, lambda sample: sum(sample.requests.values()))
        return median(counts) if counts else None

    def steps(self, contender: str) -> dict[str, float]:
        """Return the median seconds of every step."""
        by_step: dict[str, list[float]] = defaultdict(list)
        for sample in self.samples:
            if sample.contender == contender:
                for step, seconds in sample.steps.items():
                    by_step[step].append(seconds)
        known = [step.value for step in Event]
        return {step: median(by_step[step]) for step in sorted(by_step, key=known.index)}


def load_all(folder: Path) -> dict[str, PointResult]:
    """Return the results in a folder by point, in the order of the design."""
    found = {name: folder / f"{name}.json" for name in BY_NAME}
    return {name: PointResult.load(file) for name, file in found.items() if file.exists()}


def summary(result: PointResult) -> list[dict[str, Any]]:
    """Return the table of a point, one map per contender."""
    rows = []
    for contender in result.contenders:
        seconds = result.seconds(contender)
        typical = Spread.of(seconds)
        memory = result.of(contender, lambda sample: sample.driver_bytes)
        rows.append(
            {
                "contender": contender,
                "repetitions": len(seconds),
                "rows_per_second": result.rows / typical.middle,
                "megabytes_per_second": result.encoded_bytes / typical.middle / 1e6,
                "p50": typical.middle,
                "p99": float(np.percentile(seconds, 99)),
                "low": typical.low,
                "high": typical.high,
                "to_floor": result.slowdown(contender, "noop"),
                "to_at_least_once": result.slowdown(contender, "at-least-once"),
                "requests": result.requests(contender),
                "driver_bytes": max(memory, default=None),
            }
        )
    return rows
