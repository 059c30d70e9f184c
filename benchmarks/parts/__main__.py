"""Measure the parts alone: encode, decode, pull, ledger and commit, and the embedded cluster.

Needs no Spark and no Java. Results are kept as parts.json and parts.md. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.arguments import positive
from benchmarks.modes.machine import stamp
from benchmarks.modes.results import Spread
from benchmarks.modes.work import SHAPES
from benchmarks.parts.measures import Measures
from benchmarks.parts.rows import Sample
from benchmarks.parts.timing import BARE_LOOP, SOURCE, Timing
from yt_exactly_once.local import LocalCluster

SOURCE_BAR = 0.9
"""What the source must reach of a bare loop."""


def main(arguments: list[str] | None = None) -> int:
    """Measure every part, show the table and keep it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repetitions", type=positive, default=7, help="of each measurement, default 7"
    )
    folder = Path("benchmark-results/parts")
    parser.add_argument(
        "--folder", type=Path, default=folder, help=f"for the results, default {folder}"
    )
    options = parser.parse_args(arguments)
    machine = stamp()
    console = Console()
    samples = [Sample.of(shape) for shape in SHAPES.values()]
    timings = []
    with LocalCluster() as cluster, console.status("Measuring") as status:
        for timing in Measures(cluster, samples, options.repetitions).all():
            status.update(f"{timing.part}: {timing.work}")
            timings.append(timing)
    text = "\n".join([*table(timings), "", *source_table(timings)])
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = {"stamp": machine, "timings": [asdict(timing) for timing in timings]}
    (options.folder / "parts.json").write_text(json.dumps(kept, indent=1) + "\n")
    (options.folder / "parts.md").write_text(text + "\n")
    return 0


def table(timings: Sequence[Timing]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| part | work | ms, median | ms, best to worst | own CPU, ms | rows/s | MB/s | round trips |"
    yield "|---|---|---|---|---|---|---|---|"
    for timing in timings:
        middle = timing.middle
        yield (
            f"| {timing.part} | {timing.work} | {middle * 1e3:.1f} "
            f"| {min(timing.seconds) * 1e3:.1f} to {max(timing.seconds) * 1e3:.1f} "
            f"| {median(timing.cpu_seconds) * 1e3:.1f} "
            f"| {f'{timing.rows / middle:,.0f}' if timing.rows else ''} "
            f"| {f'{timing.bytes / middle / 1e6:.0f}' if timing.bytes else ''} "
            f"| {timing.requests or ''} |"
        )


def source_table(timings: Sequence[Timing]) -> Iterator[str]:
    """Yield the comparison of the source with a bare loop that pulls and decodes the same rows."""
    yield "| source / bare loop | required | rows/s, median (quartiles) | rows per CPU second |"
    yield "|---|---|---|---|"
    by_work = {timing.work: timing for timing in timings}
    for work, ours in by_work.items():
        shape, _, way = work.partition(", ")
        if way != SOURCE:
            continue
        bare = by_work[f"{shape}, {BARE_LOOP}"]
        pairs = ((bare.seconds, ours.seconds), (bare.cpu_seconds, ours.cpu_seconds))
        cells = [
            Spread.of([one / other for one, other in zip(*pair, strict=True)]) for pair in pairs
        ]
        yield f"| {shape} | ≥ {SOURCE_BAR} | {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
