"""What everybody else sees while drivers and proxies die: whole batches, never a part of one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from yt.packages.requests.exceptions import RequestException

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell

if TYPE_CHECKING:
    from tests.crash.harness.lives import Subject

# The chaos runner has such a reader too.
pytestmark = pytest.mark.nightly

ROWS_PER_PARTITION, PARTITIONS = 400, 3
BATCHES = 30
DRIVER_DIES_IN = (4, 9)
PROXIES_DIE = (1, 0, 1, 0)
WHOLE = ROWS_PER_PARTITION * PARTITIONS


class Reader(threading.Thread):
    """Looks at a target again and again, and keeps what it saw of each batch.

    Args:
        subject: whose target; row r of a partition belongs to batch r // ROWS_PER_PARTITION.
    """

    def __init__(self, subject: Subject, client) -> None:
        super().__init__(daemon=True)
        self.looks = 0
        self.partial: list[dict[int, int]] = []
        self.growth: list[int] = []
        self.error: BaseException | None = None
        self._subject = subject
        self._client = client
        self._stop_looking = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_looking.wait(0.01):
                self._look()
        except BaseException as error:
            self.error = error
            raise

    def _look(self) -> None:
        try:
            # The client asks again for an answer that does not begin; a proxy may die within one.
            rows = list(self._client.select_rows(f"row from [{self._subject.plan.target}]"))
        except RequestException:
            return
        seen = Counter(row["row"] // ROWS_PER_PARTITION for row in rows)
        self.looks += 1
        self.growth.append(len(seen))
        if set(seen.values()) - {WHOLE}:
            self.partial.append(dict(seen))

    def finish(self) -> None:
        """Stop looking."""
        self._stop_looking.set()
        self.join()


@pytest.fixture
def watched(lineage, cluster, request):
    """A query into a sorted target, with a reader beside it."""
    alone = lineage(
        Cell("stateless", is_sorted=True),
        rows=request.param * ROWS_PER_PARTITION,
        rows_per_partition=ROWS_PER_PARTITION,
        partitions=PARTITIONS,
    )
    reader = Reader(alone.subjects[0], cluster.client())
    reader.start()
    yield alone, reader
    reader.finish()
    cluster.clear_faults()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("watched", [BATCHES], indirect=True)
def test_reader_never_sees_a_part_of_a_batch(watched, cluster):
    """While answers get lost, transactions die with their proxies, and drivers are killed."""
    alone, reader = watched
    (subject,) = alone.subjects
    cluster.inject("lose_answer", "insert_rows", count=None, probability=0.05, seed=4)
    cluster.inject("lose_answer", "commit_transaction", count=None, probability=0.1, seed=5)
    first, second = DRIVER_DIES_IN
    alone.die(CrashPoint.ROWS_WRITTEN, first)
    alone.die(CrashPoint.COMMIT_OUTCOME_UNKNOWN, second)
    with alone.start([subject.plan]) as life:
        for proxy in PROXIES_DIE:
            assert life.listen("rows.written", 3) == "rows.written", life.error
            cluster.kill_proxy(proxy)
            if proxy:
                # The other proxy, whose address the driver knows, carries on alone.
                assert life.listen("batch.committed", 2) == "batch.committed", life.error
            cluster.restart_proxy(proxy)
        assert life.listen() == "finished", life.error
    reader.finish()
    assert reader.error is None
    assert reader.partial == []
    assert len(set(reader.growth)) > 10
    assert subject.incomplete(subject.remains()) == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("watched", [6], indirect=True)
def test_partial_batch_would_be_noticed(watched):
    """Rows that tasks write for themselves are seen piece by piece."""
    alone, reader = watched
    (subject,) = alone.subjects
    subject.plan = subject.plan_with(mode="at-least-once", options={"dyn_batch_size": 50})
    with alone.start([subject.plan]) as life:
        assert life.listen() == "finished", life.error
    reader.finish()
    assert reader.partial != []
