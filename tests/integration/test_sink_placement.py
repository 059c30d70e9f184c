"""Ordered targets: which tablet takes a row, in which order, also when a batch is replayed."""

from collections import defaultdict

import pytest

from tests.flows import PARTITION_COLUMN
from tests.integration.streams import finish
from tests.tiers import first_of

MODES = ["transactional", "at-least-once", "idempotent"]


@pytest.fixture
def flow(stream):
    """Rows of three queue partitions, in one Spark partition; the frame keeps the service column."""
    flow = stream(rows=600, rows_per_partition=400)
    flow.build = lambda: flow.frame().selectExpr("*", f"part as {PARTITION_COLUMN}").coalesce(1)
    return flow


def run(flow, **options):
    """Run to the end of the queue, and once more with the last batch forgotten."""
    for replayed in (False, True):
        if replayed:
            flow.forget_last_batch()
        finish(
            flow.build()
            .writeStream.foreachBatch(flow.sink(**options))
            .option("checkpointLocation", str(flow.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        flow.assert_exact()


def by_tablet(flow):
    """Return the rows of every tablet, in their order there."""
    rows = flow.client.select_rows(
        f"[$tablet_index] as tablet, [$row_index] as index, part, row, key from [{flow.target}]"
    )
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["tablet"], row["index"])):
        found[row["tablet"]].append(row)
    return found


def assert_in_order(rows):
    """Rows of one queue partition come in the order they had there."""
    for partition in range(3):
        indexes = [row["row"] for row in rows if row["part"] == partition]
        assert indexes == sorted(indexes)


@pytest.mark.parametrize("mode", first_of(MODES))
def test_rows_keep_the_tablet_they_had_in_the_queue(flow, mode):
    """And the order: the target is a copy of the queue."""
    run(flow, placement="preserve", mode=mode)
    for tablet, rows in by_tablet(flow).items():
        assert [(row["part"], row["row"]) for row in rows] == [(tablet, i) for i in range(600)]


@pytest.mark.further
@pytest.mark.parametrize("mode", first_of(MODES))
def test_rows_of_one_key_go_to_one_tablet(flow, mode):
    """By the hash of the columns named."""
    run(flow, placement=["key"], mode=mode)
    found = by_tablet(flow)
    keys = [{row["key"] for row in rows} for rows in found.values()]
    assert len(found) == 3
    assert sum(map(len, keys)) == len(set.union(*keys))
    for rows in found.values():
        assert_in_order(rows)
