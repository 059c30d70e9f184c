"""`status`: every query, its targets and its queues; once, or as a live view."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, json_option
from yt_exactly_once.cli.output import console, print_json, seconds, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group
    from rich.table import Table

    from yt_exactly_once.operations.status import QueryStatus, QueueStatus


@click.command("status")
@click.argument("paths", nargs=-1)
@click.option("--query", metavar="ID", help="Only this query.")
@click.option("--partitions", is_flag=True, help="Show every partition of every queue.")
@click.option("--watch", is_flag=True, help="Show a live view until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="S",
    show_default=True,
    help="With --watch: seconds between two looks.",
)
@cluster_options
@json_option
def command(
    paths: tuple[str, ...],
    query: str | None,
    cluster: ClusterOptions,
    *,
    partitions: bool,
    watch: bool,
    every: float,
    as_json: bool,
) -> None:
    """Show every query: its targets, its last batch, and how far it is behind in its queues.

    PATHS are ledgers, targets with a ledger beside them, or folders to search. Without any, //home is
    searched. A search lists every folder below: one request each. It finds ledgers that this version of
    the sink has prepared at least once; name others by their paths.

    Lag is counted from what the query has committed. Its seconds are the age of the first row that is not
    committed, if the queue has the column $timestamp.
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json exclude each other")
    from yt_exactly_once.operations import ledgers  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.status import status  # noqa: PLC0415

    connection = cluster.connect()
    # Folders are searched once; a live view does not repeat it.
    found = ledgers.find_ledgers(connection, paths)
    if watch:
        _watch(
            lambda: status(connection, found, query=query) if found else [],
            every,
            partitions=partitions,
        )
        return
    queries = status(connection, found, query=query) if found else []
    if as_json:
        print_json([one.to_json() for one in queries])
    else:
        console().print(rendered(queries, partitions=partitions))


def _watch(look: Callable[[], Sequence[QueryStatus]], every: float, *, partitions: bool) -> None:
    from rich.live import Live  # noqa: PLC0415 - only the live view needs it

    with Live(console=console(), screen=False, auto_refresh=False) as live:
        while True:
            live.update(rendered(look(), partitions=partitions), refresh=True)
            time.sleep(every)


def rendered(queries: Sequence[QueryStatus], *, partitions: bool) -> Group:
    """Return the tables of queries and queues, and what is wrong with them."""
    from rich.console import Group  # noqa: PLC0415 - only output for people needs it
    from rich.text import Text  # noqa: PLC0415

    if not queries:
        return Group(Text("no query: no ledger was found, or they have no entries"))
    problems = [
        Text(f"{one.query_id[:8]}: {problem}", style="bold red")
        for one in queries
        for problem in one.problems
    ]
    return Group(_queries(queries), _queues(queries, partitions=partitions), *problems)


def _queries(queries: Sequence[QueryStatus]) -> Table:
    shown = table("query", "target", "mode", "batch>", "age>", "rows>", "total>", "attempts>")
    for one in queries:
        for target in one.targets:
            total = "?"
            if target.total_rows is not None:
                total = f"{target.total_rows}{'' if target.counted_from_start else '+'}"
            shown.add_row(
                one.query_id[:8],
                target.path,
                one.mode or "?",
                str(one.batch),
                seconds(one.age_seconds),
                str(target.rows),
                total,
                "?" if one.attempts is None else str(one.attempts),
            )
    return shown


def _queues(queries: Sequence[QueryStatus], *, partitions: bool) -> Table:
    shown = table(
        "query",
        "queue",
        "partition>",
        "committed>",
        "consumer>",
        "end>",
        "lag>",
        "lag, time>",
        "trimmed to>",
        "consumer path",
        "registered",
    )
    for one in queries:
        for queue in one.queues:
            rows = _partitions(queue) if partitions else [_together(queue)]
            for row in rows:
                consumer = queue.consumer or "none"
                shown.add_row(one.query_id[:8], queue.path, *row, consumer, _registered(queue))
    return shown


def _partitions(queue: QueueStatus) -> list[list[str]]:
    return [
        [
            str(part.partition),
            str(part.delivered),
            "-" if part.consumer is None else str(part.consumer),
            str(part.end),
            str(part.lag_rows),
            seconds(part.lag_seconds),
            str(part.first),
        ]
        for part in queue.partitions
    ]


def _together(queue: QueueStatus) -> list[str]:
    if not queue.partitions:
        return ["?"] * 7
    parts = queue.partitions
    consumers = [part.consumer for part in parts if part.consumer is not None]
    return [
        f"all {len(parts)}",
        str(sum(part.delivered for part in parts)),
        str(sum(consumers)) if consumers else "-",
        str(sum(part.end for part in parts)),
        str(queue.lag_rows),
        seconds(queue.lag_seconds),
        str(sum(part.first for part in parts)),
    ]


def _registered(queue: QueueStatus) -> str:
    if queue.registered is None:
        return "-"
    if not queue.registered:
        return "no"
    trims = ", queue trims" if queue.auto_trim else ""
    return ("vital" if queue.vital else "not vital") + trims
