"""What the options of a sink change, and what they must not show."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, STATELESS, differences, passed_on
from tests.integration.streams import Heard, finish
from tests.protections import switch_off
from tests.tiers import NIGHTLY, first_of
from yt_exactly_once import Event, TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.sink.options import DYN_BATCH_SIZE_CONF

pytestmark = pytest.mark.further

TOKEN = "a-token-nobody-may-see"
ONE, TWO, THREE = "at-least-once", "transactional", "idempotent"
CHANGES = (ONE, TWO, THREE, ONE, THREE, TWO, ONE) if NIGHTLY else (ONE, THREE, TWO)
"""In the night every mode comes after every other one."""


def inserts(faults, path):
    """Count the insert requests for a table from now on; call the result to know."""
    faults.inject("delay", "insert_rows", match={"path": path}, count=None)

    def seen():
        (rule,) = [rule for rule in faults.faults() if rule["match"] == {"path": path}]
        return rule["hits"]

    return seen


def test_rows_per_request_follow_the_spark_conf(stream, faults, spark):
    """SPYT's name for it is honoured where the argument is absent."""
    flow = stream(rows=1_000)
    seen = inserts(faults, flow.target)
    spark.conf.set(DYN_BATCH_SIZE_CONF, "100")
    try:
        flow.run()
    finally:
        spark.conf.unset(DYN_BATCH_SIZE_CONF)
    probes = 1
    assert seen() == 30 + probes
    flow.assert_exact()


@pytest.mark.nightly
def test_rows_per_request_follow_the_argument_before_the_conf(stream, faults, spark):
    """The argument wins."""
    flow = stream(rows=1_000)
    seen = inserts(faults, flow.target)
    spark.conf.set(DYN_BATCH_SIZE_CONF, "100")
    try:
        flow.run(dyn_batch_size=500)
    finally:
        spark.conf.unset(DYN_BATCH_SIZE_CONF)
    probes = 1
    assert seen() == 6 + probes


@pytest.mark.nightly
def test_malformed_conf_stops_the_query(stream, spark):
    """It names the conf."""
    flow = stream(rows=10)
    spark.conf.set(DYN_BATCH_SIZE_CONF, "many")
    try:
        assert DYN_BATCH_SIZE_CONF in flow.fail("ConfigError")
    finally:
        spark.conf.unset(DYN_BATCH_SIZE_CONF)
    flow.assert_untouched()


@pytest.mark.nightly
@pytest.mark.parametrize("wire", first_of(["yson", "arrow"]))
@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_both_wire_formats_deliver_the_same(stream, wire, is_sorted):
    """Rows do not depend on how they travel."""
    flow = stream(is_sorted=is_sorted, rows=3_000)
    flow.run(wire_format=wire)
    flow.assert_exact()


@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_batch_too_large_for_one_transaction_is_refused_with_numbers(stream, is_sorted):
    """Before anything is sent; with smaller batches or more tablets it would pass."""
    flow = stream(rows=2_000, rows_per_partition=2_000, is_sorted=is_sorted)
    text = flow.fail("BatchTooLargeError", rows_per_tablet_limit=1_500)
    rows, takes = (6_000, "1 tablets") if is_sorted else (2_000, "tablet 0")
    assert f"{rows} rows for {takes}, and one transaction takes 1500 rows per tablet" in text
    assert "max_rows_per_partition" in text
    flow.assert_untouched()


@pytest.mark.nightly
def test_room_check_off_is_noticed(stream, monkeypatch):
    """The cluster refuses the commit only after it has taken all the rows."""
    flow = stream(partitions=1, rows=100_001, rows_per_partition=200_000)
    switch_off("room_check", monkeypatch.setattr)
    assert "Could not commit" in flow.fail("BatchTooLargeError")
    flow.assert_untouched()


@pytest.mark.nightly
def test_mode_may_change_on_one_checkpoint(stream):
    """The ledger is written in every mode, so the next one knows where to go on."""
    flow = stream(rows=1_500)
    for mode in CHANGES:
        told = flow.run(mode=mode)
        assert told.count(Event.BATCH_COMMITTED) == 2
        flow.assert_exact()
        flow.forget_last_batch()
        for partition in range(3):
            flow.queue.append(1_500, partition)


@pytest.mark.nightly
def test_columns_of_other_writers_are_kept_on_request(stream, client):
    """`update_columns` leaves what the frame does not have."""
    flow = stream(AGGREGATION, is_sorted=True, rows=300)
    keys = sorted({row["key"] for row in flow.queue.all_rows()})
    client.insert_rows(
        flow.target, [{"key": key, "n": 0, "total": -1, "latest": -7} for key in keys]
    )
    heard = Heard()
    frame = flow.frame().drop("latest")
    finish(
        frame.writeStream.foreachBatch(flow.sink(heard, update_columns=True))
        .outputMode("update")
        .option("checkpointLocation", str(flow.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    expected = AGGREGATION.must_hold(flow.queue, 1_000, is_sorted=True)
    assert flow.found() == [(key, n, total, -7) for key, n, total, _ in expected]


@pytest.mark.nightly
def test_update_columns_on_an_ordered_target_is_refused(stream):
    """There is no row to update."""
    flow = stream(rows=10)
    assert "needs a sorted target" in flow.fail("ConfigError", update_columns=True)
    flow.assert_untouched()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("write", "is_sorted"), [("upsert", False), ("append", True)], ids=["upsert", "append"]
)
def test_write_for_the_other_kind_of_target_is_refused(stream, write, is_sorted):
    """Each kind has one way, which is the default."""
    flow = stream(rows=10, is_sorted=is_sorted)
    here, there = ("sorted", "ordered") if is_sorted else ("ordered", "sorted")
    told = flow.fail("ConfigError", write=write)
    assert f"write='{write}' is for {there} targets, this one is {here}" in told
    flow.assert_untouched()
    flow.run(write="append" if write == "upsert" else "upsert")
    flow.assert_exact()


@pytest.mark.nightly
def test_ledger_goes_where_it_is_told_and_how(stream, client, tmp):
    """Created on first use, with the attributes asked for."""
    flow = stream(rows=1_000)
    path = f"{tmp}/ledgers/of_mine"
    flow.run(ledger_path=path, ledger_attributes={"in_memory_mode": "uncompressed"})
    assert not client.exists(flow.ledger)
    assert client.get(f"{path}/@in_memory_mode") == "uncompressed"
    assert client.get(f"{path}/@tablet_state") == "mounted"


@pytest.mark.nightly
def test_pickled_sink_delivers(stream):
    """A sink travels as configuration; this one has been to another place and back, twice."""
    flow = stream(rows=2_000)
    sink = pickle.loads(pickle.dumps(flow.sink()))
    finish(flow.start(sink))
    sink = pickle.loads(pickle.dumps(sink))
    flow.queue.append(500)
    finish(flow.start(sink))
    flow.assert_exact()


def test_token_shows_nowhere(stream):
    """Neither in the sink, nor in events, plans, errors or what Spark keeps of the query."""
    with LocalCluster(proxies=1, token=TOKEN) as guarded:
        client = guarded.client()
        target = STATELESS.create_target(client, "//tmp/target", is_sorted=False)
        heard = Heard()
        # The consumer is on the other cluster.
        where = {"proxy": guarded.proxy_urls[0], "advance_consumer": False, "listener": heard}
        sink = TransactionalSink(target, token=TOKEN, **where)
        plans = []
        flow = stream(rows=500)

        def write(frame, batch_id):
            plans.append(frame._jdf.queryExecution().toString())
            sink(frame, batch_id)

        finish(flow.start(write))
        assert differences(STATELESS.found(client, target), sorted(passed_on(flow.queue))) == ""
        wrong = TransactionalSink(target, token=f"{TOKEN}-but-wrong", **where)
        flow.queue.append(100)
        with pytest.raises(StreamingQueryException) as caught:
            finish(flow.start(wrong))
    checkpoint = [
        file.read_text(errors="replace") for file in flow.checkpoint.rglob("*") if file.is_file()
    ]
    shown = [
        repr(sink),
        repr(vars(sink)),
        str(caught.value),
        *plans,
        *checkpoint,
        json.dumps(heard.events),
    ]
    assert not [text for text in shown if TOKEN in text]
