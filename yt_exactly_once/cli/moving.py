"""`rewind` and `skip` move a consumer for a new checkpoint, `repair` to where its ledger says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli import options
from yt_exactly_once.operations.view import shown

if TYPE_CHECKING:
    from yt_exactly_once.operations.moves import Direction, Plan
    from yt_exactly_once.operations.repair import Repair


def _position(text: str) -> int | str | datetime:
    """Read an offset, an end of the queue, or a time."""
    if text in {"earliest", "latest", "ledger"}:
        return text
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        what = f"{text!r} is no offset, earliest, latest, ledger or time (ISO 8601)"
        raise click.BadParameter(what) from error


_ROUNDS = 2
"""A consumer that is not mounted can be read, and moved, only after it was mounted."""

_EXPLAINED = """Move CONSUMER of QUEUE {}.

Says first what this means for every query that uses the consumer. Refuses while one of them runs: it looks
twice, and wants the last batch to be --quiet seconds old. A running query without new rows looks like a
stopped one, so make sure.

A checkpoint that exists does not follow the consumer. Its query continues if the consumer is where the last
batch has left it. Otherwise it stops with OffsetConflictError. What is said first tells which it is.
"""


def _moving(direction: Direction, how: str) -> click.Command:
    @click.command(direction, help=_EXPLAINED.format(how))
    @click.argument("consumer")
    @click.argument("queue")
    @options.option(
        "--to PLACE",
        "ledger: after the last row that the query has committed. Or an offset, earliest, latest, "
        "or a time such as 2026-01-31T12:00:00Z: the first row that is not older.",
        type=_position,
        required=True,
    )
    @options.option(
        "--partition partitions N",
        "Only this partition; may be repeated.  [default: all]",
        type=int,
        multiple=True,
    )
    @options.option(
        "--ledger ledgers PATH",
        "Where to look for queries that use the consumer: ledgers, targets or folders.  "
        "[default: //home]",
        multiple=True,
    )
    @options.flag("--dry-run", "Only say what would happen.")
    @options.flag("--force", "Do not check whether a query is running.")
    @options.flag("--yes", "Do not ask.")
    @options.number(
        "--wait S", "Seconds between two looks at consumer and ledgers.", 0, default=5.0
    )
    @options.number(
        "--quiet S",
        "Seconds that must have passed since the last batch of each query.",
        0,
        default=60.0,
    )
    @options.accepting
    @options.cluster_options
    def run(
        consumer: str,
        queue: str,
        to: int | str | datetime,
        partitions: tuple[int, ...],
        ledgers: tuple[str, ...],
        wait: float,
        quiet: float,
        accept_repeated: int,
        accept_lost: int,
        cluster: options.ClusterOptions,
        dry_run: bool,
        force: bool,
        yes: bool,
    ) -> None:
        from yt_exactly_once.operations import moves  # noqa: PLC0415 - the client is slow
        from yt_exactly_once.operations.ledgers import find_ledgers  # noqa: PLC0415

        connection = cluster.connection
        plan = moves.plan_move(
            connection,
            direction,
            queue,
            consumer,
            to,
            partitions=partitions or None,
            ledgers=find_ledgers(connection, ledgers),
        )
        cluster.say(*_lines(plan))
        if not dry_run:
            moves.require_accepted(
                repeated=(plan.repeated, accept_repeated), lost=(plan.lost, accept_lost)
            )
            # A running query refuses any other place, and so cannot move a consumer that is elsewhere.
            if not force and to != moves.LEDGER:
                moves.require_stopped(connection, plan, look_seconds=wait, quiet_seconds=quiet)
            if not yes:
                click.confirm("Move the consumer?", abort=True, err=True)
            moves.move_consumer(connection, plan.source)
        done = [] if dry_run else ["moved. A new checkpoint begins where the consumer is now"]
        cluster.answer({**plan.to_json(), "moved": not dry_run}, *done)

    return run


def _lines(plan: Plan) -> Iterator[Any]:
    cells = (
        {"partition>": partition, "consumer is at>": old, "moves to>": new, "rows>": abs(new - old)}
        for partition, old, new in plan.source.partitions
    )
    yield shown(cells, "no partitions")
    if plan.stays:
        yield f"stays: partitions {', '.join(map(str, plan.stays))}"
    yield (
        f"with a new checkpoint, {plan.repeated} committed rows are read again, and {plan.lost} rows that "
        "are not committed are never read"
    )
    for row, meaning in plan.affected:
        entry = row.entry
        yield f"query {entry.label}, target {entry.target}, batch {entry.batch_id}: {meaning}."
    if not plan.affected:
        yield "No ledger that was read has a query with this consumer."
    yield from (f"not read, it may have a query with this consumer: {path}" for path in plan.unread)


rewind = _moving("rewind", "back, so that a query with a new checkpoint reads rows again")
skip = _moving(
    "skip", "forward, so that a query with a new checkpoint never reads the rows between"
)


@click.command("repair")
@click.argument("paths", nargs=-1, required=True)
@options.query_option
@options.flag(
    "--new-checkpoint",
    "The checkpoint is lost: the query will start with a new one, after the last row of its ledger.",
)
@options.option(
    "--checkpoint LOCATION",
    "checkpointLocation of the query: a path, or a URL of hdfs:, s3a: or yt:. It proves that a consumer "
    "after the ledger was moved.",
    default="",
)
@options.flag("--apply is_applied", "Do it.  [default: only say it]")
@options.flag("--force", "Do not check whether a driver is running.")
@options.number(
    "--wait S", "Seconds between the plan and another look at ledger and consumers.", 0, default=5.0
)
@options.accepting
@options.cluster_options
def repair(
    paths: tuple[str, ...],
    query: str | None,
    accept_repeated: int,
    accept_lost: int,
    cluster: options.ClusterOptions,
    checkpoint: str,
    new_checkpoint: bool,
    is_applied: bool,
    force: bool,
    wait: float,
) -> bool:
    """Plan what a query needs to continue exactly where its ledger says, and do it with --apply.

    PATHS are targets, ledgers or folders to search. The plan mounts tables, and creates, registers and moves
    consumers. It says how the query is started then. It writes no row of a target and changes no ledger.

    If rows may be repeated or lost, the plan says how many at most. It is then done only if you accept that
    very number. The exit code is 1 if there is something to do.

    Several ledgers may have an entry of the query: a copy of the ledger, or the ledger of an earlier target.
    The newest one counts, also if you name another one.

    A consumer that is after the ledger stays where it is, unless --checkpoint proves that somebody has moved
    it: the ledger may be an older copy. Start the query instead, and the error says which it is.

    Stop the driver first. Before a consumer is moved, --apply waits, and refuses if the ledger or the
    consumer has changed. A running query without new rows looks like a stopped one, so make sure.
    """
    if checkpoint and new_checkpoint:
        raise click.UsageError("--checkpoint and --new-checkpoint exclude each other")
    from yt_exactly_once.operations import repair as repairing  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.ledgers import find_ledgers, read_ledger  # noqa: PLC0415

    connection = cluster.connection
    ledgers = find_ledgers(connection, paths)
    shown: list[Repair] = []
    for number in range(_ROUNDS if is_applied else 1):
        rows = read_ledger(connection, *ledgers)
        plans = repairing.plan_repairs(
            connection,
            rows,
            query=query or "",
            checkpoint=checkpoint,
            new_checkpoint=new_checkpoint,
        )
        if number and not any(plan.steps for plan in plans):
            break
        shown += plans
        cluster.say(*_steps(plans))
        if is_applied:
            repairing.apply(
                connection,
                plans,
                repeated=accept_repeated,
                lost=accept_lost,
                wait=0.0 if force else wait,
            )
    answer = [{**plan.to_json(), "applied": is_applied} for plan in shown]
    cluster.answer(answer, *(["done"] if is_applied else []))
    return not is_applied and any(plan.steps or plan.open or plan.kept for plan in shown)


def _steps(plans: Sequence[Repair]) -> Iterator[str]:
    for plan in plans:
        yield f"query {plan.row.entry.label}, target {', '.join(plan.targets)}"
        yield from (f"  {number}. {step.text}" for number, step in enumerate(plan.steps, 1))
        if not plan.steps:
            yield "  nothing to change on the cluster"
        yield from (f"  stays: {what}" for what in plan.kept)
        yield from (f"  behind: {what}" for what in plan.behind)
        yield from (f"  a person must decide: {what}" for what in plan.open)
        yield f"  rows that may be repeated: {plan.repeated}, rows that are lost: {plan.lost}"
        yield f"  then: {plan.start}"
