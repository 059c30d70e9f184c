"""`verify-cluster`: what the protocol stands on, asked from the user's own cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli.options import BACKENDS, file_option, json_option, option, proxy_option
from yt_exactly_once.cli.output import ended_by_sigterm, print_json, require_folder, say
from yt_exactly_once.config import ClusterConfig

if TYPE_CHECKING:
    from yt_exactly_once.operations.verify.run import Result


@click.command("verify-cluster")
@option(
    "--directory PATH",
    "Directory for the tables. The command makes a new one below it and removes it at the end.",
    required=True,
)
@proxy_option
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=click.Choice(BACKENDS),
    help="Protocol to check; may be repeated.  [default: both; rpc if ytsaurus-rpc-driver is installed]",
)
@file_option(
    "--report PATH",
    "Where to write the report, without the suffix: PATH.json, and PATH.md for people.",
    default=Path("verify-cluster"),
)
@json_option
def command(
    directory: str, proxy: str | None, backends: tuple[str, ...], report: Path, as_json: bool
) -> bool:
    """Check on a live cluster every fact that exactly-once stands on.

    Creates tables below the directory, writes to them, lets transactions compete, and removes everything
    at the end, after Ctrl-C too. Prints what holds, what differs, and what that means for which
    delivery mode. The exit code is 0 only if everything holds.

    You need the permission to create and mount dynamic tables there, and to register consumers. The tables
    need space for about 400 000 rows of one number.
    """
    from yt_exactly_once.operations.verify.facts import FACTS  # noqa: PLC0415 - needs the client
    from yt_exactly_once.operations.verify.run import verify_cluster  # noqa: PLC0415

    require_folder(report, "--report")

    def on_result(result: Result) -> None:
        for line in result.lines():
            say(line, err=as_json)

    chosen = backends or BACKENDS
    click.echo(
        f"{len(FACTS)} facts over {' and '.join(chosen)}. For each: a new folder below {directory} with 10 "
        "small tables, about 600 requests, 400 000 rows of one number, and about a minute. The folder is "
        "removed at the end.",
        err=True,
    )
    with ended_by_sigterm():
        found = verify_cluster(
            ClusterConfig.resolve(proxy), directory, backends=chosen, on_result=on_result
        )
    for suffix, text in (
        (".json", json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"),
        (".md", found.to_markdown()),
    ):
        report.with_name(report.name + suffix).write_text(text)
    if as_json:
        print_json(found.to_json())
    else:
        for line in found.summary():
            say(line)
        click.echo(f"The report is in {report}.md and {report}.json")
    return not found.holds
