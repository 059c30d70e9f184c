"""Protections switched off in a driver that takes over from one that was killed: the damage shows.

Every protection has such a test in one Spark session, in tests/integration; here the driver really died.
The damage that only `ledger_row` prevents takes a driver that wakes up, see test_zombies.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell

if TYPE_CHECKING:
    from tests.crash.harness.lives import Life, Lineage, Subject

pytestmark = pytest.mark.nightly

BATCH = 1
ROWS, ROWS_PER_PARTITION, PARTITIONS = 900, 300, 3
OF_A_BATCH = PARTITIONS * ROWS_PER_PARTITION
SIZE = {"rows": ROWS, "rows_per_partition": ROWS_PER_PARTITION, "partitions": PARTITIONS}

STATELESS = Cell("stateless", is_sorted=False)
TOTALS = Cell("aggregation", is_sorted=True)


def live_on(family: Lineage, subject: Subject, off: str) -> Life:
    """Let one query live on without a protection."""
    with family.start([subject.plan], off=off) as life:
        life.listen()
    return life


@pytest.fixture(scope="module")
def killed(lineage) -> Lineage:
    """Two queries killed when the cluster had a batch and Spark had not noted it."""
    family: Lineage = lineage(
        STATELESS, TOTALS, rows=ROWS, rows_per_partition=ROWS_PER_PARTITION, partitions=PARTITIONS
    )
    family.die(CrashPoint.SINK_RETURNED, BATCH)
    return family


@pytest.mark.timeout(300)
def test_ledger_look_up_off_doubles_the_batch_that_spark_replays(killed):
    """The replay is written once more."""
    subject = killed.subjects[0]
    live_on(killed, subject, "ledger_look_up")
    wrong = subject.incomplete(subject.remains())
    assert wrong.startswith(f"0 lost, e.g. []; {OF_A_BATCH} too many")


@pytest.mark.timeout(300)
def test_early_look_up_off_is_covered_by_the_check_inside_the_transaction(lineage):
    """The replay is recognised there, and nothing is written."""
    family: Lineage = lineage(
        STATELESS, rows=ROWS, rows_per_partition=ROWS_PER_PARTITION, partitions=PARTITIONS
    )
    family.die(CrashPoint.SINK_RETURNED, BATCH)
    (subject,) = family.subjects
    live_on(family, subject, "early_look_up")
    assert subject.incomplete(subject.remains()) == ""


@pytest.mark.timeout(300)
def test_state_evaluation_off_stops_the_query_after_a_replay(killed):
    """Spark has no state to go on with."""
    subject = killed.subjects[1]
    life = live_on(killed, subject, "state_evaluation")
    assert "STATE_STORE" in life.error_of(subject.plan.target)


@pytest.mark.timeout(300)
def test_trim_guard_off_loses_the_rows_that_a_replay_needs(lineage):
    """The queue has trimmed them, since its vital consumer had passed."""
    family: Lineage = lineage(
        TOTALS, rows=ROWS, rows_per_partition=ROWS_PER_PARTITION, partitions=PARTITIONS
    )
    (subject,) = family.subjects
    family.end([subject.dying(CrashPoint.SINK_RETURNED, BATCH)], off="trim_guard")
    for partition, offset in subject.remains().stored.items():
        subject.client.trim_rows(subject.queue.path, partition, offset)
    with family.start([subject.plan]) as life:
        assert life.listen() == "failed"
    assert "DataLossError" in life.error


@pytest.mark.timeout(300)
def test_compare_and_set_off_lets_two_queries_take_the_same_rows(lineage):
    """While one was dead, the other one has read on through its consumer."""
    family: Lineage = lineage(
        STATELESS, Cell("stateless", is_sorted=True), rows=ROWS, rows_per_partition=300
    )
    subject, rival = family.subjects
    family.end([subject.dying(CrashPoint.SINK_RETURNED, BATCH)])
    rival.plan = rival.plan_with(consumer=subject.plan.consumer)
    with family.start([rival.plan]) as life:
        assert life.listen() == "finished", life.error
    live_on(family, subject, "compare_and_set")
    both = set(subject.remains().rows) & set(rival.remains().rows)
    assert len(both) == OF_A_BATCH


@pytest.mark.timeout(300)
def test_producer_sessions_off_double_the_rows_of_a_batch_that_was_not_recorded(lineage):
    """The tasks write the rows that are there once more."""
    family: Lineage = lineage(
        STATELESS._replace(mode="idempotent"), rows=ROWS, rows_per_partition=ROWS_PER_PARTITION
    )
    (subject,) = family.subjects
    family.end([subject.dying(CrashPoint.BATCH_COMPUTED, BATCH)], off="producer_sessions")
    live_on(family, subject, "producer_sessions")
    wrong = subject.incomplete(subject.remains())
    assert wrong.startswith(f"0 lost, e.g. []; {OF_A_BATCH} too many")
