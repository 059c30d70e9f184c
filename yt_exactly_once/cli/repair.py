"""`repair`: what a broken query needs to continue exactly where its ledger says, and doing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli import options
from yt_exactly_once.cli.exit_codes import ExitCode
from yt_exactly_once.cli.output import print_json

if TYPE_CHECKING:
    from yt_exactly_once.operations.repair import Repair

_ROUNDS = 2
"""A consumer that is not mounted can be read, and moved, only after it was mounted."""


@click.command("repair")
@click.argument("paths", nargs=-1, required=True)
@options.query_option
@options.flag(
    "--new-checkpoint",
    "The checkpoint is lost: the query will start with a new one, after the last row of its ledger.",
)
@options.flag("--apply is_applied", "Do it.  [default: only say it]")
@options.accepting
@options.cluster_options
def command(
    paths: tuple[str, ...],
    query: str | None,
    accept_repeated: int,
    accept_lost: int,
    cluster: options.ClusterOptions,
    *,
    new_checkpoint: bool,
    is_applied: bool,
    as_json: bool,
) -> ExitCode:
    """Plan what a query needs to continue exactly where its ledger says, and do it with --apply.

    PATHS are targets, ledgers or folders to search. The plan mounts tables, and creates, registers and moves
    consumers. It says how the query is started then. It writes no row of a target and changes no ledger.

    If rows may be repeated or lost, the plan says how many at most. It is then done only if you accept that
    very number. The exit code is 1 if there is something to do.
    """
    from yt_exactly_once.operations import repair as repairing  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.ledgers import find_ledgers, read_ledger  # noqa: PLC0415

    connection = cluster.connect()
    ledgers = find_ledgers(connection, paths)
    shown: list[Repair] = []
    for number in range(_ROUNDS if is_applied else 1):
        rows = read_ledger(connection, *ledgers)
        plans = repairing.plan_repairs(
            connection, rows, query=query or "", new_checkpoint=new_checkpoint
        )
        if number and not any(plan.steps for plan in plans):
            break
        shown += plans
        if not as_json:
            _print(plans)
        if is_applied:
            repairing.accept(plans, repeated=accept_repeated, lost=accept_lost)
            for plan in plans:
                repairing.apply(connection, plan)
    if as_json:
        print_json([{**plan.to_json(), "applied": is_applied} for plan in shown])
    elif is_applied:
        click.echo("done")
    needed = any(plan.steps or plan.open for plan in shown)
    return ExitCode.FAULT_FOUND if needed and not is_applied else ExitCode.OK


def _print(plans: Sequence[Repair]) -> None:
    for plan in plans:
        click.echo(f"query {plan.row.entry.query_id}, target {', '.join(plan.targets)}")
        for number, step in enumerate(plan.steps, 1):
            click.echo(f"  {number}. {step.text}")
        if not plan.steps:
            click.echo("  nothing to change on the cluster")
        for what in plan.open:
            click.echo(f"  a person must decide: {what}")
        click.echo(f"  rows that may be repeated: {plan.repeated}, rows that are lost: {plan.lost}")
        click.echo(f"  then: {plan.start}")
