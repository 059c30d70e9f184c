"""The bars: what the package promises about its speed, as ratios from one run."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.modes.points import FLOOR, IDEMPOTENT, LIMIT, SNIPPET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.modes.results import PointResult

    Results = Mapping[str, PointResult]

_TRANSACTIONAL, _AT_LEAST_ONCE = "transactional", "at-least-once"


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        text: what is compared.
        required: the number.
        at_least: whether the number is a lower bound.
        measure: computes the number from the results; `None` when they do not have it.
    """

    text: str
    required: float
    at_least: bool
    measure: Callable[[Results], float | None]

    def is_met(self, value: float) -> bool:
        """Tell whether a measured number meets the bar."""
        return value >= self.required if self.at_least else value <= self.required


def _throughput(point: str, contender: str, reference: str) -> Callable[[Results], float | None]:
    def measure(results: Results) -> float | None:
        result = results.get(point)
        # Throughput is one over time, so the reference comes first.
        ratio = result.slowdown(reference, contender) if result else None
        return ratio.middle if ratio else None

    return measure


def _added_milliseconds(results: Results) -> float | None:
    result = results.get("tiny-queue-1")
    added = result.added(_TRANSACTIONAL, FLOOR) if result else None
    return added.middle * 1000 if added else None


def _added_requests(point: str) -> Callable[[Results], float | None]:
    def measure(results: Results) -> float | None:
        result = results.get(point)
        ours, floor = (
            (result.requests(_TRANSACTIONAL), result.requests(FLOOR)) if result else (None, None)
        )
        return None if ours is None or floor is None else ours - floor

    return measure


def _many_partitions(results: Results) -> float | None:
    one, many = (
        results[point].added(_TRANSACTIONAL, FLOOR) if point in results else None
        for point in ("tiny-queue-1", "tiny-queue-16")
    )
    return many.middle / one.middle if one and many else None


def _worst_doubling(results: Results) -> float | None:
    """Return the growth of the time per doubling of the rows, the largest between two sizes."""
    sizes = sorted(
        (results[point].rows, median(results[point].seconds(_TRANSACTIONAL)))
        for point in ("rows-10000", "base", "memory")
        if point in results and results[point].seconds(_TRANSACTIONAL)
    )
    growths = [
        (later[1] / earlier[1]) ** (1 / math.log2(later[0] / earlier[0]))
        for earlier, later in itertools.pairwise(sizes)
    ]
    return max(growths, default=None)


def _memory(results: Results) -> float | None:
    result = results.get("memory")
    peaks = result.of(_TRANSACTIONAL, lambda sample: sample.driver_bytes) if result else []
    return max(peaks) / result.encoded_bytes if result and peaks else None


BARS = (
    Bar(
        "transactional / at-least-once throughput, 100 000 rows",
        0.97,
        True,
        _throughput("base", _TRANSACTIONAL, _AT_LEAST_ONCE),
    ),
    Bar(
        "transactional / at-least-once throughput, 100 000 rows from a queue",
        0.97,
        True,
        _throughput("queue-4", _TRANSACTIONAL, _AT_LEAST_ONCE),
    ),
    Bar(
        "idempotent / at-least-once throughput, ordered target, 100 000 rows",
        0.85,
        True,
        _throughput("base", IDEMPOTENT, _AT_LEAST_ONCE),
    ),
    Bar(
        "transactional / bare client throughput, 100 000 narrow rows",
        0.7,
        True,
        _throughput("base", _TRANSACTIONAL, LIMIT),
    ),
    Bar(
        "transactional / row snippet throughput, 100 000 narrow rows",
        5.0,
        True,
        _throughput("base", _TRANSACTIONAL, SNIPPET),
    ),
    Bar(
        "milliseconds added to a batch of one row over noop, 1 partition",
        60,
        False,
        _added_milliseconds,
    ),
    Bar("round trips added, 1 partition", 6 + 1, False, _added_requests("tiny-queue-1")),
    Bar("round trips added, 16 partitions", 6 + 16, False, _added_requests("tiny-queue-16")),
    Bar("time added with 16 partitions / with 1", 1.5, False, _many_partitions),
    Bar("driver memory / encoded size, 1 000 000 rows", 3.0, False, _memory),
    Bar("time per doubling of rows, 10 000 to 1 000 000", 2.1, False, _worst_doubling),
)


def measured(results: Results) -> Iterator[tuple[Bar, float]]:
    """Yield the bars that the results have numbers for."""
    for bar in BARS:
        value = bar.measure(results)
        if value is not None:
            yield bar, value
