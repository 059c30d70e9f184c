"""`python -m benchmarks.parts`: the command line of the measurements of the parts."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.modes.machine import stamp
from benchmarks.modes.work import SHAPES
from benchmarks.parts.measures import Measures
from benchmarks.parts.rows import Sample
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.parts.timing import Timing


def main(arguments: list[str] | None = None) -> int:
    """Measure every part, show the table and keep it."""
    parser = argparse.ArgumentParser(prog="benchmarks.parts", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("benchmark-results/parts"))
    options = parser.parse_args(arguments)
    console = Console()
    samples = [Sample.of(shape) for shape in SHAPES.values()]
    timings = []
    with LocalCluster() as cluster, console.status("Measuring") as status:
        for timing in Measures(cluster, samples, options.repetitions).all():
            status.update(f"{timing.part}: {timing.work}")
            timings.append(timing)
    text = "\n".join(table(timings))
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = {"stamp": stamp(), "timings": [asdict(timing) for timing in timings]}
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
            f"| {f'{median(timing.cpu_seconds) * 1e3:.1f}' if timing.cpu_seconds else ''} "
            f"| {f'{timing.rows / middle:,.0f}' if timing.rows else ''} "
            f"| {f'{timing.bytes / middle / 1e6:.0f}' if timing.bytes else ''} "
            f"| {timing.requests or ''} |"
        )


if __name__ == "__main__":
    sys.exit(main())
