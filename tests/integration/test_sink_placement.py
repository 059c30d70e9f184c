"""Ordered targets: which tablet takes a row, in which order, also when a batch is replayed."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.flows import PARTITION_COLUMN, STATELESS
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once import Event, Target, TransactionalSink

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


@pytest.mark.nightly
def test_one_spark_partition_goes_to_one_tablet_by_default(flow):
    """In transactional mode, where nothing else is known."""
    run(flow)
    assert set(by_tablet(flow)) == {0}


@pytest.mark.nightly
@pytest.mark.parametrize("mode", first_of(["transactional", "at-least-once"]))
def test_batches_of_one_spark_partition_take_turns(stream, mode):
    """Where queue partitions share a task; otherwise the first tablet would get all rows."""
    flow = stream(rows=60, rows_per_partition=20)
    flow.shared_task_rows = 60
    flow.build = flow.frame
    run(flow, mode=mode)
    found = by_tablet(flow)
    once = {0: 60, 1: 60, 2: 60}
    assert {tablet: len(rows) for tablet, rows in found.items()} == once
    for rows in found.values():
        assert_in_order(rows)


@pytest.mark.parametrize("mode", first_of(MODES))
def test_rows_keep_the_tablet_they_had_in_the_queue(flow, mode):
    """And the order: the target is a copy of the queue."""
    run(flow, placement="preserve", mode=mode)
    for tablet, rows in by_tablet(flow).items():
        assert [(row["part"], row["row"]) for row in rows] == [(tablet, i) for i in range(600)]


@pytest.mark.nightly
@pytest.mark.parametrize("mode", first_of(MODES))
def test_rows_of_one_spark_partition_go_round(flow, mode):
    """Every tablet gets as many."""
    run(flow, placement="round_robin", mode=mode)
    found = by_tablet(flow)
    assert [len(found[tablet]) for tablet in range(3)] == [600, 600, 600]
    for rows in found.values():
        assert_in_order(rows)


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


@pytest.mark.nightly
def test_split_batch_keeps_tablets_and_order(flow):
    """The parts are cut tablet by tablet."""
    run(flow, placement="preserve", split_oversized=True, rows_per_tablet_limit=150)
    for tablet, rows in by_tablet(flow).items():
        assert [(row["part"], row["row"]) for row in rows] == [(tablet, i) for i in range(600)]


@pytest.mark.nightly
def test_room_is_counted_by_tablet(flow):
    """All rows of one Spark partition fit when they are spread."""
    flow.change = lambda frame: frame.coalesce(1)
    options = {"rows_per_tablet_limit": 400}
    flow.fail("BatchTooLargeError", **options)
    told = flow.run(placement="round_robin", **options)
    assert told.count(Event.BATCH_COMMITTED) == 2


@pytest.mark.nightly
def test_placement_of_one_target_of_several(flow, client, tmp):
    """Each Target has its own."""
    other = STATELESS.create_target(client, f"{tmp}/other", is_sorted=False)
    targets = [Target(flow.target, placement="preserve"), other]
    sink = TransactionalSink(targets, proxy=flow.cluster.proxy_urls[0])
    finish(
        flow.build()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(flow.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert flow.wrong() == ""
    assert {tablet: len(rows) for tablet, rows in by_tablet(flow).items()} == dict.fromkeys(
        range(3), 600
    )


@pytest.mark.nightly
def test_fewer_tablets_than_queue_partitions_are_refused(stream):
    """To put two queue partitions into one tablet is not to preserve."""
    flow = stream(rows=20, tablets=2)
    flow.build = lambda: flow.frame().selectExpr("*", f"part as {PARTITION_COLUMN}")
    with pytest.raises(Exception, match="queue partition 2, and the target has 2 tablets"):
        run(flow, placement="preserve")
    flow.assert_untouched()


@pytest.mark.parametrize(
    ("placement", "message"),
    first_of(
        [
            ("preserve", "include_service_columns=true"),
            (["nobody"], "the DataFrame's column nobody"),
        ]
    ),
)
def test_placement_by_a_missing_column_is_refused(stream, placement, message):
    """Before the first row."""
    flow = stream(rows=10)
    assert message in flow.fail("ConfigError", placement=placement)
    flow.assert_untouched()


def test_placement_in_a_sorted_target_is_refused(stream):
    """Keys choose the tablets."""
    flow = stream(rows=10, is_sorted=True)
    assert "keys choose the tablets" in flow.fail("ConfigError", placement="round_robin")
    flow.assert_untouched()


@pytest.mark.nightly
def test_target_with_fewer_tablets_in_mid_run_is_named_and_written_after_a_restart(stream):
    """The rows of the batch were placed in tablets that are gone."""
    flow = stream(rows=600, rows_per_partition=300)

    def merge_tablets(event, _):
        if event == Event.BATCH_COMMITTED and flow.client.get(f"{flow.target}/@tablet_count") > 1:
            flow.client.unmount_table(flow.target, sync=True)
            flow.client.reshard_table(flow.target, tablet_count=1, sync=True)
            flow.client.mount_table(flow.target, sync=True)

    text = flow.fail("RequestRefusedError", act=merge_tablets)
    assert "has changed its columns or tablets" in text
    assert "Start the query again" in text
    flow.run()
    assert flow.wrong() == ""
