"""`add-column`: a column more for a target, a queue or a table of dead letters."""

from __future__ import annotations

import click

from yt_exactly_once.cli import options


@click.command("add-column")
@click.argument("table")
@click.argument("columns", nargs=-1, required=True, metavar="NAME TYPE [NAME TYPE]...")
@options.flag("--dry-run", "Say what would be done, and do nothing.")
@options.cluster_options
def command(
    table: str, columns: tuple[str, ...], cluster: options.ClusterOptions, dry_run: bool
) -> None:
    """Add columns to TABLE, a dynamic table that queries may use: a target, a queue, or dead letters.

    TYPE is one of Spark, such as bigint or 'decimal(10,2)', or of YTsaurus, such as uint64, utf8 or any; or
    its type_v3 as JSON. The columns take null, and rows that are there have null in them. A mounted table is
    unmounted for a moment; queries retry until it is mounted again. If this command is broken off, run it
    again.
    """
    if len(columns) % 2:
        raise click.UsageError(f"{columns[-1]} has no type: give pairs of a name and a type")
    wanted = dict(zip(columns[::2], columns[1::2], strict=True))
    if len(wanted) < len(columns) // 2:
        raise click.UsageError("A column is named twice")
    from yt_exactly_once.operations.columns import add_columns  # noqa: PLC0415 - slow client

    found = add_columns(cluster.connection, table, wanted, dry_run=dry_run)
    does = "would add" if dry_run else "added"
    cluster.answer(
        {"path": table, "added": found.added, "exists": found.known, "dry_run": dry_run},
        *(f"{does}: {name} {kind}" for name, kind in found.added.items()),
        *(f"exists: {name}" for name in found.known),
    )
