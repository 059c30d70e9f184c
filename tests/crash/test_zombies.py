"""A driver that stops, is replaced, and wakes up: what it still holds must not reach the cluster."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell, Life, Lineage, Remains, Subject
from tests.tiers import NIGHTLY
from yt_exactly_once import Event
from yt_exactly_once.config import DeliveryMode

BATCH = 2
"""The batch the zombie stops in."""

BATCHES = 8 if NIGHTLY else 5

CELLS = [
    Cell("stateless", is_sorted=False),
    Cell("aggregation", is_sorted=True),
    Cell("stateless", is_sorted=False, mode="at-least-once"),
    Cell("stateless", is_sorted=False, mode="idempotent"),
]
if not NIGHTLY:
    # At-least-once mode takes the same steps as idempotent mode, and promises less.
    CELLS = CELLS[1::2]
POINTS = [CrashPoint.LEDGER_RECORDED]
if NIGHTLY:
    POINTS = [
        point
        for point in CrashPoint
        if point.value.event
        and all(point.value.aftermath(mode) for mode in DeliveryMode)
        and point not in {CrashPoint.REPLAY_SKIPPED, CrashPoint.COMMIT_OUTCOME_UNKNOWN}
    ]

REFUSALS = (
    "yt_exactly_once.errors.FencedError",
    "yt_exactly_once.errors.OffsetConflictError",
    "yt_exactly_once.errors.LedgerDivergedError",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
)
"""Errors that tell a driver that another one has taken over: ours, and Spark's own."""


def family_of(lineage) -> Lineage:
    return lineage(*CELLS, rows=BATCHES * 300, rows_per_partition=300)


def stopped(family: Lineage, point: CrashPoint, batch: int) -> Life:
    """Begin a life that is stopped when all its queries are at that point."""
    life = family.start([subject.dying(point, batch) for subject in family.subjects], stop=True)
    assert life.listen("arrived", len(family.subjects)) == "arrived", life.error
    life.wait_until_stopped()
    return life


def assert_told(zombie: Life, subject: Subject) -> None:
    """A query of a woken driver learns that it has been replaced."""
    error = zombie.error_of(subject.plan.target)
    assert any(refusal in error for refusal in REFUSALS), (subject.cell, error)


def assert_undisturbed(survivor: Life, subject: Subject) -> None:
    """No batch took the survivor more than one attempt beyond the first."""
    committed = survivor.told(Event.BATCH_COMMITTED, subject.plan.target)
    assert len(committed) > 1
    assert max(fields["attempts"] for fields in committed) <= 2
    retried = survivor.told(Event.RETRY_SCHEDULED, subject.plan.target)
    assert max(Counter(fields["batch"] for fields in retried).values(), default=0) <= 1


def assert_complete(subject: Subject, left: Remains) -> None:
    """Everything is there, and once; at-least-once mode may have the zombie's batch twice."""
    assert left.stored == left.entry.ends[subject.queue.path] == subject.queue.ends()
    found, expected = Counter(left.rows), Counter(subject.must_hold(BATCHES))
    assert expected - found == Counter()
    if subject.cell.mode == DeliveryMode.AT_LEAST_ONCE:
        of_zombie = Counter(subject.told(BATCH)) - Counter(subject.told(BATCH - 1))
        assert found - expected in (Counter(), of_zombie)
    else:
        assert found == expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
def test_stopped_driver_that_wakes_after_another_took_over_changes_nothing(lineage, point):
    """The one that took over runs to the end undisturbed, and the woken one is told."""
    family = family_of(lineage)
    with stopped(family, point, BATCH) as zombie:
        survivor = family.finish()
        before = [subject.remains() for subject in family.subjects]
        zombie.wake()
        assert zombie.listen() == "failed"
    for subject, left in zip(family.subjects, before, strict=True):
        assert_told(zombie, subject)
        assert_undisturbed(survivor, subject)
        after = subject.remains()
        assert_complete(subject, after)
        rewrites = subject.cell.mode == DeliveryMode.AT_LEAST_ONCE and after.rows != left.rows
        assert after == (replace(left, rows=after.rows) if rewrites else left)
