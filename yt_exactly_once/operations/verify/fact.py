"""A fact about YTsaurus: what is checked, who depends on it, and what it means if it is different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from yt_exactly_once.config import DeliveryMode

if TYPE_CHECKING:
    from yt_exactly_once.operations.verify.stage import Stage

    Check = Callable[[Stage], str | None]


class Part(StrEnum):
    """What of the package depends on a fact."""

    TRANSACTIONAL = DeliveryMode.TRANSACTIONAL.value
    IDEMPOTENT = DeliveryMode.IDEMPOTENT.value
    AT_LEAST_ONCE = DeliveryMode.AT_LEAST_ONCE.value
    SOURCE = "source"


EVERY_MODE = tuple(Part(mode) for mode in DeliveryMode)
"""All delivery modes: each records its batches in one transaction with the offsets."""


@dataclass(frozen=True)
class Fact:
    """One behaviour of the cluster.

    Attributes:
        name: short and stable, for tickets.
        area: the group it is shown in.
        checked: what is done, and what must come out.
        meaning: what it means if it is different, for the parts that depend on it.
        source: where YTsaurus decides it.
        check: raises `Differs`; returns what is worth telling besides.
    """

    name: str
    area: str
    checked: str
    parts: tuple[Part, ...]
    meaning: str
    source: str
    check: Check


def declared(
    facts: list[Fact],
    name: str,
    checked: str,
    meaning: str,
    *,
    area: str,
    parts: tuple[Part, ...],
    source: str,
) -> Callable[[Check], Check]:
    """Declare the function below as one more fact; see `Fact` for the arguments."""

    def declare(check: Check) -> Check:
        facts.append(Fact(name, area, checked, parts, meaning, source, check))
        return check

    return declare
