"""A driver that stops, is replaced, and wakes up: what it still holds must not reach the cluster."""

from __future__ import annotations

import pytest

from tests.flows import NIGHTLY
from yt_exactly_once.commit.crash_points import CrashPoint

BATCH = 2
POINTS = [CrashPoint.LEDGER_RECORDED, CrashPoint.TRANSACTION_COMMITTED]
if NIGHTLY:
    POINTS = [
        point
        for point in CrashPoint
        if point.value.event and point is not CrashPoint.REPLAY_SKIPPED
    ]

REFUSALS = (
    "yt_exactly_once.errors.FencedError",
    "yt_exactly_once.errors.OffsetConflictError",
    "yt_exactly_once.errors.LedgerDivergedError",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
)
"""Errors that tell a driver that another one has taken over: ours, and Spark's own."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
def test_stopped_driver_that_wakes_after_another_took_over_changes_nothing(lineage, point):
    """The one that took over runs to the end undisturbed, and the woken one is told."""
    pair = lineage(("stateless", False), ("aggregation", True), rows=2_400, rows_per_partition=300)
    dying = [subject.dying(point, BATCH) for subject in pair.subjects]
    with pair.start(dying, stop=True) as sleeper:
        assert sleeper.listen("arrived", len(dying)) == "arrived"
        sleeper.wait_until_stopped()
        successor = pair.finish()
        before = [subject.remains() for subject in pair.subjects]
        sleeper.wake()
        assert sleeper.listen() == "failed"
    assert any(refusal in sleeper.error for refusal in REFUSALS)
    for subject, left in zip(pair.subjects, before, strict=True):
        assert subject.incomplete(left) == ""
        assert subject.remains() == left
        assert len(successor.told("retry.scheduled", subject.plan.target)) <= 1


@pytest.mark.timeout(600)
def test_ledger_row_off_is_noticed_when_a_driver_wakes(lineage):
    """Without a common row the woken driver commits its batch a second time."""
    alone = lineage(("stateless", False), rows=1_200, rows_per_partition=300)
    (subject,) = alone.subjects
    unprotected = {"off": "ledger_row"}
    options = {"advance_consumer": False}
    subject.plan = subject.plan_with(options=options)
    dying = [subject.dying(CrashPoint.LEDGER_RECORDED, BATCH)]
    with alone.start(dying, stop=True, **unprotected) as sleeper:
        assert sleeper.listen("arrived") == "arrived"
        sleeper.wait_until_stopped()
        with alone.start([subject.plan], **unprotected) as successor:
            assert successor.listen() == "finished"
        sleeper.wake()
        sleeper.listen("batch.committed", 1)
    assert subject.incomplete(subject.remains()).startswith("0 lost, e.g. []; 900 too many")
