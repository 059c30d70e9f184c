"""The tables of growth: what a unit of work costs, from value to value of a dimension."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.modes.growth import DIMENSIONS
from benchmarks.modes.results import Spread, turn_seconds
from benchmarks.processes import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.modes.growth import Dimension
    from benchmarks.modes.results import PointResult

    Results = Mapping[str, PointResult]

FASTER = 1.25
"""From one value to the next: cost per unit of work above which a cost grows faster than its work."""


def tables(results: Results) -> Iterator[str]:
    """Yield the tables of all dimensions that the results have at least two values of."""
    for dimension in DIMENSIONS:
        found = _found(dimension, results)
        if len(found) < 2:
            continue
        yield ""
        yield f"## Growth of {dimension.name}: {dimension.text}"
        yield ""
        yield (
            f"| {dimension.name} | contender | ms per batch | ms per {dimension.unit} | to the value before "
            f"| CPU, ms per {dimension.unit}: {' | '.join(PARTS)} |"
        )
        yield "|---" * (5 + len(PARTS)) + "|"
        for value, result in found.items():
            for contender in result.contenders:
                yield _line(dimension, value, contender, found)
        yield ""
        steps = list(_faster(dimension, found))
        yield (
            f"Faster than its work: {'; '.join(steps)}."
            if steps
            else "No step grows faster than its work."
        )


def growth(
    dimension: Dimension,
    before: int,
    after: int,
    contender: str,
    results: Mapping[int, PointResult],
) -> Spread | None:
    """Return how the time per unit of work grows from one value to another, within rounds."""
    old, new = (results[value].by_round(contender, turn_seconds) for value in (before, after))
    work = dimension.work(after) / dimension.work(before)
    ratios = [new[number] / old[number] / work for number in new if number in old]
    return Spread.of(ratios) if ratios else None


def _found(dimension: Dimension, results: Results) -> dict[int, PointResult]:
    return {
        value: results[point.name]
        for value, point in dimension.points.items()
        if point.name in results
    }


def _line(
    dimension: Dimension, value: int, contender: str, found: Mapping[int, PointResult]
) -> str:
    result, work = found[value], dimension.work(value)
    milliseconds = Spread.of(result.seconds(contender)).middle * 1000
    before = max((other for other in found if other < value), default=None)
    grown = before and growth(dimension, before, value, contender, found)
    cpu = result.cpu(contender)
    cells = [
        f"{value:,}",
        contender,
        f"{milliseconds:,.0f}",
        _short(milliseconds / work),
        str(grown or ""),
        *(_short(cpu[part] * 1000 / work) if cpu else "" for part in PARTS),
    ]
    return f"| {' | '.join(cells)} |"


def _faster(dimension: Dimension, found: Mapping[int, PointResult]) -> Iterator[str]:
    """Yield the steps whose cost per unit grows, as all but the lowest quarter of the rounds have it."""
    for before, after in pairwise(found):
        for contender in found[after].contenders:
            grown = growth(dimension, before, after, contender, found)
            if grown is not None and grown.low > FASTER:
                yield f"{contender}, from {before:,} to {after:,}: {grown}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
