"""Drivers killed while source and sink speak RPC, through YTsaurus's own C++ driver.

A part of the crash matrix: the same lives and the same judge as over HTTP. The driver keeps transactions
and their modifications in its own process, so what dies with it is another part of the work.
"""

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell

pytest.importorskip("yt_driver_rpc_bindings")

ROWS_PER_PARTITION = 200
DEATHS = (CrashPoint.BATCH_COMPUTED, CrashPoint.COMMIT_OUTCOME_UNKNOWN, CrashPoint.SINK_RETURNED)
CELLS = (
    Cell("aggregation", is_sorted=True),
    Cell("stateless", is_sorted=False, mode="idempotent"),
    Cell("stateless", is_sorted=False),
    Cell("dedup", is_sorted=False),
)


@pytest.mark.nightly  # kills over HTTP and lost commits over RPC run every time
@pytest.mark.timeout(900)
def test_queries_killed_over_rpc_end_exactly_right(lineage, cluster):
    """Each death in a later batch of the same checkpoints; nothing is lost, doubled or wrong."""
    family = lineage(
        *CELLS, rows=(len(DEATHS) + 2) * ROWS_PER_PARTITION, rows_per_partition=ROWS_PER_PARTITION
    )
    for subject in family.subjects:
        subject.plan = subject.plan_with(backend="rpc")
    before = cluster.request_counts()
    for batch, point in enumerate(DEATHS, start=1):
        left = family.die(point, batch)
        cluster.clear_faults()
        for subject, remains in zip(family.subjects, left, strict=True):
            if subject.cell.mode == "transactional":
                assert subject.wrong(remains) == "", (subject.cell, point)
    family.finish()
    for subject in family.subjects:
        assert subject.incomplete(subject.remains()) == "", subject.cell
    counts = cluster.request_counts() - before
    assert counts["/rpc/CommitTransaction"]
    assert not any(name.startswith(("/api/v4/pull_", "/api/v4/push_")) for name in counts)
