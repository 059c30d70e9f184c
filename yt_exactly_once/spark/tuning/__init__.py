"""Everything that acts on a process beyond the call at hand, to save time; it never changes a result.

One switch stops all of it, see `SWITCH`. `table` lists it, and the docs show that table.

What is on by default touches only Spark's Python processes that run functions of this package, and sockets
between them and Spark. It leaves the user's process alone, and sockets of others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SWITCH = "YT_EXACTLY_ONCE_TUNING"
"""Environment variable of each process; any other value than `on` stops everything here."""

_OF_A_WORKER = "PYTHON_WORKER_FACTORY_"
"""How the variables begin that Spark sets in its Python processes alone, by which they find each other."""


def is_on() -> bool:
    """Return whether the switch is on in this process."""
    return os.environ.get(SWITCH, "on") == "on"


def is_worker() -> bool:
    """Return whether Spark has started this process, for a Python function or a data source."""
    return any(name.startswith(_OF_A_WORKER) for name in os.environ)


class Where(StrEnum):
    """The processes that a tuning acts in."""

    SESSION = "the driver, when it calls `register_source`"
    WORKER = "Spark's Python processes that run a function of this package"


@dataclass(frozen=True)
class Tuning(Generic[P, T]):
    """A function that acts where it belongs, while the switch is on. Elsewhere a call does nothing.

    Attributes:
        gain: what it saves, as measured.
        off: another way to turn it off than `SWITCH`, if there is one.
    """

    act: Callable[P, T]
    what: str
    where: Where
    why: str
    gain: str
    off: str = ""

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return self.act.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Act, and return what the function returns, or `None` if it did not act."""
        if is_on() and (self.where is Where.SESSION or is_worker()):
            return self.act(*args, **kwargs)
        return None


def tuning(
    *, what: str, where: Where, why: str, gain: str, off: str = ""
) -> Callable[[Callable[P, T]], Tuning[P, T]]:
    """Decorate what acts on a process; see `Tuning`."""

    def tuned(act: Callable[P, T]) -> Tuning[P, T]:
        return Tuning(act, what, where, why, gain, off)

    return tuned
