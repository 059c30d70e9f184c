"""`ledger` and `history`: the entries of ledgers, their removal, and those of earlier batches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, flag, option, query_option
from yt_exactly_once.operations.view import seconds, shown

if TYPE_CHECKING:
    from yt_exactly_once.operations.ledgers import LedgerRow

_FORMATS = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]


@click.group("ledger")
def command() -> None:
    """Look into ledgers, and remove entries of queries that are gone."""


@command.command("list")
@click.argument("paths", nargs=-1)
@cluster_options
def list_entries(paths: tuple[str, ...], cluster: ClusterOptions) -> bool:
    """List the entries of ledgers: one for each query and target.

    PATHS are ledgers, targets with a ledger beside them, or folders to search. Without any, //home is
    searched. A search lists every folder below: one request each. A ledger that cannot be read does not hide
    the others; the exit code is then 1. With --json it has an element with its path and `error`.
    """
    from yt_exactly_once.operations import ledgers  # noqa: PLC0415 - the client is slow

    connection = cluster.connection
    rows, unread = ledgers.read_ledgers(connection, ledgers.find_ledgers(connection, paths))
    if not cluster.as_json:
        for error in unread.values():
            click.echo(str(error), err=True)
    cells = (
        {
            "query": row.entry.label,
            "target": row.entry.target,
            "batch>": row.entry.batch_id,
            "rows>": row.entry.tally.rows,
            "total>": row.entry.tally.total_rows,
            "rejected>": row.entry.tally.total_rejected_rows,
            "mode": row.entry.mode,
            "age>": seconds(ledgers.age_seconds(row.entry)),
            "ledger": row.ledger,
        }
        for row in rows
    )
    answer = [row.to_json() for row in rows]
    answer += [{"ledger": path, **error.to_json()} for path, error in unread.items()]
    cluster.answer(answer, shown(cells, "no entries"))
    return bool(unread)


@command.command("show")
@click.argument("path")
@query_option
@cluster_options
def show(path: str, query: str | None, cluster: ClusterOptions) -> None:
    """Show all that the entries of one ledger say, offsets included.

    PATH is a ledger, or a target with a ledger beside it.
    """
    from yt_exactly_once.operations.ledgers import ledger  # noqa: PLC0415 - the client is slow

    rows = ledger(path, query=query, connection=cluster.connection)
    answer = [row.to_json() for row in rows]
    lines = [line for known in answer for line in _lines(known)]
    cluster.answer(answer, *(lines or ["no entry"]))


def _lines(known: dict[str, Any]) -> Iterator[str]:
    for name, value in known.items():
        if name != "offsets":
            yield f"{name + ':':22}{'none' if value is None else value}"
    for source in filter(lambda one: one["queue"], known["offsets"]):
        yield f"{'queue:':22}{source['queue']} ({source['cluster']})"
        yield f"{'consumer:':22}{source['consumer'] or 'none'}"
        for index, (start, end, left, first) in source["partitions"].items():
            consumer = f", consumer left at {left}" if source["consumer"] else ""
            yield f"{'':22}partition {index}: rows {start} to {end}, read from {first} on{consumer}"
    yield ""


@command.command("prune")
@click.argument("path")
@flag("--superseded", "Remove entries that a later query has gone past.")
@flag("--target-gone", "Remove entries whose target does not exist.")
@option("--query queries ID", "Remove the entries of this query.", multiple=True)
@option("--target PATH", "Remove only entries of this target.")
@flag("--yes", "Do not ask.")
@cluster_options
def prune(
    path: str,
    cluster: ClusterOptions,
    superseded: bool,
    target_gone: bool,
    queries: tuple[str, ...],
    target: str | None,
    yes: bool,
) -> None:
    """Say which entries of a ledger nobody may need any more, and remove those that you choose.

    Without --superseded, --target-gone and --query nothing is removed.

    An entry is superseded if another query with the same target has read on where it ended. Its own
    checkpoint was replaced then. No entry is dead for certain: only its checkpoint shows whether the query
    will start again. If it does, the sink refuses to write (LedgerMissingError).
    """
    from yt_exactly_once.operations.ledgers import find_ledgers  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.pruning import Use, judge_entries, remove_entry  # noqa: PLC0415

    connection = cluster.connection
    judged = [
        one
        for ledger in find_ledgers(connection, [path])
        for one in judge_entries(connection, ledger)
    ]
    wanted = {Use.SUPERSEDED: superseded, Use.TARGET_GONE: target_gone}
    chosen = [
        one
        for one in judged
        if (wanted.get(one.use) or one.row.entry.query_id in queries)
        and target in {None, one.row.entry.target}
    ]
    unknown = set(queries) - {one.row.entry.query_id for one in judged}
    if unknown:
        raise click.UsageError(f"The ledger has no query {', '.join(sorted(unknown))}")
    answer = [
        {
            "query": one.row.entry.query_id,
            "target": one.row.entry.target,
            "batch": one.row.entry.batch_id,
            "verdict": one.use.value,
            "why": one.why,
            "removed": one in chosen,
            "ledger": one.row.ledger,
        }
        for one in judged
    ]
    named = zip(answer, judged, strict=True)
    cells = ({**known, "query": one.row.entry.label} for known, one in named)
    cluster.say(shown(cells, "no entries"))
    if chosen and not yes:
        click.confirm(f"Remove {len(chosen)} entries?", abort=True, err=True)
    for one in chosen:
        remove_entry(connection, one.row)
    cluster.answer(answer, *([f"removed {len(chosen)} entries"] if chosen else []))


@click.command("history")
@click.argument("path")
@query_option
@click.option("--since", type=click.DateTime(_FORMATS), help="Only batches from this time on, UTC.")
@click.option("--until", type=click.DateTime(_FORMATS), help="Only batches before this time, UTC.")
@option("--limit N", "The newest ones of these.", type=click.IntRange(min=1), default=50)
@cluster_options
def history(
    path: str,
    query: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cluster: ClusterOptions,
) -> None:
    """Show the last batches, the newest first, of the queries whose sink has history_path=PATH.

    Times are those of the driver's clock, UTC. A batch may be missing: the history is written after the
    commit, and nothing waits for it.
    """
    from yt_exactly_once.operations import ledgers  # noqa: PLC0415 - the client is slow

    rows = ledgers.history(
        path, query=query, since=since, until=until, connection=cluster.connection
    )[:limit]
    cluster.answer([row.to_json() for row in rows], shown(map(_batch_cells, rows), "no batches"))


def _batch_cells(row: LedgerRow) -> dict[str, Any]:
    entry, tally = row.entry, row.entry.tally
    return {
        "committed at": entry.committed_at[:19],
        "query": entry.name,
        "target": entry.target,
        "batch>": entry.batch_id,
        "source rows>": entry.source_rows,
        "rows>": tally.rows,
        "rejected>": tally.rejected_rows,
        "bytes>": tally.bytes,
        "seconds>": f"{entry.seconds:.1f}",
        "attempts>": entry.attempts,
        "sent by": tally.sent_by,
        "mode": entry.mode,
    }
