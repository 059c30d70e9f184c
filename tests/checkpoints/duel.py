"""Two drivers on one checkpoint: neither starts a failed query again, so what is left is the winner."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.checkpoints.driver import STORES
from tests.checkpoints.judge import damages
from tests.checkpoints.stage import open_stage

if TYPE_CHECKING:
    from pathlib import Path

_ROUNDS = 60
_ROUND_SECONDS = 1.0


@dataclass
class Result:
    """What two drivers did to each other.

    Attributes:
        first: queries that the first driver lost, with their errors.
        second: likewise.
        violations: broken promises, in words.
    """

    first: list[dict[str, str]]
    second: list[dict[str, str]]
    violations: list[str]


def fight(folder: Path) -> Result:
    """Start a second driver while the first one runs, and feed both until one has lost each query.

    Args:
        folder: for all files; must be there.
    """
    with ExitStack() as lives:
        stage = lives.enter_context(open_stage(folder))
        first = lives.enter_context(stage.driver(restarts=False))
        first.await_batches()
        second = lives.enter_context(stage.driver(restarts=False))
        drivers = (first, second)
        for _ in range(_ROUNDS):
            stage.feed()
            for driver in drivers:
                driver.listen(_ROUND_SECONDS)
            if {failed["query"] for failed in first.failures + second.failures} == set(STORES):
                break
        # Whoever is left takes the rest of the queue.
        violations = stage.await_results(*drivers)
        violations += damages(stage)
    return Result(first.failures, second.failures, violations)
