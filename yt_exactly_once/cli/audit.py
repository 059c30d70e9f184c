"""`audit`: the proof that targets have every row once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, flag, number, option
from yt_exactly_once.errors import visible
from yt_exactly_once.operations.view import shown

if TYPE_CHECKING:
    from yt_exactly_once.operations.audit.found import Audit


@click.command("audit")
@click.argument("targets", nargs=-1, required=True)
@click.option(
    "--by",
    type=click.Choice(["source", "digest", "count", "sequence"]),
    help="What to compare with.  [default: the first that the target and its ledger allow]",
)
@option("--partition-column NAME", "Column with the partition of the queue.")
@option("--row-column NAME", "Column with the index of the row in its partition.")
@option("--queue-column NAME", "Column with the path of the queue, if the query reads several.")
@option(
    "--ledger PATH",
    "The ledger.  [default: the one beside the target, or another one in its folder]",
)
@number(
    "--start N", "By source: first row of every partition that the query has read.", 0, default=0
)
@flag(
    "--backfill",
    "The rows of batch jobs are in no queue: the queries begin where these end. Only you know that.",
)
@click.option(
    "--values/--no-values",
    default=True,
    help="Whether to compare values too: the columns that queue and target have in common, or the digest.",
)
@cluster_options
def command(
    targets: tuple[str, ...],
    by: str | None,
    partition_column: str | None,
    row_column: str | None,
    queue_column: str | None,
    cluster: ClusterOptions,
    values: bool,
    **options: Any,
) -> bool:
    """Prove that TARGETS have every committed row once, with its values.

    By source: each row of the queues must be in the target once. This needs two columns of the target that
    say where a row came from, and a third one if the query reads several queues. By default they are the
    service columns of the source (include_service_columns=true, include_queue_path=true). It fits
    one-to-one queries. Columns are compared if queue and target have them with the same name and type, as
    far as the queue still has the rows.

    By digest: the rows of the target must have the digest that the ledger keeps of all written rows. This
    needs Target(..., digest=True) from the first batch on. It fits any query and any number of queues. On a
    sorted target it needs that every key was written once, or write='replace'.

    By count: only the numbers of rows are compared, of an ordered target. It proves nothing about rows.

    By sequence: a target of changes is compared with its tombstones. A row must be newer than the delete of
    its key. This finds rows of an older copy that was put back, and rows of other writers. It cannot find a
    change that is missing.

    A path with columns in braces stands for each table that its query has written, by digest or by count.

    A running query does not disturb: what it commits after the start is not judged. A sorted target that is
    audited by digest must not be written meanwhile.

    The last line is the verdict. "exact" is proven by source or by digest only. "NOT proven" means that
    nothing wrong was seen, and that this says too little: counts alone, queries that have read the same
    rows, values that were not compared, dead letters, half a batch, a ledger that is newer than rows.
    "NOT exact" means that a row is lost, repeated, changed or of unknown origin. The exit code is 0 for
    "exact" alone; and if all that was asked for is right: with --by count if no rows were read twice or
    never, with --by sequence, and by source with --no-values.
    """
    if (partition_column is None) != (row_column is None):
        raise click.UsageError("Give both --partition-column and --row-column, or none")
    if queue_column is not None and partition_column is None:
        raise click.UsageError("--queue-column needs --partition-column and --row-column")
    from yt_exactly_once.operations.audit.found import By, SourceColumns, Verdict  # noqa: PLC0415 - slow client
    from yt_exactly_once.operations.audit.run import audit  # noqa: PLC0415
    from yt_exactly_once.operations.ledgers import tables_of  # noqa: PLC0415

    columns = None
    if partition_column is not None and row_column is not None:
        columns = SourceColumns(partition_column, row_column, queue_column)
    found = [
        audit(
            table,
            by=by,
            connection=cluster.connection,
            columns=columns,
            compare=values,
            progress=_progress,
            **options,
        )
        for target in targets
        for table in tables_of(cluster.connection, target, options["ledger"])
    ]
    exact = all(one.exact for one in found)
    answer = {"exact": exact, "targets": [one.to_json() for one in found]}
    cluster.answer(answer, *(line for one in found for line in _lines(one)))
    # Whoever asks for less is told what it is, and that it is right as far as it goes.
    as_asked = all(
        one.verdict is Verdict.UNPROVEN
        and (
            len(one.unproven) == 1
            if by in {"count", "sequence"}
            else one.by is By.SOURCE and not values
        )
        for one in found
    )
    return not (exact or as_asked)


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        click.echo(f"\r{visible(what)}: {done} of {total} rows{end}", nl=False, err=True)


def _lines(found: Audit) -> Iterator[Any]:
    yield f"target: {found.target}, written in mode {', '.join(found.modes) or '?'}"
    if found.by == "sequence":
        yield f"tombstones: {found.tombstones}; rows of the target with their keys: {found.rows}"
        yield f"of these not newer than the delete of their key: {found.outlived}"
    elif found.expected_rows is None:
        yield from _of_sources(found)
    else:
        yield from _of_totals(found, found.expected_rows)
    yield from (f"not proven: {what}" for what in found.unproven)
    if found.unproven:
        yield f"to prove it: {found.remedy}"
    yield found.verdict.value


def _of_sources(found: Audit) -> Iterator[Any]:
    rows = []
    for one in found.partitions:
        examples = "; ".join(
            f"{name} {', '.join(map(str, some))}" for name, some in one.examples.items() if some
        )
        cells = {
            "partition>": one.partition,
            "rows>": f"{one.start} to {one.end}",
            "lost>": one.lost,
            "repeated>": one.repeated,
            "changed>": f"{one.changed}{'+' if one.unclear_ranges else ''}",
            "values compared from>": one.compared_from,
            "examples": examples,
        }
        rows.append({"queue": one.queue, **cells} if len(found.queues) > 1 else cells)
    yield shown(rows, "no partitions")
    yield f"rows of the target: {found.rows}"
    if found.job_rows or found.expected_job_rows:
        yield f"rows of batch jobs: {found.job_rows}, the ledger accounts for {found.expected_job_rows}"
    yield f"committed since the start of the audit, not judged: {found.newer}"
    yield f"of unknown origin: {found.unknown}"
    yield f"compared columns: {', '.join(found.compared) or 'none'}"


def _of_totals(found: Audit, expected: int) -> Iterator[str]:
    yield f"rows of the target: {found.rows}, the ledger accounts for {expected}"
    if found.expected_digest:
        yield f"digest of the target: {found.digest}, of the ledger {found.expected_digest}"
    if found.rows > expected and set(found.modes) - {"transactional"}:
        yield (
            "In this mode rows are in the target before their batch is in the ledger. Let the query finish "
            "its batch. In mode at-least-once rows may also be there twice."
        )
