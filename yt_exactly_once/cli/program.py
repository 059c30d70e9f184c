"""The program: its table of commands, its exit codes, and how it reports errors.

A command is a module of this package with a Click command named `command`, and one line in `COMMANDS`. The
module is imported only when its command is called, and it imports what needs Spark or the client inside
the command. So `--help` answers at once and needs no extras.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from yt_exactly_once.cli.exit_codes import ExitCode
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.operations.view import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "checkpoints": "Let Spark keep checkpoints on YTsaurus.",
    "audit": "Prove that a target has every committed row of its queue once.",
    "create-consumer": "Create a consumer and register it for a queue.",
    "create-ledger": "Create the tables that a sink keeps, with rights of their own.",
    "create-queue": "Create and mount a queue for the rows of a DataFrame.",
    "create-table": "Create and mount a dynamic table that fits a DataFrame.",
    "demo": "Stream real flights, kill the driver at random moments, and check every row.",
    "doctor": "Find what keeps a query from running, and the command that repairs it.",
    "ledger": "Look into ledgers, and remove entries of queries that are gone.",
    "local": "Run an embedded cluster in the foreground.",
    "verify-cluster": "Check on a live cluster every fact that exactly-once stands on.",
    "repair": "Plan what a broken query needs to continue exactly where its ledger says, and do it.",
    "rewind": "Move a consumer back, to an offset or a time, and say what that means.",
    "skip": "Move a consumer forward, past rows that are never to be read.",
    "status": "Show every query: its last batch, and how far it is behind in its queues.",
}
"""Every command and what it does; `create-table` is in the module `create_table`."""

NAME = "yt-exactly-once"


class Program(click.Group):
    """A group that imports the module of a command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as Click calls it
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, or nothing when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"yt_exactly_once.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "(not installed)"


@click.group(NAME, cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name=NAME, message="%(prog)s %(version)s")
def program() -> None:
    """Exactly-once delivery from Spark Structured Streaming into YTsaurus."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: of the command line; `None` takes those of the process.

    Returns:
        The exit code, see `ExitCode`.
    """
    try:
        code = program.main(arguments, prog_name=NAME, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return ExitCode.FAILED
    except click.Abort:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:
        if not _is_expected(error):
            raise
        click.echo(f"error: {visible(str(error))}", err=True)
        return ExitCode.FAILED
    return int(code or ExitCode.OK)


def _is_expected(error: Exception) -> bool:
    """Return whether the message says all; the traceback of any other error is needed."""
    local = sys.modules.get("yt_exactly_once.local.proxy_process")
    return isinstance(error, ExactlyOnceError) or (
        local is not None and isinstance(error, local.LocalClusterError)
    )
