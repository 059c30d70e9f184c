"""The program: its table of commands, its exit codes, and how it reports errors.

A command is a module of this package with a Click command named `command`, and one line in `GROUPS`. Commands
that share their options share a module, which `_SHARED` names, and have their own names there. A module is
imported only when its command is called, and it imports what needs Spark or the client inside the command. So
`--help` answers at once and needs no extras. A command returns `True` if what it has checked is not right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from yt_exactly_once.cli.output import ExitCode, print_json
from yt_exactly_once.errors import ExactlyOnceError, visible
from yt_exactly_once.version import VERSION

GROUPS = {
    "Run": {
        "add-column": "Add columns to a table that queries use.",
        "checkpoints": "Let Spark keep checkpoints on YTsaurus.",
        "create-consumer": "Create a consumer and register it for a queue.",
        "create-ledger": "Create the tables that a sink keeps, with rights of their own.",
        "create-queue": "Create and mount a queue for the rows of a DataFrame.",
        "create-table": "Create and mount a dynamic table that fits a DataFrame.",
    },
    "Look": {
        "history": "Show the last batches of queries: when, how many rows, how long.",
        "ledger": "Look into ledgers, and remove entries of queries that are gone.",
        "status": "Show every query: its last batch, and how far it is behind in its queues.",
    },
    "Repair": {
        "dead-letters": "Look at rows that their target could not take, and write the repaired ones, once.",
        "doctor": "Find what keeps a query from running, and the command that repairs it.",
        "repair": "Plan what a broken query needs to continue exactly where its ledger says, and do it.",
        "rewind": "Move a consumer back, to the ledger, an offset or a time, and say what that means.",
        "skip": "Move a consumer forward, to the ledger, or past rows that are never to be read.",
    },
    "Check": {
        "audit": "Prove that a target has every committed row of its queue once.",
        "rehearse": "Run the last batches of a query again with new code, and compare; nothing is written.",
        "verify-cluster": "Check on a live cluster every fact that exactly-once stands on.",
    },
    "Try": {
        "demo": "Stream real flights, kill the driver at random moments, and check every row.",
        "local": "Run an embedded cluster in the foreground.",
    },
}
"""Every command and what it does, by what it is for; `dead-letters` is in the module `dead_letters`."""

_SHARED = {
    **dict.fromkeys(
        ("create_consumer", "create_ledger", "create_queue", "create_table"), "creating"
    ),
    **dict.fromkeys(("repair", "rewind", "skip"), "moving"),
    **dict.fromkeys(("checkpoints", "local"), "serving"),
    "history": "ledger",
}

COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}

NAME = "yt-exactly-once"


class Program(click.Group):
    """A group that imports the module of a command on first use."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as Click calls it
        """Return a command, or nothing when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(f"yt_exactly_once.cli.{_SHARED.get(name, name)}")
        command: click.Command = getattr(module, name if name in _SHARED else "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by what they are for, without importing them."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), what) for name, what in group.items()])


_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(NAME, cls=Program, context_settings=_SETTINGS)
@click.version_option(VERSION, prog_name=NAME, message="%(prog)s %(version)s")
def program() -> None:
    """Exactly-once delivery from Spark Structured Streaming into YTsaurus."""


program.commands = dict.fromkeys(COMMANDS, program)
"""Names alone: Click lists them, and looks among them for the one that was meant."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with these arguments, or those of the process; return its `ExitCode`.

    With `--json` standard output has one JSON document, also if the command fails.
    """
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        is_wrong = program.main(arguments, prog_name=NAME, standalone_mode=False)
    except click.ClickException as error:
        if as_json:
            print_json({"error": type(error).__name__, "what": error.format_message()})
        else:
            error.show()
        return ExitCode.FAILED
    except click.Abort:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:
        if not _is_expected(error):
            raise
        if not as_json:
            lines = map(visible, str(error).split("\n"))
            click.echo("error: " + "\n".join(lines), err=True)
        elif isinstance(error, ExactlyOnceError):
            print_json(error.to_json())
        else:
            print_json({"error": type(error).__name__, "what": str(error)})
        return ExitCode.FAILED
    return ExitCode.FAULT_FOUND if is_wrong else ExitCode.OK


def _is_expected(error: Exception) -> bool:
    """Return whether the message says all; the traceback of any other error is needed."""
    local = sys.modules.get("yt_exactly_once.local.proxy_process")
    return isinstance(error, ExactlyOnceError) or (
        local is not None and isinstance(error, local.LocalClusterError)
    )
