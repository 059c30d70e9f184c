"""What a check may raise: the cluster does something else, or the fact cannot be shown here."""

from __future__ import annotations


class Differs(Exception):  # noqa: N818 - an observation, no failure of the program
    """The cluster does something else. The text says what was seen."""


class NotShown(Exception):  # noqa: N818 - as above
    """The fact cannot be checked here. The text says why."""


def expect(holds: object, seen: str) -> None:
    """Raise `Differs` with what was seen unless the condition holds."""
    if not holds:
        raise Differs(seen)
