"""What each query of the crash tests dies of, life after life.

With `YT_EXACTLY_ONCE_NIGHTLY` every kind of query into every kind of target dies at every point that its
mode passes, with unharmed batches in between. Otherwise two queries do in transactional mode, in one batch
after the other, and one in idempotent mode dies once with every state of the cluster that a death leaves.
At-least-once mode takes the same steps, and promises less: it dies where its rows are written twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell
from tests.flows import QUERIES
from tests.tiers import NIGHTLY
from yt_exactly_once.config import DeliveryMode


class Death(NamedTuple):
    """Where the queries of a life die.

    Attributes:
        batch: in which batch.
        transactional: the point of queries of the transactional mode; `None` if they sit it out.
        from_tasks: the point of those whose tasks write.
        in_parts: whether transactional batches are written in parts.
    """

    batch: int
    transactional: CrashPoint | None
    from_tasks: CrashPoint | None
    in_parts: bool = False

    def point(self, cell: Cell) -> CrashPoint | None:
        return self.transactional if cell.mode == DeliveryMode.TRANSACTIONAL else self.from_tasks


def everywhere(batch: int, point: CrashPoint) -> Death:
    return Death(batch, point, point)


DEATHS = [
    # Three times in the very first batch, which has no offsets before it.
    everywhere(0, CrashPoint.LEDGER_RECORDED),
    everywhere(0, CrashPoint.TRANSACTION_COMMITTED),
    # A replay is skipped where the life before was killed after its commit.
    everywhere(0, CrashPoint.REPLAY_SKIPPED),
    everywhere(1, CrashPoint.BATCH_STARTED),
    # In transactional mode only the first batch of a life is looked up before its rows are computed: the one
    # in which the life before ended.
    everywhere(1, CrashPoint.LEDGER_READ),
    Death(4, CrashPoint.PART_COMMITTED, CrashPoint.TASKS_WRITING, in_parts=True),
    # The rest of those parts is written, and the first part of a later batch is not committed.
    Death(5, CrashPoint.ROWS_WRITTEN, None, in_parts=True),
    everywhere(6, CrashPoint.BATCH_COMPUTED),
    everywhere(7, CrashPoint.TRANSACTION_STARTED),
    everywhere(8, CrashPoint.OFFSETS_ADVANCED),
    everywhere(9, CrashPoint.COMMIT_OUTCOME_UNKNOWN),
    everywhere(10, CrashPoint.BATCH_COMMITTED),
    everywhere(11, CrashPoint.SINK_RETURNED),
]

ORDERED, SORTED = False, True
IN_TURN = {
    # Two queries share the deaths, so that there are half as many lives.
    Cell("stateless", ORDERED): (0, 3, 4, 8, 10, 12),
    Cell("aggregation", SORTED): (1, 2, 5, 6, 7, 9, 11),
    Cell("stateless", ORDERED, "at-least-once"): (5,),
    Cell("stateless", ORDERED, "idempotent"): (0, 1, 4, 5, 10),
}
EVERY = [
    Cell(kind, order, mode)
    for mode in DeliveryMode
    # Idempotent mode refuses the others before it does anything.
    for kind in (["stateless"] if mode is DeliveryMode.IDEMPOTENT else QUERIES)
    for order in (False, True)
]


def closer(deaths: Sequence[Death]) -> list[Death]:
    """Return the same deaths without the batches between them that nothing happens in."""
    batches = sorted({death.batch for death in deaths})
    return [death._replace(batch=batches.index(death.batch)) for death in deaths]


FATES: dict[Cell, list[Death]] = {
    cell: closer([DEATHS[number] for number in numbers]) for cell, numbers in IN_TURN.items()
}
"""What each query dies of, life after life."""

BY_NIGHT: dict[Cell, list[Death]] = dict.fromkeys(EVERY, DEATHS)

if NIGHTLY:
    FATES = BY_NIGHT


BATCHES = 3 + max(death.batch for deaths in FATES.values() for death in deaths)
"""Enough for every death, and for two batches that nobody disturbs."""


def family_of(cell: Cell) -> str:
    """Return which queries it shares its lives with."""
    return cell.mode if NIGHTLY else "every mode"


def _named(fates: dict[Cell, list[Death]]) -> dict[str, tuple[Cell, CrashPoint]]:
    return {
        f"{point.name.lower()}-{cell}": (cell, point)
        for cell, deaths in fates.items()
        for death in deaths
        if (point := death.point(cell))
    }


PASSED = _named(FATES)
"""Every death of every query, by the name of its test."""

PASSED_BY_NIGHT = _named(BY_NIGHT)
"""The same for the tests of the night, which have all of them."""
