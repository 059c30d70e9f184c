"""`history`: the last batches of queries, from the table that the sink keeps with history_path."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, option, query_option
from yt_exactly_once.cli.output import print_json
from yt_exactly_once.operations.view import console, shown

if TYPE_CHECKING:
    from yt_exactly_once.operations.ledgers import LedgerRow

_FORMATS = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]


@click.command("history")
@click.argument("path")
@query_option
@click.option("--since", type=click.DateTime(_FORMATS), help="Only batches from this time on, UTC.")
@click.option("--until", type=click.DateTime(_FORMATS), help="Only batches before this time, UTC.")
@option("--limit", "N", "The newest ones of these.", type=click.IntRange(min=1), default=50)
@cluster_options
def command(
    path: str,
    query: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cluster: ClusterOptions,
    *,
    as_json: bool,
) -> None:
    """Show the last batches, the newest first, of the queries whose sink has history_path=PATH.

    Times are those of the driver's clock, UTC. A batch may be missing: the history is written after the
    commit, and nothing waits for it.
    """
    from yt_exactly_once.operations.ledgers import read_history  # noqa: PLC0415 - the client is slow

    rows = [
        row
        for row in read_history(cluster.connect(), path)
        if row.entry.query_id.startswith(query or "")
        and (since is None or row.entry.committed_at >= since.isoformat())
        and (until is None or row.entry.committed_at < until.isoformat())
    ][:limit]
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    console().print(shown(map(_cells, rows), "no batches"))


def _cells(row: LedgerRow) -> dict[str, Any]:
    entry, tally = row.entry, row.entry.tally
    return {
        "committed at": entry.committed_at[:19],
        "query": entry.query_id[:8],
        "target": entry.target,
        "batch>": entry.batch_id,
        "source rows>": sum(
            part.end - part.start for parts in entry.offsets.values() for part in parts.values()
        ),
        "rows>": tally.rows,
        "rejected>": tally.rejected_rows,
        "bytes>": tally.bytes,
        "seconds>": f"{entry.seconds:.1f}",
        "attempts>": entry.attempts,
        "sent by": tally.sent_by,
        "mode": entry.mode,
    }
