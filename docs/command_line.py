"""The page of the command line: the help of every command, and the exit codes."""

from __future__ import annotations

import inspect
import re

import click

from yt_exactly_once.cli.output import ExitCode
from yt_exactly_once.cli.program import NAME, program

_WIDTH = 100


def command_line() -> str:
    """One section per command, in alphabetical order."""
    settings = program.context_settings
    top = click.Context(program, info_name=NAME, terminal_width=_WIDTH, **settings)
    sections: list[str] = []
    for name in program.list_commands(top):
        command = program.get_command(top, name)
        assert command is not None
        sections += _sections(command, click.Context(command, top, name, terminal_width=_WIDTH))
    return "\n".join(
        [
            "# The command line",
            "",
            (
                f"The package installs the command `{NAME}`. `python -m yt_exactly_once` is the same. Apart "
                "from `demo` and `local`, no command needs an extra. Only `demo` needs Java."
            ),
            "",
            "- `YT_PROXY` names a proxy of the cluster; the option `--proxy` comes before it.",
            (
                "- The token comes from `YT_TOKEN` alone, because other users of a machine can read the "
                "arguments of a process."
            ),
            "- `--json` prints one JSON document for programs.",
            "- An error is one line on standard error, without a traceback.",
            "",
            "| exit code | meaning |",
            "|---|---|",
            *(f"| {code.value} | {meaning} |" for code, meaning in _exit_codes()),
            "",
            *sections,
        ]
    )


def _sections(command: click.Command, context: click.Context) -> list[str]:
    sections = [f"## `{context.command_path}`", "", "```text", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for name, part in sorted(command.commands.items()):
            inner = click.Context(part, context, name, terminal_width=_WIDTH)
            sections += _sections(part, inner)
    return sections


def _exit_codes() -> list[tuple[ExitCode, str]]:
    """Return every code with the text below it in the source."""
    texts = re.findall(r'"""(.+?)"""', inspect.getsource(ExitCode))
    return list(zip(ExitCode, texts[1:], strict=True))
