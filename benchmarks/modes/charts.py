"""Charts of the results, as PNG files."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.modes.points import FLOOR, STEP_NAMES
from benchmarks.processes import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.modes.results import PointResult

    Results = Mapping[str, PointResult]

mpl.use("agg")

_COLOURS = {
    "noop": "#9e9e9e",
    "collect": "#bcaaa4",
    "tasks": "#d7ccc8",
    "at-least-once": "#4c9be8",
    "transactional": "#1b5e20",
    "idempotent": "#8bc34a",
    "bare client": "#616161",
    "row snippet": "#e57373",
    "delta": "#ffb300",
    "postgres": "#7e57c2",
}
_SIZES = (1, 1_000, 10_000, 1_000_000)
_DOTS = 110


def draw(results: Results, folder: Path) -> Iterator[Path]:
    """Draw every chart that the results have the numbers for; yield the files."""
    charts = {
        "throughput": _throughput,
        "batch-size": _batch_size,
        "steps": _steps,
        "partitions": _partitions,
        "cpu": _cpu,
    }
    for name, paint in charts.items():
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        if paint(figure.subplots(), results):
            file = folder / f"{name}.png"
            figure.savefig(file, dpi=_DOTS)
            yield file


def _throughput(axes: Any, results: Results) -> bool:
    result = results.get("base")
    if result is None:
        return False
    for contender in result.contenders:
        rates = sorted(result.rows / seconds for seconds in result.seconds(contender))
        middle = median(rates)
        axes.barh(
            contender,
            middle,
            xerr=[[middle - rates[0]], [rates[-1] - middle]],
            color=_COLOURS[contender],
            capsize=3,
        )
        axes.text(0, contender, f"  {middle:,.0f}", va="center", fontsize=8, color="white")
    axes.invert_yaxis()
    axes.set_xlabel("rows per second; bars are medians, whiskers all repetitions")
    axes.set_title(f"{result.rows:,} narrow rows per batch, 4 partitions, ordered target")
    return True


def _batch_size(axes: Any, results: Results) -> bool:
    names = [*(f"rows-{rows}" for rows in _SIZES), "base"]
    sizes = sorted(
        (results[name] for name in names if name in results), key=lambda result: result.rows
    )
    if len(sizes) < 2:
        return False
    for contender, colour in _COLOURS.items():
        known = [result for result in sizes if result.seconds(contender)]
        axes.plot(
            [result.rows for result in known],
            [median(result.seconds(contender)) for result in known],
            marker="o",
            color=colour,
            label=contender,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("narrow rows per batch")
    axes.set_ylabel("seconds per batch, median")
    axes.set_title("How the time of a batch grows with its rows")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(fontsize=8)
    return True


def _steps(axes: Any, results: Results) -> bool:
    places = [
        (result, contender)
        for name in ("tiny-queue-1", "tiny-queue-16", "rows-10000", "base", "queue-4")
        if (result := results.get(name))
        for contender in result.contenders
        if result.steps(contender)
    ]
    if not places:
        return False
    taken = {step for result, contender in places for step in result.steps(contender)}
    names = [step for step in STEP_NAMES if step in taken]
    labels = [f"{result.point}, {contender}" for result, contender in places]
    left = [0.0] * len(places)
    for step in names:
        medians = (result.steps(contender).get(step) for result, contender in places)
        widths = [spread.middle * 1000 if spread else 0.0 for spread in medians]
        axes.barh(labels, widths, left=left, label=step)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds, medians, by step of the protocol")
    axes.set_title("Where the time of a batch goes")
    axes.tick_params(axis="y", labelsize=7)
    axes.legend(fontsize=7)
    return True


def _partitions(axes: Any, results: Results) -> bool:
    points = [
        result for count in (1, 4, 16) if (result := results.get(f"tiny-queue-{count}")) is not None
    ]
    if len(points) < 2:
        return False
    for contender, colour in _COLOURS.items():
        added = [
            (result.design.partitions, spread.middle * 1000)
            for result in points
            if contender != FLOOR and (spread := result.added(contender, FLOOR))
        ]
        if added:
            axes.plot(*zip(*added, strict=True), marker="o", color=colour, label=contender)
    axes.set_xticks([result.design.partitions for result in points])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("queue partitions, one new row in each")
    axes.set_ylabel("milliseconds added over noop")
    axes.set_title("What a mode adds to an all but empty batch")
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=8)
    return True


def _cpu(axes: Any, results: Results) -> bool:
    result = results.get("base")
    spent = {name: result.cpu(name) for name in result.contenders} if result else {}
    spent = {name: cpu for name, cpu in spent.items() if cpu}
    if not spent:
        return False
    left = [0.0] * len(spent)
    for part in PARTS:
        widths = [cpu[part] * 1000 for cpu in spent.values()]
        axes.barh(list(spent), widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of processor time per batch, means")
    axes.set_title("Who spends the processor time of a batch of 100,000 narrow rows")
    axes.legend(fontsize=8)
    return True
