"""Batches that one transaction cannot carry, and batches that go to several tables in one."""

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, STATELESS, differences, ledger_entries, passed_on
from tests.integration.streams import QUICK, Heard, finish
from tests.tiers import first_of
from yt_exactly_once import Event, Target, TransactionalSink
from yt_exactly_once.spark.engine import engine
from yt_exactly_once.spark.sink import encode

COMMIT = "commit_transaction"

SPLIT = {"split_oversized": True, "rows_per_tablet_limit": 1_500, "dyn_batch_size": 500}


@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_oversized_batch_is_written_in_parts_on_request(stream, is_sorted):
    """All rows once, and the consumer moved with the last part."""
    flow = stream(rows=8_000, rows_per_partition=4_000, is_sorted=is_sorted)
    told = flow.run(**SPLIT)
    assert told.count(Event.BATCH_COMMITTED) == 2
    assert told.count(Event.TRANSACTION_COMMITTED) == 2 * (8 if is_sorted else 3)
    flow.assert_exact()


@pytest.mark.parametrize(
    ("most", "limit", "retries", "rows"),
    [
        (1_000, 100_000, 0, [6_000, 6_000, 6_000]),
        (40, 100_000, 0, [10_000, 4_000, 4_000]),
        (40, 2_500, 1, [6_000, 6_000, 6_000]),
    ],
)
def test_partitions_that_pass_for_one_are_told_apart_again(
    spark, stream, arrow_rows, client, monkeypatch, most, limit, retries, rows
):
    """Full batches of Arrow do not say where a partition ends. Its rows are numbered once that harms.

    Partitions have 2 000 rows. So the query gets batches of other than round numbers; 40 counts as none.
    """
    monkeypatch.setattr(engine, "SMALL_BATCH", 100)
    flow = stream(rows=6_000, rows_per_partition=2_000)
    arrow_rows(most)
    heard = flow.run(rows_per_tablet_limit=limit)
    assert heard.count(Event.BATCH_COMMITTED) == 3
    assert heard.count(Event.RETRY_SCHEDULED) == retries
    flow.assert_exact()
    tablets = client.get_tablet_infos(flow.target, [0, 1, 2])["tablets"]
    assert [tablet["total_row_count"] for tablet in tablets] == rows
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == str(most)


def test_replay_is_cut_as_before_though_another_sink_of_the_function_skips(
    stream, arrow_rows, faults, monkeypatch
):
    """It goes on behind the parts that are there. The session of the function stays as it was."""
    monkeypatch.setattr(encode, "REQUEST_BYTES", 4_000)
    arrow_rows(100)
    seen, flow = set(), stream(rows=400, rows_per_partition=200)
    split = {"split_oversized": True, "rows_per_tablet_limit": 60}
    other = STATELESS.create_target(flow.client, f"{flow.target}_other", is_sorted=False)

    def start(heard):
        proxy = flow.cluster.proxy_urls[0]
        first = TransactionalSink(other, proxy=proxy, advance_consumer=False, retry=QUICK)
        last = flow.sink(heard, **split)

        def write(frame, number):
            first(frame, number)
            seen.add(frame.sparkSession.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
            last(frame, number)

        return flow.start(write)

    def refuse(event, fields):
        if (event, fields["batch"]) == (Event.TRANSACTION_COMMITTED, 1) and not faults.faults():
            path = flow.target
            faults.inject("error", COMMIT, code=307, message="no", writes_to=path, count=None)

    with pytest.raises(StreamingQueryException, match="no"):
        finish(start(Heard(act=refuse)))
    faults.clear_faults()
    finish(start(None))
    flow.assert_exact()
    found = STATELESS.found(flow.client, other)
    assert differences(found, sorted(passed_on(flow.queue))) == ""
    assert seen == {"100"}


@pytest.mark.nightly
def test_several_targets_are_written_together(stream, client, tmp):
    """Rows and totals of the batch come with one commit, and a replay changes neither."""
    flow = stream(rows=6_000)
    totals = AGGREGATION.create_target(client, f"{tmp}/totals", is_sorted=True)

    def sink(heard=None):
        targets = [flow.target, Target(totals, transform=per_batch)]
        proxy = flow.cluster.proxy_urls[0]
        return TransactionalSink(targets, proxy=proxy, listener=heard, retry=QUICK)

    def per_batch(frame):
        return (
            frame.groupBy((frame["row"] / 1_000).cast("bigint").alias("key"))
            .agg({"id": "count", "value": "sum"})
            .selectExpr("key", "`count(id)` as n", "`sum(value)` as total")
        )

    flow.break_off(sink(), 2)
    assert len(ledger_entries(client, flow.ledger)) == 2
    finish(flow.start(sink()))
    flow.forget_last_batch()
    told = Heard()
    finish(flow.start(sink(told)))
    assert told.count(Event.TRANSACTION_STARTED) == 0
    assert flow.wrong() == ""
    values = [
        sum(row[4] for row in passed_on(flow.queue) if row[1] // 1_000 == key) for key in range(6)
    ]
    expected = [(key, 3_000, value, None) for key, value in enumerate(values)]
    assert differences(AGGREGATION.found(client, totals), expected) == ""
    assert {entry.batch_id for entry in ledger_entries(client, flow.ledger)} == {5}
    assert STATELESS.found(client, flow.target) == sorted(passed_on(flow.queue))


@pytest.mark.further
@pytest.mark.parametrize("size", [50, 300], ids=["small requests", "large requests"])
@pytest.mark.parametrize(
    "options",
    [
        {"sent_by": "driver"},
        {"sent_by": "tasks"},
        {"mode": "at-least-once"},
        {"mode": "idempotent"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_limit_that_is_lowered_in_mid_run_loses_nothing(stream, client, options, size):
    """The batch is refused with the remedy, or goes on in requests that are small enough."""
    flow = stream(rows=900, rows_per_partition=300)

    def lower(event, fields):
        if (event, fields["batch"]) == (Event.BATCH_COMMITTED, 0):
            client.set(f"{flow.target}/@max_rows_per_transaction", 100)
            client.remount_table(flow.target)

    given = options | {"dyn_batch_size": size}
    if "mode" in options and size == 50:
        flow.run(lower, **given)
    else:
        heard = Heard(act=lower)
        with pytest.raises(StreamingQueryException):
            finish(flow.start(flow.sink(heard, **given)))
        (failed,) = heard.of(Event.BATCH_FAILED)
        assert (failed["batch"], failed["reason"]) == (1, "BatchTooLargeError")
        assert "split_oversized=True" in failed["error"]
        mode = options.get("mode", "transactional")
        split = {} if "mode" in options else {"split_oversized": True, "rows_per_tablet_limit": 100}
        flow.run(mode=mode, dyn_batch_size=50, **split)
    flow.assert_exact()
