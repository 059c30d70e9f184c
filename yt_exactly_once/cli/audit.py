"""`audit`: the proof that a target has every row once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli.exit_codes import ExitCode
from yt_exactly_once.cli.options import ClusterOptions, cluster_options, json_option
from yt_exactly_once.cli.output import console, print_json
from yt_exactly_once.operations.view import table

if TYPE_CHECKING:
    from yt_exactly_once.operations.audit import Audit


@click.command("audit")
@click.argument("target")
@click.option("--partition-column", metavar="NAME", help="Column with the partition of the queue.")
@click.option(
    "--row-column", metavar="NAME", help="Column with the index of the row in its partition."
)
@click.option("--ledger", metavar="PATH", help="The ledger.  [default: the one beside the target]")
@click.option(
    "--start",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    show_default=True,
    help="First row of every partition that the query has read.",
)
@click.option(
    "--values/--no-values",
    default=True,
    show_default=True,
    help="Whether to compare the columns that queue and target have in common.",
)
@click.option(
    "--rows-per-read",
    type=click.IntRange(min=1),
    default=100_000,
    metavar="N",
    show_default=True,
    help="Rows of one request.",
)
@cluster_options
@json_option
def command(
    target: str,
    partition_column: str | None,
    row_column: str | None,
    ledger: str | None,
    start: int,
    rows_per_read: int,
    cluster: ClusterOptions,
    *,
    values: bool,
    as_json: bool,
) -> ExitCode:
    """Prove that TARGET has every committed row of its queue once, with its values.

    Needs two columns of the target that say where a row came from. By default they are the service columns
    of the source, which include_service_columns=true gives. Without such columns, rows of an ordered
    target are counted and compared with the ledger.

    For one-to-one queries over one queue. Columns are compared if queue and target have them with the same
    name and type, as far as the queue still has the rows. A running query does not disturb: what it
    commits after the start is not judged. The exit code is 1 if a row is lost, repeated, changed or of
    unknown origin.
    """
    if (partition_column is None) != (row_column is None):
        raise click.UsageError("Give both --partition-column and --row-column, or none")
    from yt_exactly_once.operations.audit import Columns, audit  # noqa: PLC0415 - slow client

    columns = None
    if partition_column is not None and row_column is not None:
        columns = Columns(partition_column, row_column)
    found = audit(
        cluster.connect(),
        target,
        columns=columns,
        ledger=ledger,
        start=start,
        compare=values,
        rows_per_read=rows_per_read,
        progress=_progress,
    )
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    return ExitCode.OK if found.exact else ExitCode.FAULT_FOUND


def _progress(what: str, done: int, total: int) -> None:
    """Show how far it is, on a terminal only."""
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        click.echo(f"\r{what}: {done} of {total} rows{end}", nl=False, err=True)


def _print(found: Audit) -> None:
    if found.partitions:
        shown = table(
            "partition>",
            "rows>",
            "lost>",
            "repeated>",
            "changed>",
            "values compared from>",
            "examples",
        )
        for part in found.partitions:
            examples = "; ".join(
                f"{name} {', '.join(map(str, rows))}"
                for name, rows in part.examples.items()
                if rows
            )
            shown.add_row(
                str(part.partition),
                f"{part.start} to {part.end}",
                str(part.lost),
                str(part.repeated),
                f"{part.changed}{'+' if part.unclear_ranges else ''}",
                str(part.compared_from),
                examples,
            )
        console().print(shown)
        click.echo(f"rows of the target: {found.rows}")
        click.echo(f"committed since the start of the audit, not judged: {found.newer}")
        click.echo(f"of unknown origin: {found.unknown}")
        click.echo(f"compared columns: {', '.join(found.compared) or 'none'}")
    else:
        click.echo(
            f"rows of the target: {found.rows}, the ledger accounts for {found.expected_rows}"
        )
        click.echo("Only counts are compared: the target does not say where its rows come from.")
    click.echo("exact" if found.exact else "NOT exact")
