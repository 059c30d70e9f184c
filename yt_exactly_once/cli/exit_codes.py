"""The exit codes of every command, as those of `diff` and `grep`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    """The command did what it promises, and what it checked is right."""

    FAULT_FOUND = 1
    """The command worked, and what it checked is not right."""

    FAILED = 2
    """The command could not do it: wrong arguments, or an error that it printed."""

    INTERRUPTED = 130
    """Ctrl-C."""
