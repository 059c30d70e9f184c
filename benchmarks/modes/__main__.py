"""`python -m benchmarks.modes`: the command line of the comparison of the modes."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from yt.logger import LOGGER

from benchmarks.modes.points import ALL, BY_NAME, POINTS, QUICK
from benchmarks.modes.report import write_report
from benchmarks.modes.results import load_all
from benchmarks.modes.runner import WARM_UP, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.modes.points import Point


def main(arguments: list[str] | None = None) -> int:
    """Measure, and report on everything that is in the folder."""
    options = _parse(arguments)
    LOGGER.setLevel(logging.ERROR)
    console = Console()
    points = _chosen(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        _run(points, options.folder, console)
    write_report(load_all(options.folder), options.folder, console)
    return 0


def _run(points: Sequence[Point], folder: Path, console: Console) -> None:
    turns = sum(len(point.contenders) * (WARM_UP + point.repetitions) for point in points)
    columns = (
        TextColumn("{task.description:<36}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting Spark and the cluster", total=turns)

        def advance(next_turn: str) -> None:
            progress.update(task, advance=1, description=next_turn)

        run(points, folder, say=progress.console.print, advance=advance)


def _chosen(options: argparse.Namespace) -> list[Point]:
    points = list(QUICK if options.quick else POINTS)
    if options.points:
        points = [BY_NAME[name] for name in options.points]
    if options.contenders:
        points = [
            replace(
                point,
                contenders=tuple(name for name in point.contenders if name in options.contenders),
            )
            for point in points
        ]
    if options.repetitions:
        points = [replace(point, repetitions=options.repetitions) for point in points]
    return points


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.modes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few points, within three minutes")
    parser.add_argument("--points", nargs="+", choices=list(BY_NAME), help="only these points")
    parser.add_argument("--contenders", nargs="+", choices=ALL, help="only these contenders")
    parser.add_argument("--repetitions", type=int, help="measured turns of every contender")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("benchmark-results"),
        help="for the results; those of other points there are kept and reported too",
    )
    parser.add_argument(
        "--report-only", action="store_true", help="only report on what is in the folder"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
