"""`dead-letters`: rows that their target could not take, and their way into it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from yt_exactly_once.cli.options import (
    ClusterOptions,
    cluster_options,
    flag,
    number,
    option,
    several,
)
from yt_exactly_once.operations.view import shown


@click.group("dead-letters")
def command() -> None:
    """Look at rows that their target could not take, and write those that were repaired, once."""


@command.command("list")
@click.argument("path")
@cluster_options
def list_letters(path: str, cluster: ClusterOptions) -> None:
    """Say what is wrong with the letters of the dead-letter table PATH, and how many wait."""
    from yt_exactly_once.operations import dead_letters  # noqa: PLC0415 - the client is slow

    letters = dead_letters.read_letters(cluster.connection, path)
    done = dead_letters.done_letters(cluster.connection, path, letters)
    groups = dead_letters.grouped(letters, done)
    cluster.answer(groups, shown(groups, "no letters"))


@command.command("show")
@click.argument("path")
@option("--target PATH", "Only the letters of this target.")
@flag("--all is_all", "Those that were replayed, too.")
@number("--limit N", "Only the first N.", 1)
@cluster_options
def show(
    path: str, target: str | None, limit: int | None, cluster: ClusterOptions, is_all: bool
) -> None:
    """Show the letters of the dead-letter table PATH that wait, with their rows.

    Save what --json prints, correct the values in `row`, and pass the file to `replay --letters`.
    """
    from yt_exactly_once.operations import dead_letters  # noqa: PLC0415 - the client is slow

    letters = dead_letters.read_letters(cluster.connection, path)
    done = set() if is_all else dead_letters.done_letters(cluster.connection, path, letters)
    chosen = [one for one in letters if one.position not in done and target in {None, one.target}]
    lines, answer = [], []
    for one in chosen[:limit]:
        row = "not kept" if one.row is None else json.dumps(one.row, ensure_ascii=False)
        position = f"{one.tablet}:{one.index} batch {one.batch_id}, {one.target}"
        lines.append(f"{position}: {one.reason}. {row}")
        answer.append({name: value for name, value in vars(one).items() if name != "kept"})
    cluster.answer(answer, *lines, f"{len(lines)} letters")


@command.command("replay")
@click.argument("path")
@option(
    "--letters file FILE",
    "Only these letters, with the rows of this file: what `show --json` printed, corrected.",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@several("--base64 binary COLUMN", "Letters of an earlier version have base64 in this column")
@several("--text texts COLUMN", "They have text in this column")
@flag("--overwrite", "Replace rows of a sorted target with these keys.")
@option("--ledger PATH", "The ledger that counts the rows.  [default: the one near the target]")
@flag("--apply is_applied", "Do it.  [default: only say it]")
@cluster_options
def replay(
    path: str,
    file: Path | None,
    binary: tuple[str, ...],
    texts: tuple[str, ...],
    ledger: str | None,
    cluster: ClusterOptions,
    overwrite: bool,
    is_applied: bool,
) -> bool:
    """Write the letters of the dead-letter table PATH that fit their targets now, each one once.

    Rows and notes beside the dead-letter table become visible together. So a letter is never written a
    second time, by a repeated command neither. The query may run. Letters that still do not fit stay; the
    exit code is 1 if there are any, or if something waits for --apply.
    """
    from yt_exactly_once.operations import dead_letters  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.letter_rows import Spelling  # noqa: PLC0415

    connection = cluster.connection
    letters = dead_letters.read_letters(connection, path)
    if file is not None:
        letters = dead_letters.repaired(letters, json.loads(file.read_text(encoding="utf-8")))
    spelling = Spelling(texts, binary)
    plans = dead_letters.plan_replays(connection, path, letters, ledger=ledger, spelling=spelling)
    answer = []
    for plan in plans:
        target, written = plan.path, 0
        if is_applied:
            written = dead_letters.replay(connection, plan, overwrite=overwrite)
        unfit = [{"letter": f"{one.tablet}:{one.index}", "why": why} for one, why in plan.unfit]
        answer.append(
            {
                "target": target,
                "fitting": len(plan.fitting),
                "written": written,
                "replayed_before": plan.done,
                "unfit": unfit,
            }
        )
        what = f"{written} written" if is_applied else f"{len(plan.fitting)} can be written"
        cluster.say(
            f"{target}: {what}, {plan.done} were replayed before, {len(unfit)} do not fit",
            *(f"  {one['letter']}: {one['why']}" for one in unfit),
        )
    cluster.answer(answer)
    return any(plan.unfit or (plan.fitting and not is_applied) for plan in plans)
