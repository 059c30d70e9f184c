"""`status`: every query, its targets and its queues; once, as a live view, or as a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli import options
from yt_exactly_once.cli.output import require_folder
from yt_exactly_once.operations.view import console, remarks, rendered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from yt_exactly_once.operations.query_status import QueryStatus
    from yt_exactly_once.operations.report import History


@click.command("status")
@click.argument("paths", nargs=-1)
@options.query_option
@options.flag("--partitions", "Show every partition of every queue.")
@options.flag("--watch", "Show a live view until Ctrl-C.")
@options.number("--every S", "With --watch: seconds between two looks.", 0.1, default=2.0)
@options.option(
    "--for duration S", "With --watch: end after so many seconds.", type=click.FloatRange(min=0)
)
@options.file_option(
    "--report FILE", "Write an HTML page; with --watch it has a time line of all that was seen."
)
@options.flag(
    "--check is_checked",
    "For programs: the exit code is 1 if anything is wrong, in the last look of --watch.",
)
@options.cluster_options
def command(
    paths: tuple[str, ...],
    query: str | None,
    every: float,
    duration: float | None,
    report: Path | None,
    cluster: options.ClusterOptions,
    partitions: bool,
    watch: bool,
    is_checked: bool,
) -> bool:
    """Show every query: its targets, its last batch, and how far it is behind in its queues.

    PATHS are ledgers, targets with a ledger beside them, or folders to search. Without any, //home is
    searched. A search lists every folder below: one request each. It finds ledgers that this version of
    the sink has prepared at least once; name others by their paths.

    Lag is counted from what the query has committed. Its seconds are the age of the first row that is not
    committed, if the queue has the column $timestamp.
    """
    if watch and cluster.as_json:
        raise click.UsageError("--watch and --json exclude each other")
    if duration is not None and not watch:
        raise click.UsageError("--for needs --watch")
    require_folder(report, "--report")
    from yt_exactly_once.operations import ledgers, status  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.report import History  # noqa: PLC0415

    # Folders are searched once; a live view does not repeat it.
    found = ledgers.find_ledgers(cluster.connection, paths)
    history = History()
    unread: dict[str, str] = {}

    def look() -> Sequence[QueryStatus]:
        queries, errors = status.look(cluster.connection, found, query=query)
        unread.clear()
        unread.update({path: str(error) for path, error in errors.items()})
        history.look(queries, time.time())
        return history.queries

    def live() -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - only the live view needs it

        found = look()
        return Group(rendered(found, partitions=partitions), *remarks(found, unread))

    try:
        if watch:
            _watch(live, every, duration)
        else:
            queries = look()
            known = [one.to_json() for one in queries]
            known += [{"ledger": path, "problems": [why]} for path, why in unread.items()]
            tables = [rendered(queries, partitions=partitions)] if queries else []
            cluster.answer(known, *tables, *remarks(queries, unread))
    finally:
        if report is not None:
            _write(report, history)
    return is_checked and (bool(unread) or any(one.problems for one in history.queries))


def _watch(shown: Callable[[], RenderableType], every: float, duration: float | None) -> None:
    from rich.live import Live  # noqa: PLC0415 - only the live view needs it

    end = None if duration is None else time.monotonic() + duration
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(shown(), refresh=True)
            if end is not None and time.monotonic() + every > end:
                return
            time.sleep(every)


def _write(report: Path, history: History) -> None:
    from yt_exactly_once.operations.report import page  # noqa: PLC0415 - only for this option

    facts = {
        "queries": len(history.queries),
        "rows not committed": sum(one.lag_rows for one in history.queries),
        "problems": sum(len(one.problems) for one in history.queries),
    }
    shown = [(name, str(value)) for name, value in facts.items()]
    report.write_text(page("Queries", history, facts=shown), encoding="utf-8")
    click.echo(f"report: {report}", err=True)
