"""`demo`: real rows, random kills, and a check of every row."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click

from yt_exactly_once.cli import options
from yt_exactly_once.cli.output import ended_by_sigterm, print_json, require_extra, require_folder
from yt_exactly_once.operations.view import console

_LARGEST_SEED = 2**31


@click.command("demo")
@options.number("--rows N", "Load the first N flights.  [default: all]", 1)
@options.number("--kills K", "Number of kills.", 0, default=5)
@options.option("--seed S", "Seed of the random moments of the kills.", type=int)
@options.file_option(
    "--data-dir D", "New directory for all files, which is kept.  [default: a temporary one]"
)
@options.mode_option("Delivery mode of the sinks.")
@options.backend_option("Protocol of sources and sinks; rpc needs ytsaurus-rpc-driver.")
@options.flag("--watch", "Show the queries live, kills included.")
@options.file_option(
    "--report FILE", "Write an HTML page with a time line.  [default with --watch: demo.html]"
)
@options.json_option
def command(
    seed: int | None,
    data_dir: Path | None,
    mode: str,
    report: Path | None,
    watch: bool,
    as_json: bool,
    **given: Any,
) -> bool:
    """Stream real flights, kill the driver at random moments, and check every row.

    Loads the flights that left New York in 2013 into a queue of an embedded cluster. Runs two streaming
    queries over them and kills the driver with SIGKILL at random moments. Then compares every row of the
    results with an independent computation. The exit code is 0 only if no row is lost, duplicated or
    wrong. With --json the progress goes to standard error.
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json exclude each other")
    require_extra("demo")
    from yt_exactly_once.demo.display import Display  # noqa: PLC0415
    from yt_exactly_once.demo.runner import run_demo  # noqa: PLC0415 - the extra

    if watch and report is None:
        report = Path("demo.html")
    require_folder(report, "--report")
    if seed is None:
        seed = random.randrange(_LARGEST_SEED)  # noqa: S311 - not for secrets
    display = Display(console(stderr=as_json), is_live=watch)
    with ended_by_sigterm():
        result = run_demo(display, seed=seed, mode=mode, data_dir=data_dir, **given)
    display.summary(result)
    if report is not None:
        page = display.page(result, f"{mode}, seed {seed}")
        report.write_text(page, encoding="utf-8")
        display.say(f"Report: {report}")
    if data_dir is not None:
        display.say(
            f"Kept in {data_dir}; serve it with: yt-exactly-once local --data-dir {data_dir}"
        )
    if as_json:
        print_json(result.to_json())
    return not result.exact
