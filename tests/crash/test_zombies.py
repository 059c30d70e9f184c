"""A driver that stops, is replaced, and wakes up: what it still holds must not reach the cluster."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell, Fate, Lineage, Remains, Subject, Told, stop, wake
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


def assert_replaced(error: str) -> None:
    """A query of a woken driver learns that it has been replaced."""
    assert any(refusal in error for refusal in REFUSALS), error


def assert_undisturbed(told: list[Told]) -> None:
    """No batch took the survivor more than one attempt beyond the first."""
    committed = [one for one in told if one["event"] == Event.BATCH_COMMITTED]
    assert len(committed) > 1
    assert max(one["attempts"] for one in committed) <= 2
    retried = Counter(one["batch"] for one in told if one["event"] == Event.RETRY_SCHEDULED)
    assert max(retried.values(), default=0) <= 1


def assert_complete(subject: Subject, left: Remains) -> None:
    """Everything is there, and once; at-least-once mode may have the zombie's batch twice."""
    assert left.stored == left.entry.ends[subject.queue.path] == subject.queue.ends()
    found, expected = Counter(left.rows), Counter(subject.must_hold(BATCHES))
    assert expected - found == Counter()
    if subject.cell.mode == DeliveryMode.AT_LEAST_ONCE:
        of_zombie = Counter(subject.given_out(BATCH)) - Counter(subject.given_out(BATCH - 1))
        assert found - expected in (Counter(), of_zombie)
    else:
        assert found == expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
def test_stopped_driver_that_wakes_after_another_took_over_changes_nothing(lineage, point):
    """The one that took over runs to the end undisturbed, and the woken one is told."""
    family: Lineage = lineage(*CELLS, rows=BATCHES * 300, rows_per_partition=300)
    with family.held((subject, Fate(point, BATCH)) for subject in family.subjects) as zombie:
        stop(zombie)
        survivors = family.finish()
        before = [subject.remains() for subject in family.subjects]
        wake(zombie)
    for subject, told, left in zip(family.subjects, survivors, before, strict=True):
        assert_replaced(zombie.errors[subject.trial.name])
        assert_undisturbed(told)
        after = subject.remains()
        assert_complete(subject, after)
        rewrites = subject.cell.mode == DeliveryMode.AT_LEAST_ONCE and after.rows != left.rows
        assert after == (replace(left, rows=after.rows) if rewrites else left)
