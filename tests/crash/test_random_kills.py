"""Drivers killed between the sink's return and Spark's note of it, at a moment that nobody chose.

In every life all queries wait for each other at the end of their sink's call. Then they go on, and the
process is killed a few milliseconds later. A death counts for a query where Spark had not yet noted the
batch. Every second life or so dies in the replay of the batch that the life before had left. Seeds are
fixed, the moments are not: they depend on what the machine does.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell

if TYPE_CHECKING:
    from tests.crash.harness.lives import Lineage

# A crash point, SINK_RETURNED, is in the same gap.
pytestmark = pytest.mark.nightly

COUNTED = 50
"""Deaths in the gap, of the driver."""

LIVES = 2 * COUNTED + 2
"""Enough of them: about every second one counts."""

ROWS_PER_PARTITION = 50
LONGEST_DELAY_SECONDS = 0.05
SEED = 20

CELLS = [
    Cell("aggregation", is_sorted=True),
    Cell("stateless", is_sorted=False, mode="idempotent"),
    Cell("stateless", is_sorted=False),
    Cell("dedup", is_sorted=False),
]


@pytest.mark.timeout(3600)
def test_driver_killed_before_spark_notes_what_the_sink_has_written(lineage, record_property):
    """Nothing is lost, doubled or changed, after any of the deaths and after all of them."""
    chance = random.Random(SEED)
    family: Lineage = lineage(
        *CELLS, rows=(LIVES + 2) * ROWS_PER_PARTITION, rows_per_partition=ROWS_PER_PARTITION
    )
    deaths = dict.fromkeys(CELLS, 0)
    lives = counted = 0
    while counted < COUNTED:
        lives += 1
        assert lives <= LIVES, f"Only {counted} deaths in the gap"
        dying = []
        for subject in family.subjects:
            entry = subject.remains().entry
            last = entry.batch_id if entry else -1
            replays = last >= 0 and not subject.has_logged(last) and chance.random() < 0.5
            dying.append(subject.dying(CrashPoint.SINK_RETURNED, last if replays else last + 1))
        family.end(dying, delay=chance.uniform(0.001, LONGEST_DELAY_SECONDS))
        hit = False
        for subject, plan in zip(family.subjects, dying, strict=True):
            if not subject.has_logged(plan.batch):
                left = subject.remains()
                assert left.entry.batch_id == plan.batch
                assert subject.wrong(left) == "", (subject.cell, lives)
                deaths[subject.cell] += 1
                hit = True
        counted += hit
    record_property("lives", lives)
    record_property("deaths in the gap", {str(cell): count for cell, count in deaths.items()})
    family.finish()
    for subject in family.subjects:
        assert subject.incomplete(subject.remains()) == ""
