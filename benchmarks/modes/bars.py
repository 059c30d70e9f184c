"""The bars: what the package promises about its speed, as ratios within rounds and medians of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.modes.design import DOUBLING
from benchmarks.modes.points import FLOOR, IDEMPOTENT, LIMIT, SNIPPET
from benchmarks.modes.results import METRICS, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.modes.results import PointResult

    Results = Mapping[str, PointResult]
    Measure = Callable[[Results], "Spread | None"]

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
    measure: Measure

    def is_met(self, value: float) -> bool:
        """Tell whether a measured number meets the bar."""
        return value >= self.required if self.at_least else value <= self.required

    def verdict(self, found: Spread | None) -> str:
        """Judge by the median, and tell when the quartiles do not agree."""
        if found is None:
            return "not measured"
        sure = self.is_met(found.low) == self.is_met(found.high)
        return ("met" if self.is_met(found.middle) else "missed") + ("" if sure else ", narrowly")


def _throughput(point: str, contender: str, reference: str) -> Measure:
    def measure(results: Results) -> Spread | None:
        result = results.get(point)
        # Throughput is one over time, so the reference comes first.
        return result.ratio(reference, contender) if result else None

    return measure


def _added_milliseconds(results: Results) -> Spread | None:
    result = results.get("tiny-queue-1")
    added = result.added(_TRANSACTIONAL, FLOOR) if result else None
    return Spread(added.low * 1000, added.middle * 1000, added.high * 1000) if added else None


def _added_requests(point: str) -> Measure:
    def measure(results: Results) -> Spread | None:
        result = results.get(point)
        return result.added(_TRANSACTIONAL, FLOOR, METRICS["round_trips"]) if result else None

    return measure


def _many_partitions(results: Results) -> Spread | None:
    one, many = (
        results[point].added(_TRANSACTIONAL, FLOOR) if point in results else None
        for point in ("tiny-queue-1", "tiny-queue-16")
    )
    if one is None or many is None:
        return None
    # Of two spreads: the most favourable and the least favourable quartiles.
    return Spread(many.low / one.high, many.middle / one.middle, many.high / one.low)


def _worst_doubling(results: Results) -> Spread | None:
    """Return how the time grows with twice the rows, where it grows most."""
    points = [results.get(f"doubled-{rows}") for rows in DOUBLING]
    rounds = [
        point.by_round(_TRANSACTIONAL, METRICS["seconds"]) if point else {} for point in points
    ]
    growths = [
        Spread.of([more[number] / less[number] for number in less if number in more])
        for less, more in itertools.pairwise(rounds)
        if less.keys() & more.keys()
    ]
    if len(growths) < len(DOUBLING) - 1:
        return None
    return max(growths, key=lambda growth: growth.middle)


def _memory(results: Results) -> Spread | None:
    result = results.get("memory")
    turn = result and result.memory(_TRANSACTIONAL)
    if result is None or turn is None or turn.driver_bytes is None:
        return None
    return Spread.of([turn.driver_bytes / result.encoded_bytes])


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
    Bar("memory of the driver's Python / encoded size, 1 000 000 rows", 3.0, False, _memory),
    Bar(
        "time with twice the rows, worst step from 15 625 to 1 000 000", 2.1, False, _worst_doubling
    ),
)


def judged(results: Results) -> Iterator[tuple[Bar, Spread | None]]:
    """Yield all bars, with their numbers where the results have them."""
    for bar in BARS:
        yield bar, bar.measure(results)
