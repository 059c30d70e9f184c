"""Results: samples of every turn, kept as one JSON file per point, and the numbers made of them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benchmarks.modes.design import BY_NAME
from benchmarks.modes.points import AROUND, IDENTIFY, STEP_NAMES, Point
from benchmarks.processes import CLUSTER, PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Metric = Callable[["Sample"], float | None]

MEMORY = -1
"""The round whose memory counts, and whose time does not: before each turn, memory is given back."""


@dataclass(frozen=True)
class Sample:
    """One turn of one contender.

    Attributes:
        contender: who.
        repetition: in which round of the point, or `MEMORY`; those of one round ran right after each other.
        seconds: of the whole micro-batch.
        write_seconds: of the writer.
        steps: seconds by step of the protocol, from the sinks.
        requests: round trips to the cluster by path, of all processes together; `None` where nobody counts.
        driver_bytes: peak memory of the driver's Python above what the idle driver held at the start.
        turn_bytes: the same above what it held before this turn.
        jvm_bytes: peak resident memory of the JVM, which is driver and executor here.
        cpu: seconds of processor time, by part.
        worker_bytes: peak resident memory of the largest Python worker that has run.
    """

    contender: str
    repetition: int
    seconds: float
    write_seconds: float
    steps: dict[str, float]
    requests: dict[str, int] | None
    driver_bytes: int | None
    turn_bytes: int | None
    jvm_bytes: int | None
    cpu: dict[str, float] = field(default_factory=dict)
    worker_bytes: int | None = None

    @property
    def round_trips(self) -> int | None:
        """All requests."""
        return None if self.requests is None else sum(self.requests.values())

    @property
    def all_steps(self) -> dict[str, float]:
        """Seconds by step, all of which add up to the turn; none where the writer tells of no steps."""
        if not self.steps:
            return {}
        rest = self.write_seconds - sum(self.steps.values())
        known = {IDENTIFY: rest, **self.steps, AROUND: self.seconds - self.write_seconds}
        return {name: known[name] for name in STEP_NAMES if name in known}


def turn_seconds(sample: Sample) -> float:
    """Return how long a turn took."""
    return sample.seconds


def spark_cpu(sample: Sample) -> float | None:
    """Return the CPU seconds of everything except the cluster: driver, JVM and Python workers."""
    if not sample.cpu:
        return None
    return sum(spent for part, spent in sample.cpu.items() if part != CLUSTER)


def cluster_cpu(sample: Sample) -> float | None:
    """Return the CPU seconds of the cluster."""
    return sample.cpu.get(CLUSTER)


METRICS: dict[str, Metric] = {
    "seconds": turn_seconds,
    "round_trips": lambda sample: sample.round_trips,
    "spark_cpu": spark_cpu,
    "cluster_cpu": cluster_cpu,
}


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

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass
class PointResult:
    """Everything measured at one point.

    Attributes:
        point: its name.
        rows: of a batch.
        encoded_bytes: data weight of a batch.
        stamp: when the run began, and where.
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
        (folder / f"{self.point}.json").write_text(json.dumps(asdict(self)) + "\n")

    @property
    def contenders(self) -> list[str]:
        """Who took part, in the order of the design."""
        taken = {sample.contender for sample in self.samples}
        return [name for name in BY_NAME[self.point].contenders if name in taken]

    @property
    def design(self) -> Point:
        """The point as it is designed."""
        return BY_NAME[self.point]

    def of(self, contender: str, value: Metric) -> list[float]:
        """Return a value of each turn that has it."""
        found = (value(sample) for sample in self._turns(contender))
        return [number for number in found if number is not None]

    def memory(self, contender: str) -> Sample | None:
        """Return the turn whose memory counts; older results have none."""
        of_round = (one for one in self.samples if one.repetition == MEMORY)
        return next((one for one in of_round if one.contender == contender), None)

    def by_round(self, contender: str, value: Metric) -> dict[int, float]:
        """Return a value by the number of the round, where it is known."""
        found = {one.repetition: value(one) for one in self._turns(contender)}
        return {number: one for number, one in found.items() if one is not None}

    def seconds(self, contender: str) -> list[float]:
        """Return how long each batch took."""
        return self.of(contender, METRICS["seconds"])

    def spread(self, contender: str, value: Metric) -> Spread | None:
        """Summarise a value of all turns."""
        return _spread(self.of(contender, value))

    def ratio(
        self, contender: str, reference: str, value: Metric = METRICS["seconds"]
    ) -> Spread | None:
        """Return how many times the reference's value a contender has in the same round."""
        pairs = self._pairs(contender, reference, value)
        # Nothing is a multiple of nothing.
        return _spread([one / other for one, other in pairs if other])

    def added(
        self, contender: str, reference: str, value: Metric = METRICS["seconds"]
    ) -> Spread | None:
        """Return how much more than the reference a contender has in the same round."""
        pairs = self._pairs(contender, reference, value)
        return _spread([one - other for one, other in pairs])

    def cpu(self, contender: str) -> dict[str, float]:
        """Return the CPU seconds of a turn by part: means, since the kernel counts in hundredths."""
        kept = [one.cpu for one in self._turns(contender) if one.cpu]
        return {part: fmean(cpu[part] for cpu in kept) for part in PARTS if kept}

    def steps(self, contender: str) -> dict[str, Spread]:
        """Summarise the seconds of every step."""
        by_step: dict[str, list[float]] = defaultdict(list)
        for sample in self._turns(contender):
            for step, seconds in sample.all_steps.items():
                by_step[step].append(seconds)
        return {step: Spread.of(by_step[step]) for step in STEP_NAMES if step in by_step}

    def _turns(self, contender: str) -> Iterator[Sample]:
        return (one for one in self.samples if one.contender == contender and one.repetition >= 0)

    def _pairs(self, contender: str, reference: str, value: Metric) -> list[tuple[float, float]]:
        """Return the values of both in every round that has them."""
        others = self.by_round(reference, value)
        return [
            (one, others[number])
            for number, one in self.by_round(contender, value).items()
            if number in others
        ]


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread.of(values) if values else None


def load_all(folder: Path) -> dict[str, PointResult]:
    """Return the results in a folder by point, in the order of the design."""
    found = {name: folder / f"{name}.json" for name in BY_NAME}
    return {name: PointResult.load(file) for name, file in found.items() if file.exists()}


def summary(result: PointResult) -> list[dict[str, Any]]:
    """Return the table of a point, one map per contender."""
    rows = []
    references = result.design.references
    for contender in result.contenders:
        seconds = result.seconds(contender)
        typical, memory = Spread.of(seconds), result.memory(contender)
        slowest = {name: _p99(result.seconds(name)) for name in (contender, *references)}
        rows.append(
            {
                "contender": contender,
                "repetitions": len(seconds),
                "rows_per_second": result.rows / typical.middle,
                "megabytes_per_second": result.encoded_bytes / typical.middle / 1e6,
                "seconds": typical,
                "p99": slowest[contender],
                "round_trips": result.spread(contender, METRICS["round_trips"]),
                "turn_bytes": memory and memory.turn_bytes,
                "driver_bytes": memory and memory.driver_bytes,
                "jvm_bytes": max(
                    result.of(contender, lambda sample: sample.jvm_bytes), default=None
                ),
                "worker_bytes": max(
                    result.of(contender, lambda sample: sample.worker_bytes), default=None
                ),
                "cpu": result.cpu(contender),
                "steps": result.steps(contender),
                "ratios": {
                    reference: {
                        **{
                            metric: result.ratio(contender, reference, value)
                            for metric, value in METRICS.items()
                        },
                        "p99": _quotient(slowest[contender], slowest[reference]),
                        **{
                            step: result.ratio(
                                contender, reference, lambda one, step=step: one.all_steps.get(step)
                            )
                            for step in result.steps(contender)
                        },
                    }
                    for reference in references
                },
            }
        )
    return rows


def _p99(seconds: list[float]) -> float | None:
    return float(np.percentile(seconds, 99)) if seconds else None


def _quotient(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None
