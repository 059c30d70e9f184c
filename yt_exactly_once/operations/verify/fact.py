"""A fact about YTsaurus: what is checked, who depends on it, and what it means if it is different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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


class Facts(list[Fact]):
    """The facts of one area, in the order of their checks: calling it declares the function below as one.

    Its parts and its source are those of each fact that names no others.
    """

    def __init__(self, area: str, *, parts: tuple[Part, ...], source: str) -> None:
        super().__init__()
        self._usual = {"area": area, "parts": parts, "source": source}

    def __call__(
        self, name: str, checked: str, meaning: str, **other: Any
    ) -> Callable[[Check], Check]:
        """Declare a check; see `Fact` for the arguments."""

        def declare(check: Check) -> Check:
            told = self._usual | other
            self.append(Fact(name=name, checked=checked, meaning=meaning, check=check, **told))
            return check

        return declare
