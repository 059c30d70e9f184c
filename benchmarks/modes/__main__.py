"""Compare what the modes cost, side by side with others, on an embedded cluster.

Every contender writes the same micro-batches, one at a time and in changing order; the first ones of each
are not counted. Results are kept as one JSON file per point, with a report (report.md), its numbers
(summary.json), charts (PNG) and the log of the product (run.log). Everything takes about half an hour on two
cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.modes import comparison, tables
from benchmarks.modes.comparison import NothingToCompareError, compare
from benchmarks.modes.design import BY_NAME, POINTS, QUICK
from benchmarks.modes.points import ALL, DESCRIPTIONS
from benchmarks.modes.report import write_report
from benchmarks.modes.results import load_all
from benchmarks.modes.runner import run, turns_of
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from benchmarks.modes.points import Point

_FOLDER = Path("benchmark-results")


def main(arguments: list[str] | None = None) -> int:
    """Measure, and report on everything that is in the folder."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if len(options.compare) > 1:
        return _compare(parser, options, *options.compare)
    if options.json and not options.compare:
        parser.error("--json belongs to --compare: every run leaves summary.json in its folder")
    points = _chosen(options)
    for point in points:
        if not point.contenders:
            parser.error(f"none of the chosen contenders takes part in {point.name}")
    folder = options.folder or (_FOLDER / "quick" if options.quick else _FOLDER)
    if options.report_only and not load_all(folder):
        parser.error(f"there are no results in {folder}")
    try:
        from rich.console import Console  # noqa: PLC0415 - told of below
    except ImportError:
        parser.error("the package rich is not installed. Run: pip install -e '.[bench]'")
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        with logged_to(folder / "run.log"):
            _run(points, folder, console)
    write_report(load_all(folder), folder, console)
    if options.page:
        tables.write(load_all(folder))
    return _compare(parser, options, options.compare[0], folder) if options.compare else 0


@contextmanager
def logged_to(file: Path) -> Iterator[None]:
    """Log what the product and its client have to say to a file, not between the tables."""
    handler = logging.FileHandler(file, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours = logging.getLogger(LOGGER_NAME)
    kept = LOGGER.handlers, ours.level
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    LOGGER.handlers = [handler]
    try:
        yield
    finally:
        LOGGER.handlers, level = kept
        ours.setLevel(level)
        ours.removeHandler(handler)
        handler.close()


def _compare(parser: argparse.ArgumentParser, options: argparse.Namespace, *folders: Path) -> int:
    old, new = (load_all(folder) for folder in folders)
    for folder, results in zip(folders, (old, new), strict=True):
        if not results:
            parser.error(f"there are no results in {folder}")
    try:
        found = compare(old, new)
    except NothingToCompareError as error:
        parser.error(str(error))
    print("\n".join(comparison.markdown(found)))
    if options.json:
        options.json.write_text(json.dumps(comparison.to_json(found), indent=1) + "\n")
    return int(any(change.is_loss for change in found.changes))


def _run(points: Sequence[Point], folder: Path, console: Console) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - installed, if we are here

    turns = sum(len(point.contenders) * turns_of(point) for point in points)
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


def _parser() -> argparse.ArgumentParser:
    listed = [f"  {name:<19} {text}" for name, text in DESCRIPTIONS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.modes",
        description=__doc__,
        epilog="\n".join(
            [
                "contenders:",
                *listed,
                "",
                fill(
                    f"points: {', '.join(BY_NAME)}", subsequent_indent="  ", break_on_hyphens=False
                ),
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=ALL,
        metavar="NAME",
        help="only these; quote names of two words",
    )
    parser.add_argument(
        "--repetitions", type=positive, help="measured turns of every contender; default: 5 to 25"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help=f"for the results, default {_FOLDER} ({_FOLDER}/quick with --quick). Results of the same "
        "points there are replaced, the others kept and reported too",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="a few points, within three minutes")
    which.add_argument(
        "--points", nargs="+", choices=list(BY_NAME), metavar="POINT", help="only these points"
    )
    which.add_argument(
        "--report-only", action="store_true", help="only report on what is in the folder"
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="say what changed beyond noise since the results in a folder; with a second folder measure "
        "nothing, and compare both. The exit code is 1 if something was lost",
    )
    parser.add_argument(
        "--page", action="store_true", help="write the tables of docs/measured/results.md"
    )
    parser.add_argument("--json", type=Path, help="with --compare: write it there as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
