"""A driver killed with SIGKILL at every crash point, on one checkpoint after the other.

The lives of a lineage share their checkpoints: each is killed at the next point in a later batch, so that
what one crash damaged would be seen after all the following ones too. Two queries run in each process
and die together, each at the crash point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.flows import NIGHTLY
from yt_exactly_once.commit.crash_points import CrashPoint

if TYPE_CHECKING:
    from tests.crash.harness.lives import Lineage, Remains

ROWS, ROWS_PER_PARTITION = 14_000, 400

DEATHS = {
    # Three times in the very first batch, which has no offsets before it.
    CrashPoint.LEDGER_RECORDED: 0,
    CrashPoint.TRANSACTION_COMMITTED: 0,
    # A replay is skipped where the life before was killed after its commit.
    CrashPoint.REPLAY_SKIPPED: 0,
    CrashPoint.BATCH_STARTED: 2,
    CrashPoint.LEDGER_READ: 4,
    CrashPoint.BATCH_COMPUTED: 5,
    CrashPoint.TRANSACTION_STARTED: 8,
    CrashPoint.ROWS_WRITTEN: 9,
    CrashPoint.OFFSETS_ADVANCED: 12,
    CrashPoint.COMMIT_OUTCOME_UNKNOWN: 14,
    CrashPoint.BATCH_COMMITTED: 16,
    CrashPoint.SINK_RETURNED: 18,
}
"""The batch each life dies in."""

ORDERED, SORTED = False, True
PAIRS = [(("stateless", ORDERED), ("aggregation", SORTED))]
FIRST_BATCH_POINTS = [CrashPoint.SINK_RETURNED]
if NIGHTLY:
    PAIRS += [
        (("stateless", SORTED), ("aggregation", ORDERED)),
        (("dedup", ORDERED), ("windowed", SORTED)),
        (("dedup", SORTED), ("windowed", ORDERED)),
    ]
    FIRST_BATCH_POINTS = [point for point in CrashPoint if point is not CrashPoint.REPLAY_SKIPPED]


def named(value):
    """Return the id of a parameter."""
    return (
        value.name.lower() if isinstance(value, CrashPoint) else "+".join(kind for kind, _ in value)
    )


@dataclass
class History:
    """A lineage that has run.

    Attributes:
        lineage: with its queries, in the order of `PAIRS`.
        left: what every death left behind, per query.
        final: what the life that ran to the end left behind, per query.
    """

    lineage: Lineage
    left: dict[CrashPoint, list[Remains]]
    final: list[Remains]


@pytest.fixture(scope="module", params=PAIRS, ids=named)
def history(request, lineage) -> History:
    """Kill a pair of queries at every crash point, and let them live to the end then."""
    pair = lineage(*request.param, rows=ROWS, rows_per_partition=ROWS_PER_PARTITION)
    left = {point: pair.die(point, batch) for point, batch in DEATHS.items()}
    pair.finish()
    return History(pair, left, [subject.remains() for subject in pair.subjects])


def assert_whole(subject, left, point, batch):
    """Target, ledger and consumer tell the same story: whole batches, up to the expected one."""
    last = batch if point.value.committed else batch - 1
    assert (left.entry.batch_id if left.entry else -1) == last
    assert subject.wrong(left) == ""
    path = subject.queue.path
    if left.entry is None:
        assert left.stored == {}
        return
    for partition, end in left.entry.ends[path].items():
        assert left.entry.left[path][partition] <= left.stored.get(partition, 0) <= end


def assert_complete(subject, left):
    """Nothing is lost, doubled or wrong, and the consumer stands at the end."""
    assert subject.incomplete(left) == ""
    assert left.entry.ends[subject.queue.path] == subject.queue.ends()
    assert left.stored == subject.queue.ends()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("point", list(DEATHS), ids=named)
def test_driver_killed_at_crash_point_leaves_whole_batches(history, point, which):
    """The cluster holds what the table of crash points says, never a part of a batch."""
    subject, left = history.lineage.subjects[which], history.left[point][which]
    assert_whole(subject, left, point, DEATHS[point])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", [0, 1])
def test_query_killed_at_every_crash_point_ends_exactly_right(history, which):
    """After all those deaths on one checkpoint."""
    assert_complete(history.lineage.subjects[which], history.final[which])


@pytest.mark.timeout(1800)
def test_every_crash_point_is_tried(history):
    """A new crash point needs a batch to die in, here."""
    assert set(history.left) == set(CrashPoint)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", FIRST_BATCH_POINTS, ids=named)
@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_driver_killed_in_its_first_batch_only(lineage, pair, point):
    """The start of the first batch is asked anew after the crash, when the consumer has moved."""
    both = lineage(*pair, rows=2_000, rows_per_partition=500)
    for subject, left in zip(both.subjects, both.die(point, 0), strict=True):
        assert_whole(subject, left, point, 0)
    both.finish()
    for subject in both.subjects:
        assert_complete(subject, subject.remains())
