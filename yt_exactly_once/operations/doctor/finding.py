"""What the doctor says about one thing: what, why it matters, and the command that repairs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yt_exactly_once.errors import ExactlyOnceError


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    """As it should be."""

    NOTE = "note"
    """Worth knowing."""

    WARNING = "warning"
    """A query runs, but it may fail or be slow under conditions that the finding names."""

    PROBLEM = "problem"
    """A query does not run, or does not keep its promise."""

    UNKNOWN = "unknown"
    """Could not be examined."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        check: short and stable name of what was examined.
        what: what was found, where, with the path or address.
        why: why it matters; empty if all is well.
        repair: the command or setting that repairs it; empty if all is well.
    """

    check: str
    what: str
    why: str = ""
    repair: str = ""
    level: Level = Level.OK


ok, note, warning, problem, unknown = (partial(Finding, level=level) for level in Level)
"""A finding of each level."""


def refused(check: str, error: ExactlyOnceError, why: str) -> Finding:
    """Say that a query would meet this error."""
    return problem(check, error.placed, why, error.remedy.removeprefix("Run: "))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an s unless there is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
