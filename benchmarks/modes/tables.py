"""The tables of `docs/measured/results.md` that come from a run of all points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.modes.points import (
    COLLECT,
    DELTA,
    FLOOR,
    IDEMPOTENT,
    LIMIT,
    MODES,
    POSTGRES,
    SINKS,
    SNIPPET,
    TASKS,
)
from benchmarks.modes.report import bars_table
from benchmarks.modes.results import METRICS, Spread
from benchmarks.page import put

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.modes.results import PointResult

    Results = Mapping[str, PointResult]

AT_LEAST_ONCE, TRANSACTIONAL = MODES
_RATIOS = (
    ("base", TRANSACTIONAL, DELTA),
    ("base", TRANSACTIONAL, POSTGRES),
    ("base", TRANSACTIONAL, COLLECT),
    ("base", DELTA, COLLECT),
    ("base", AT_LEAST_ONCE, TRANSACTIONAL),
    ("base", IDEMPOTENT, TRANSACTIONAL),
    ("base", TASKS, TRANSACTIONAL),
    ("base", AT_LEAST_ONCE, TASKS),
    ("base", SNIPPET, TRANSACTIONAL),
)
_ADDED = (
    ("rows-1", TRANSACTIONAL),
    ("rows-1", COLLECT),
    ("tiny-queue-1", TRANSACTIONAL),
    ("tiny-queue-1", COLLECT),
)
_BY_ROWS = ("rows-1", "rows-1000", "rows-10000", "base", "rows-1000000")
_KINDS = (FLOOR, COLLECT, TASKS, *SINKS, LIMIT, SNIPPET, DELTA, POSTGRES)


def write(results: Results) -> None:
    """Put the tables on the page."""
    put("rig", _rig(results))
    put("bars", bars_table(results))
    put("ratios", _ratios(results))
    put("rows", _rows(results))
    put("points", _points(results))


def _rig(results: Results) -> Iterator[str]:
    for told in dict.fromkeys(str(result.stamp) for result in results.values()):
        points = [name for name, result in results.items() if str(result.stamp) == told]
        stamp = results[points[0]].stamp
        yield f"- {', '.join(points)}: " + ", ".join(f"{key} {one}" for key, one in stamp.items())


def _ratios(results: Results) -> Iterator[str]:
    yield "| time of a batch | rounds | median (quartiles) |"
    yield "|---|---|---|"
    for point, one, other in _RATIOS:
        found = results[point].ratio(one, other) if point in results else None
        if found is not None:
            yield f"| {point}, {one} / {other} | {_rounds(results, point, one)} | {found} |"
    for point, one in _ADDED:
        added = results[point].added(one, FLOOR) if point in results else None
        if added is not None:
            low, middle, high = (1000 * part for part in (added.low, added.middle, added.high))
            told = f"{middle:.1f} ({low:.1f} to {high:.1f})"
            yield f"| {point}, {one} - {FLOOR}, in ms | {_rounds(results, point, one)} | {told} |"
    for one in (FLOOR, *SINKS):
        found = _many(results, one)
        if found is not None:
            rounds = _rounds(results, "tiny-queue-16", one)
            yield f"| 16 queue partitions / one, {one} | {rounds} | {found} |"


def _many(results: Results, who: str) -> Spread | None:
    few, many = (
        results[f"tiny-queue-{count}"].by_round(who, METRICS["seconds"])
        if f"tiny-queue-{count}" in results
        else {}
        for count in (1, 16)
    )
    pairs = [many[number] / few[number] for number in few if number in many]
    return Spread.of(pairs) if pairs else None


def _rows(results: Results) -> Iterator[str]:
    yield "| rows per batch | transactional, ms | rows/s | noop, ms |"
    yield "|---|---|---|---|"
    for point in _BY_ROWS:
        result = results.get(point)
        if result is not None:
            seconds = _median(result, TRANSACTIONAL)
            rate = f"{result.rows / seconds:,.0f}" if seconds else ""
            times = (_ms(seconds), rate, _ms(_median(result, FLOOR)))
            yield f"| {result.rows:,} | {' | '.join(times)} |"


def _points(results: Results) -> Iterator[str]:
    yield f"| point | {' | '.join(_KINDS)} |"
    yield "|---" * (len(_KINDS) + 1) + "|"
    for name, result in results.items():
        if name.startswith(("rows-", "doubled-", "memory")) or FLOOR not in (result.contenders):
            continue
        yield f"| {name} | {' | '.join(_ms(_median(result, who)) for who in _KINDS)} |"


def _median(result: PointResult, who: str) -> float | None:
    return Spread.of(result.seconds(who)).middle if who in result.contenders else None


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f}"


def _rounds(results: Results, point: str, who: str) -> int:
    return len(results[point].seconds(who))
