"""The report: a table per point and the bars, as Markdown and on the screen, and charts as PNG."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.modes.bars import judged
from benchmarks.modes.points import DESCRIPTIONS, STEP_NAMES
from benchmarks.modes.results import Spread, summary
from benchmarks.processes import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

    from benchmarks.modes.results import PointResult


def write_report(results: Mapping[str, PointResult], folder: Path, console: Console) -> None:
    """Write `report.md`, `summary.json` and the charts, and show the tables."""
    text = "\n".join(markdown(results))
    (folder / "report.md").write_text(text + "\n")
    (folder / "summary.json").write_text(json.dumps(to_json(results), indent=1) + "\n")
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    try:
        from benchmarks.modes.charts import draw  # noqa: PLC0415 - optional
    except ImportError:
        console.print("No charts: the package matplotlib (extra `bench`) is not installed")
    else:
        for file in draw(results, folder):
            console.print(f"Chart: {file}")
    console.print(f"Results: {folder}/*.json, {folder}/report.md")


def to_json(results: Mapping[str, PointResult]) -> dict[str, Any]:
    """Return the numbers of the report, and the ratios of every metric."""
    return {
        "points": {
            name: {
                "stamp": result.stamp,
                "rows": result.rows,
                "encoded_bytes": result.encoded_bytes,
                "contenders": _plain(summary(result)),
                "absent": result.absent,
            }
            for name, result in results.items()
        },
        "bars": [
            {
                "text": bar.text,
                "required": bar.required,
                "at_least": bar.at_least,
                "measured": _plain(found),
                "verdict": bar.verdict(found),
            }
            for bar, found in judged(results)
        ],
    }


def markdown(results: Mapping[str, PointResult]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield "# Benchmark of the modes"
    yield ""
    runs = _runs(results)
    for stamp, points in runs:
        told = "; ".join(f"{name} {value}" for name, value in stamp.items())
        yield told if len(runs) == 1 else f"{', '.join(points)}: {told}"
        yield ""
    if len(runs) > 1:
        yield "These are points of several runs: only numbers of one run can be compared."
        yield ""
    yield from bars_table(results)
    yield ""
    yield from (f"- *{name}*: {text}." for name, text in DESCRIPTIONS.items())
    for result in results.values():
        yield ""
        yield from point_tables(result)


def bars_table(results: Mapping[str, PointResult]) -> Iterator[str]:
    """Yield the table of the bars."""
    yield "| bar | required | median (quartiles) | |"
    yield "|---|---|---|---|"
    for bar, found in judged(results):
        sign = "≥" if bar.at_least else "≤"
        yield f"| {bar.text} | {sign} {bar.required:g} | {_ratio(found)} | {bar.verdict(found)} |"


def point_tables(result: PointResult) -> Iterator[str]:
    """Yield the tables of one point: sizes, ratios, and steps."""
    point = result.design
    yield (
        f"## {result.point}: {result.rows:,} {point.shape_name} rows per batch, "
        f"{point.partitions} partitions, {point.source} source, {point.query} query, "
        f"{point.target} target"
    )
    yield ""
    rows = summary(result)
    yield (
        "| contender | turns | rows/s | MB/s | p50 (quartiles), ms | p99, ms | round trips "
        "| driver, MB | JVM, MB | worker, MB |"
    )
    yield "|---" * 10 + "|"
    for row in rows:
        yield (
            f"| {row['contender']} | {row['repetitions']} | {row['rows_per_second']:,.0f} "
            f"| {row['megabytes_per_second']:.1f} | {_ms(row['seconds'])} "
            f"| {_number(row['p99'] * 1000)} | {_round_trips(row['round_trips'])} "
            f"| {_megabytes(row['turn_bytes'])} "
            f"| {_megabytes(row['jvm_bytes'])} | {_megabytes(row['worker_bytes'])} |"
        )
    yield ""
    spending = [row for row in rows if row["cpu"]]
    if spending:
        yield f"| CPU, ms | {' | '.join(PARTS)} |"
        yield "|---" * (len(PARTS) + 1) + "|"
        for row in spending:
            cells = (_number(row["cpu"][part] * 1000) for part in PARTS)
            yield f"| {row['contender']} | {' | '.join(cells)} |"
        yield ""
    kinds = {
        "seconds": "time",
        "spark_cpu": "CPU of Spark",
        "p99": "p99",
        "round_trips": "round trips",
    }
    heads = [f"{kind} to {name}" for name in point.references for kind in kinds.values()]
    yield f"| ratios | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for row in rows:
        cells = [
            _ratio(row["ratios"][name][metric]) for name in point.references for metric in kinds
        ]
        yield f"| {row['contender']} | {' | '.join(cells)} |"
    timed = [row for row in rows if row["steps"]]
    if timed:
        names = [step for step in STEP_NAMES if any(step in row["steps"] for row in timed)]
        yield ""
        yield f"| ms by step | {' | '.join(names)} |"
        yield "|---" * (len(names) + 1) + "|"
        for row in timed:
            steps = (_ms(row["steps"].get(step)) for step in names)
            yield f"| {row['contender']} | {' | '.join(steps)} |"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Spread):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _ms(spread: Spread | None) -> str:
    if spread is None:
        return ""
    low, middle, high = (
        _number(value * 1000) for value in (spread.low, spread.middle, spread.high)
    )
    return f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 and value % 1 else f"{value:,.0f}"


def _round_trips(spread: Spread | None) -> str:
    return "" if spread is None else _number(spread.middle)


def _megabytes(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:.0f}"


def _ratio(value: Spread | float | None) -> str:
    if isinstance(value, Spread):
        return str(value)
    return "" if value is None else f"{value:.2f}"


def _runs(results: Mapping[str, PointResult]) -> list[tuple[dict[str, str], list[str]]]:
    """Return the stamp of each run with the points that are of it."""
    runs: list[tuple[dict[str, str], list[str]]] = []
    for name, result in results.items():
        points = next((points for stamp, points in runs if stamp == result.stamp), None)
        if points is None:
            runs.append((result.stamp, [name]))
        else:
            points.append(name)
    return runs
