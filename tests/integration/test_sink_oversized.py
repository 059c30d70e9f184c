"""Batches that one transaction cannot carry, and batches that go to several tables in one."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.classic.dataframe import DataFrame

from tests.flows import AGGREGATION, STATELESS, differences, ledger_entries, passed_on
from tests.integration.streams import QUICK, Broken, Heard, counted, finish
from tests.tiers import first_of
from yt_exactly_once import Event, Target, TransactionalSink

SPLIT = {"split_oversized": True, "rows_per_tablet_limit": 1_500, "dyn_batch_size": 500}


def broken_after_parts(flow, count):
    """Break a run off when so many parts of the first batch are committed."""
    left = [count]

    def break_off(event, _fields):
        left[0] -= event == Event.TRANSACTION_COMMITTED
        if not left[0]:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        flow.run(break_off, **SPLIT)


@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_oversized_batch_is_written_in_parts_on_request(stream, is_sorted):
    """All rows once, and the consumer moved with the last part."""
    flow = stream(rows=8_000, rows_per_partition=4_000, is_sorted=is_sorted)
    told = flow.run(**SPLIT)
    assert told.count(Event.BATCH_COMMITTED) == 2
    assert told.count(Event.TRANSACTION_COMMITTED) == 2 * (8 if is_sorted else 3)
    flow.assert_exact()


@pytest.mark.nightly  # drivers are killed between parts every time
@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_split_batch_broken_off_between_its_parts_is_completed(stream, is_sorted):
    """The replay leaves out what is there, and the consumer had not moved before."""
    options = {} if is_sorted else {"digest": True}
    flow = stream(rows=8_000, rows_per_partition=4_000, is_sorted=is_sorted, options=options)
    parts = 8 if is_sorted else 3
    broken_after_parts(flow, 2)
    assert flow.queue.stored() == {}
    assert 0 < len(flow.found()) < 12_000
    told = flow.run(**SPLIT)
    assert told.count(Event.TRANSACTION_COMMITTED) == 2 * parts - 2
    flow.assert_exact()


@pytest.mark.nightly
def test_split_batch_that_is_replayed_differently_is_refused(stream):
    """Parts that were cut otherwise would leave rows out or double them."""
    flow = stream(rows=4_000, rows_per_partition=4_000)
    broken_after_parts(flow, 1)
    before = flow.found()
    text = flow.fail("LedgerDivergedError", **SPLIT | {"dyn_batch_size": 499})
    assert "dyn_batch_size" in text
    assert flow.found() == before
    flow.run(**SPLIT)
    flow.assert_exact()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changed",
    first_of([{"mode": "at-least-once"}, {"mode": "idempotent"}, {}]),
    ids=lambda changed: changed.get("mode", "in one part"),
)
def test_batch_begun_in_parts_is_not_started_in_another_way(stream, changed):
    """In another mode its tasks would write the parts that are there again."""
    flow = stream(rows=4_000, rows_per_partition=4_000)
    broken_after_parts(flow, 1)
    before = flow.found()
    assert "split_oversized=True" in flow.fail(
        "ConfigError", **SPLIT | {"split_oversized": False} | changed
    )
    assert flow.found() == before
    flow.run(**SPLIT)
    flow.assert_exact()


@pytest.mark.nightly
def test_order_of_the_targets_does_not_matter(stream, client, tmp):
    """Given otherwise after a restart, they have the same ledger, and a replay is found in it."""
    flow = stream(AGGREGATION, rows=500, is_sorted=True)
    other = AGGREGATION.create_target(client, f"{tmp}/another", is_sorted=True)
    proxy = flow.cluster.proxy_urls[0]
    told = []
    for paths in ((flow.target, other), (other, flow.target)):
        heard = Heard()
        targets = list(paths)
        finish(flow.start(TransactionalSink(targets, proxy=proxy, listener=heard, retry=QUICK)))
        flow.forget_last_batch()
        told.append(heard)
    assert [fields["reason"] for fields in told[1].of(Event.BATCH_SKIPPED)] == ["replay"]
    assert told[1].count(Event.TRANSACTION_STARTED) == 0
    assert client.exists(f"{other}_ledger")
    assert not client.exists(flow.ledger)


@pytest.mark.nightly
def test_several_targets_are_written_together(stream, client, tmp):
    """Rows and totals of the batch come with one commit, and a replay changes neither."""
    flow = stream(rows=6_000)
    totals = AGGREGATION.create_target(client, f"{tmp}/totals", is_sorted=True)

    def run(act=None):
        heard = Heard(act=act)
        targets = [
            flow.target,
            Target(totals, transform=per_batch),
        ]
        proxy = flow.cluster.proxy_urls[0]
        finish(flow.start(TransactionalSink(targets, proxy=proxy, listener=heard, retry=QUICK)))
        return heard

    def per_batch(frame):
        return (
            frame.groupBy((frame["row"] / 1_000).cast("bigint").alias("key"))
            .agg({"id": "count", "value": "sum"})
            .selectExpr("key", "`count(id)` as n", "`sum(value)` as total")
        )

    def break_off(event, fields):
        if event == Event.TRANSACTION_COMMITTED and fields["batch"] == 2:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        run(break_off)
    assert len(ledger_entries(client, flow.ledger)) == 2
    run()
    flow.forget_last_batch()
    told = run()
    assert told.count(Event.TRANSACTION_STARTED) == 0
    assert flow.wrong() == ""
    values = [
        sum(row[4] for row in passed_on(flow.queue) if row[1] // 1_000 == key) for key in range(6)
    ]
    expected = [(key, 3_000, value, None) for key, value in enumerate(values)]
    assert differences(AGGREGATION.found(client, totals), expected) == ""
    assert {entry.batch_id for entry in ledger_entries(client, flow.ledger)} == {5}
    assert STATELESS.found(client, flow.target) == sorted(passed_on(flow.queue))


@pytest.mark.nightly
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "not kept would be noticed"])
def test_frame_of_several_targets_is_evaluated_once(stream, spark, monkeypatch, is_kept):
    """However many targets there are; a second evaluation would commit Spark's state twice."""
    change, seen = counted(spark)
    flow = stream(rows=500, change=change)
    other = STATELESS.create_target(flow.client, f"{flow.target}_too", is_sorted=True)
    if not is_kept:
        monkeypatch.setattr(DataFrame, "localCheckpoint", lambda frame, **_: frame)
    targets = [flow.target, other]
    proxy = flow.cluster.proxy_urls[0]
    finish(flow.start(TransactionalSink(targets, proxy=proxy, retry=QUICK)))
    assert seen.value == (1_500 if is_kept else 3_000)
    assert flow.wrong() == ""
    assert STATELESS.found(flow.client, other) == sorted(passed_on(flow.queue))
