"""The report: a table per point and the bars, as Markdown and on the screen, and charts as PNG."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.modes.bars import measured
from benchmarks.modes.points import DESCRIPTIONS
from benchmarks.modes.results import Spread, summary
from yt_exactly_once import Event

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
    """Return the numbers of the report."""
    return {
        "points": {
            name: {
                "stamp": result.stamp,
                "rows": result.rows,
                "encoded_bytes": result.encoded_bytes,
                "contenders": [
                    {
                        key: asdict(value) if isinstance(value, Spread) else value
                        for key, value in row.items()
                    }
                    for row in summary(result)
                ],
                "steps": {
                    contender: steps
                    for contender in result.contenders
                    if (steps := result.steps(contender))
                },
                "absent": result.absent,
            }
            for name, result in results.items()
        },
        "bars": [
            {
                "text": bar.text,
                "required": bar.required,
                "at_least": bar.at_least,
                "measured": value,
                "met": bar.is_met(value),
            }
            for bar, value in measured(results)
        ],
    }


def markdown(results: Mapping[str, PointResult]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield "# Benchmark of the modes"
    yield ""
    for stamp in _distinct(result.stamp for result in results.values()):
        yield "; ".join(f"{name} {value}" for name, value in stamp.items())
        yield ""
    yield "| bar | required | measured | |"
    yield "|---|---|---|---|"
    for bar, value in measured(results):
        sign = "≥" if bar.at_least else "≤"
        yield (
            f"| {bar.text} | {sign} {bar.required:g} | {value:.2f} "
            f"| {'met' if bar.is_met(value) else 'missed'} |"
        )
    yield ""
    yield from (f"- *{name}*: {text}." for name, text in DESCRIPTIONS.items())
    for result in results.values():
        yield ""
        yield from point_table(result)


def point_table(result: PointResult) -> Iterator[str]:
    """Yield the table of one point."""
    point = result.design
    yield (
        f"## {result.point}: {result.rows:,} {point.shape_name} rows per batch, "
        f"{point.partitions} partitions, {point.source} source, {point.query} query, "
        f"{point.target} target"
    )
    yield ""
    yield (
        "| contender | rows/s | MB/s | p50, ms | p99, ms | quartiles, ms | time to noop "
        "| time to at-least-once | round trips | driver peak, MB |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in summary(result):
        memory = row["driver_bytes"]
        yield (
            f"| {row['contender']} | {row['rows_per_second']:,.0f} "
            f"| {row['megabytes_per_second']:.1f} | {_ms(row['p50'])} | {_ms(row['p99'])} "
            f"| {_ms(row['low'])} to {_ms(row['high'])} | {_ratio(row['to_floor'])} "
            f"| {_ratio(row['to_at_least_once'])} | {row['requests']:.0f} "
            f"| {'' if memory is None else f'{memory / 1e6:.0f}'} |"
        )
    steps = {name: result.steps(name) for name in result.contenders if result.steps(name)}
    if steps:
        names = [step.value for step in Event if any(step in taken for taken in steps.values())]
        yield ""
        yield f"| median ms until | {' | '.join(names)} |"
        yield "|---" * (len(names) + 1) + "|"
        for contender, taken in steps.items():
            cells = (_ms(taken[step]) if step in taken else "" for step in names)
            yield f"| {contender} | {' | '.join(cells)} |"


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def _ratio(spread: Spread | None) -> str:
    return f"{spread.middle:.2f} ({spread.low:.2f} to {spread.high:.2f})" if spread else ""


def _distinct(stamps: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield each stamp once, whatever the time; the first time is kept."""
    seen = []
    for stamp in stamps:
        lasting = {name: value for name, value in stamp.items() if name != "time"}
        if lasting not in seen:
            seen.append(lasting)
            yield stamp
