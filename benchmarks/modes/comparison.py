"""What changed between two results, beyond noise.

Every value is divided by that of the reference in the same round, so that a slower machine does not look
like a slower sink. The interval of a ratio is that of Mann and Whitney: exact, whatever the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.modes.points import SINKS
from benchmarks.modes.results import cluster_cpu, spark_cpu, turn_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.modes.results import Metric, PointResult

    Results = Mapping[str, PointResult]

CONFIDENCE = 0.99
"""Of an interval. Tables have dozens of them, and this is the most that five rounds each can give."""

SMALLEST = 0.05
"""Changes below are not told: two runs of one version differ so much."""

_LEAST_SECONDS = 0.005
"""Half of what the kernel counts CPU in; nothing is a multiple of zero."""

_METRICS: dict[str, tuple[str, Metric, Metric, str, str]] = {
    "seconds": ("time", turn_seconds, turn_seconds, "slower", "faster"),
    "spark_cpu": ("CPU of Spark", spark_cpu, spark_cpu, "more", "less"),
    "cluster_cpu": ("CPU of the cluster", cluster_cpu, spark_cpu, "more", "less"),
}
"""By name: title, value, what the reference's is divided by, and the words for a change."""

NO_DIFFERENCE = "no difference seen"
TOO_FEW = "too few rounds"
_STAMP_NAMES = ("time", "revision")
"""Of a stamp: what may differ."""


class NothingToCompareError(Exception):
    """Two results have no work in common; the text says why."""


@dataclass(frozen=True)
class Change:
    """One value of one contender at one point, new / old.

    Attributes:
        point: where.
        contender: who.
        metric: which value.
        is_relative: whether it is divided by the reference's first.
        ratio: the typical ratio; `None` when there are too few rounds.
        low: lower end of its interval.
        high: upper end.
    """

    point: str
    contender: str
    metric: str
    is_relative: bool
    ratio: float | None = None
    low: float = 0.0
    high: float = math.inf

    @property
    def verdict(self) -> str:
        """What can be said."""
        if self.ratio is None:
            return TOO_FEW
        *_, more, less = _METRICS[self.metric]
        if self.low > 1 and self.ratio >= 1 + SMALLEST:
            return more
        if self.high < 1 and self.ratio <= 1 / (1 + SMALLEST):
            return less
        return NO_DIFFERENCE

    @property
    def is_change(self) -> bool:
        """Whether a difference was seen."""
        return self.verdict not in (NO_DIFFERENCE, TOO_FEW)

    @property
    def is_loss(self) -> bool:
        """Whether one of our sinks has become worse."""
        return self.contender in SINKS and self.verdict == _METRICS[self.metric][3]

    def __str__(self) -> str:
        if self.ratio is None:
            return ""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Comparison:
    """Everything that two results have in common.

    Attributes:
        changes: by point, contender and metric.
        stamps: what is not the same about machine and versions: name, old, new.
        left_out: points that are not compared, and why.
    """

    changes: list[Change]
    stamps: list[tuple[str, str, str]]
    left_out: dict[str, str]


def compare(old: Results, new: Results) -> Comparison:
    """Compare two results point by point.

    Raises:
        NothingToCompareError: they have no point in common that can be compared.
    """
    changes: list[Change] = []
    left_out = {
        name: f"only the {which} result has it"
        for which, one, other in (("old", old, new), ("new", new, old))
        for name in one
        if name not in other
    }
    stamps: dict[tuple[str, str, str], None] = {}
    for name in old:
        if name in left_out:
            continue
        before, after = old[name], new[name]
        if (before.rows, before.encoded_bytes) != (after.rows, after.encoded_bytes):
            left_out[name] = "its work is another"
        elif before.design.reference not in (*before.contenders, *after.contenders):
            left_out[name] = "it has no contender that the others are divided by"
        else:
            changes += _changes(before, after)
            stamps |= dict.fromkeys(_stamps(before, after))
    if not changes:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise NothingToCompareError(f"The results have no work in common. {reasons}".rstrip())
    return Comparison(changes, list(stamps), left_out)


def shift(old: Sequence[float], new: Sequence[float]) -> tuple[float, float, float] | None:
    """Return by how much new values are above old ones: lower end, typical, upper end.

    The interval holds the true shift in `CONFIDENCE` of all runs. `None` where so few values cannot say it.
    """
    cut = _cut_off(len(old), len(new))
    if cut == 0:
        return None
    gaps = sorted(after - before for before in old for after in new)
    return gaps[cut - 1], median(gaps), gaps[-cut]


def markdown(found: Comparison) -> Iterator[str]:
    """Yield the lines of the report: what changed, then everything."""
    yield "# What changed"
    yield ""
    by_chance = len(found.changes) * (1 - CONFIDENCE)
    yield (
        f"Ratios are new / old, with intervals of {CONFIDENCE:.0%}, each relative to the reference in its "
        f"round. Of {len(found.changes)} of them, about {by_chance:.1f} miss the truth by chance. Changes "
        f"below {SMALLEST:.0%} are not told."
    )
    for name, before, after in found.stamps:
        yield f"- Not the same: {name}: {before} before, {after} now."
    yield ""
    told = [change for change in found.changes if change.is_change]
    for change in told:
        title = _METRICS[change.metric][0]
        alone = "" if change.is_relative else " (the reference itself: machine, Spark or versions)"
        lost = "**Lost**: " if change.is_loss else ""
        where = f"{change.point}, {change.contender}"
        yield f"- {lost}{where}: {title} {change}: {change.verdict}{alone}."
    if not told:
        yield f"In all: {NO_DIFFERENCE}."
    yield ""
    titles = [f"{title} | " for title, *_ in _METRICS.values()]
    yield f"| point | contender | {' | '.join(titles)} |"
    yield "|---" * (2 + 2 * len(titles)) + "|"
    places = dict.fromkeys((change.point, change.contender) for change in found.changes)
    by_place = {(change.point, change.contender, change.metric): change for change in found.changes}
    for point, contender in places:
        row = [by_place.get((point, contender, metric)) for metric in _METRICS]
        cells = [f"{change} | {change.verdict}" if change else " | " for change in row]
        relative = all(change.is_relative for change in row if change)
        yield f"| {point} | {contender}{'' if relative else ', by itself'} | {' | '.join(cells)} |"
    yield ""
    yield from (f"- Not compared: {name}: {why}." for name, why in found.left_out.items())


def to_json(found: Comparison) -> dict[str, Any]:
    """Return everything as JSON has it."""
    return {
        "confidence": CONFIDENCE,
        "smallest": SMALLEST,
        "changes": [
            {
                "point": change.point,
                "contender": change.contender,
                "metric": change.metric,
                "is_relative": change.is_relative,
                "ratio": change.ratio,
                "low": change.low if change.ratio else None,
                "high": change.high if change.ratio else None,
                "verdict": change.verdict,
            }
            for change in found.changes
        ],
        "not_the_same": [
            {"name": name, "old": before, "new": after} for name, before, after in found.stamps
        ],
        "left_out": found.left_out,
    }


def _changes(before: PointResult, after: PointResult) -> Iterator[Change]:
    reference = before.design.reference
    for contender in before.contenders:
        if contender not in after.contenders:
            continue
        is_relative = contender != reference
        for metric, (_, value, unit, *_) in _METRICS.items():
            old, new = (
                _logarithms(result, contender, value, (reference, unit) if is_relative else None)
                for result in (before, after)
            )
            if not old or not new:
                continue  # an older result has no CPU
            found = shift(old, new)
            if found is None:
                yield Change(before.point, contender, metric, is_relative)
            else:
                low, middle, high = map(math.exp, found)
                yield Change(before.point, contender, metric, is_relative, middle, low, high)


def _logarithms(
    result: PointResult, contender: str, value: Metric, divisor: tuple[str, Metric] | None
) -> list[float]:
    """Return the logarithm of a value in every round, divided by the reference's if there is one."""
    if divisor is None:
        return [math.log(max(one, _LEAST_SECONDS)) for one in result.of(contender, value)]
    reference, unit = divisor
    units = result.by_round(reference, unit)
    return [
        math.log(max(one, _LEAST_SECONDS) / max(units[number], _LEAST_SECONDS))
        for number, one in result.by_round(contender, value).items()
        if number in units
    ]


def _stamps(before: PointResult, after: PointResult) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys((*before.stamp, *after.stamp)):
        old, new = (result.stamp.get(name, "unknown") for result in (before, after))
        if old != new and name not in _STAMP_NAMES:
            yield name, old, new


def _cut_off(old: int, new: int) -> int:
    """Return how many of the sorted gaps between two samples lie outside the interval, at each end."""
    # How many orders of both samples have so many pairs the wrong way round: Gauss's polynomial.
    orders = [1] + [0] * (old * new)
    for place in range(1, new + 1):
        for pairs in range(old * new, old + place - 1, -1):
            orders[pairs] -= orders[pairs - old - place]
        for pairs in range(place, old * new + 1):
            orders[pairs] += orders[pairs - place]
    allowed = (1 - CONFIDENCE) / 2 * math.comb(old + new, new)
    for cut, count in enumerate(orders):
        allowed -= count
        if allowed < 0:
            return cut
    return 0
