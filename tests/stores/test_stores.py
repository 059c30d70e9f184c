"""Checkpoints on S3 and HDFS: replays, notes, two drivers, and a driver that dies within a rename."""

import os
import signal

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell, Fate, Lineage, stop, wake
from tests.crash.test_zombies import assert_replaced
from yt_exactly_once.testing.life import Life

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.further, pytest.mark.timeout(1800)]

CELLS = (
    Cell("aggregation", is_sorted=True),
    Cell("stateless", is_sorted=False),
    Cell("stateless", is_sorted=False, mode="idempotent"),
)
DEATHS = (CrashPoint.BATCH_COMPUTED, CrashPoint.LEDGER_RECORDED, CrashPoint.TRANSACTION_COMMITTED)


@pytest.fixture(params=["s3", "hdfs"])
def store(request):
    return request.getfixturevalue(f"on_{request.param}")


def assert_exact(family: Lineage) -> None:
    for subject in family.subjects:
        assert subject.incomplete(subject.remains()) == "", subject.cell


def test_killed_drivers_lose_and_double_no_row(family, store):
    """One at each point, in a later batch of the same checkpoints; the notes are there, too."""
    queries = family(store, *CELLS, batches=len(DEATHS) + 2)
    for batch, point in enumerate(DEATHS, start=1):
        for subject, left in zip(queries.subjects, queries.die(point, batch), strict=True):
            if subject.cell.mode == "transactional":
                assert subject.wrong(left) == "", (subject.cell, point)
    told = queries.finish()
    assert "notes.missing" not in {one["event"] for events in told for one in events}
    assert_exact(queries)


@pytest.mark.nightly
def test_driver_that_was_replaced_writes_nothing(family, store):
    """It stops with its rows in an open transaction, another one finishes, and it wakes up."""
    queries = family(store, *CELLS[:2], batches=4)
    fate = Fate(CrashPoint.LEDGER_RECORDED, 2)
    with queries.held((subject, fate) for subject in queries.subjects) as zombie:
        stop(zombie)
        queries.finish()
        wake(zombie)
    for subject in queries.subjects:
        assert_replaced(zombie.errors[subject.trial.name])
    assert_exact(queries)
    queries.finish()
    assert_exact(queries)


@pytest.mark.nightly
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("folder", ["offsets", "commits", "state"])
def test_driver_that_dies_within_a_rename_on_s3(family, on_s3, folder, is_done):
    """S3 has no rename: the file is there under one name, or under both."""
    queries = family(on_s3, CELLS[0], batches=4)
    killed = []

    def die(key: str, was_made: bool) -> bool:
        wanted = f"/{folder}/" in key and (folder == "state" or key.endswith("/2"))
        if wanted and was_made is is_done and not killed:
            os.killpg(life.pid, signal.SIGKILL)
            killed.append(key)
        return not killed

    (subject,) = queries.subjects
    with Life(queries.folder, {}) as life:
        on_s3.on_rename = die
        life.start(subject.trial, subject.job())
        life.wait(lambda: bool(killed))
        on_s3.on_rename = lambda _key, _is_done: True
    assert subject.wrong(subject.remains()) == ""
    queries.finish()
    assert_exact(queries)
