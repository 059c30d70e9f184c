"""A batch of a quarter of a million rows into a target of one tablet, at the server's real limit.

Refused at first, then written in parts by drivers that are killed inside a part and between two of them,
all on one checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell

if TYPE_CHECKING:
    from tests.crash.harness.lives import Life, Lineage, Remains

# test_crash_points.py kills inside and between smaller parts.
pytestmark = pytest.mark.nightly

ROWS = 250_000
ROWS_PER_PART = 100_000
PARTS = 3

DEATHS = [
    # Where, and how many parts are there then.
    (CrashPoint.ROWS_WRITTEN, 0),
    (CrashPoint.PART_COMMITTED, 1),
    (CrashPoint.ROWS_WRITTEN, 1),
    (CrashPoint.PART_COMMITTED, 2),
    (CrashPoint.LEDGER_RECORDED, 2),
]

CELLS = [Cell("stateless", is_sorted=False), Cell("stateless", is_sorted=True)]
REFUSED = {False: "250000 rows for tablet 0", True: "250000 rows for 1 tablets"}


@dataclass
class History:
    """Queries that have run, one for each kind of target.

    Attributes:
        family: the queries.
        refusal: the life that did not ask for parts.
        refused: what it left behind, per query.
        left: what every death left behind, per query.
        final: what the last life left behind, per query.
    """

    family: Lineage
    refusal: Life
    refused: list[Remains]
    left: list[list[Remains]]
    final: list[Remains]


@pytest.fixture(scope="module")
def history(lineage) -> History:
    """Run the batch as it is, then in parts with a death after the other, then to the end."""
    family: Lineage = lineage(*CELLS, rows=ROWS, rows_per_partition=ROWS, partitions=1)
    with family.start([subject.plan for subject in family.subjects]) as refusal:
        assert refusal.listen() == "failed"
    refused = [subject.remains() for subject in family.subjects]
    for subject in family.subjects:
        subject.plan = subject.plan_with(options={"split_oversized": True})
    left = [family.die(point, 0) for point, _ in DEATHS]
    family.finish()
    return History(
        family, refusal, refused, left, [subject.remains() for subject in family.subjects]
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", range(len(CELLS)), ids=map(str, CELLS))
def test_quarter_of_a_million_rows_into_one_tablet_are_refused(history, which):
    """With the numbers and both remedies, and nothing is written."""
    error = history.refusal.error_of(history.family.subjects[which].plan.target)
    assert "yt_exactly_once.errors.BatchTooLargeError" in error
    assert REFUSED[CELLS[which].is_sorted] in error
    assert f"one transaction takes {ROWS_PER_PART} rows per tablet" in error
    assert "split_oversized=True" in error
    assert "reshard-table" in error
    left = history.refused[which]
    assert (left.rows, left.entry, left.stored) == ([], None, {})


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", range(len(CELLS)), ids=map(str, CELLS))
@pytest.mark.parametrize(
    "death", range(len(DEATHS)), ids=[f"{point.name.lower()}-{there}" for point, there in DEATHS]
)
def test_batch_in_parts_killed_on_its_way_is_there_up_to_a_part(history, death, which):
    """Whole parts in their order, and a consumer that has not moved."""
    left, there = history.left[death][which], DEATHS[death][1]
    whole = history.family.subjects[which].told(0)
    assert left.rows == sorted(whole)[: there * ROWS_PER_PART]
    assert left.stored == {}
    if there:
        assert (left.entry.part, left.entry.part_count) == (there, PARTS)
    else:
        assert left.entry is None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", range(len(CELLS)), ids=map(str, CELLS))
def test_batch_in_parts_is_there_once_in_the_end(history, which):
    """After the refusal and all the deaths, on the same checkpoint."""
    subject, left = history.family.subjects[which], history.final[which]
    assert subject.incomplete(left) == ""
    assert (left.entry.part, left.entry.part_count) == (PARTS, PARTS)
    assert left.stored == subject.queue.ends()
