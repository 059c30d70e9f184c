"""What the options of a sink change, and what they must not show."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import STATELESS, differences, passed_on
from tests.integration.streams import Heard, finish
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.sink.options import DYN_BATCH_SIZE_CONF

pytestmark = pytest.mark.further

TOKEN = "a-token-nobody-may-see"


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


@pytest.mark.parametrize("is_sorted", first_of([False, True]), ids=["ordered", "sorted"])
def test_batch_too_large_for_one_transaction_is_refused_with_numbers(stream, is_sorted):
    """Before anything is sent; with smaller batches or more tablets it would pass."""
    flow = stream(rows=2_000, rows_per_partition=2_000, is_sorted=is_sorted)
    text = flow.fail("BatchTooLargeError", rows_per_tablet_limit=1_500)
    rows, takes = (6_000, "1 tablets") if is_sorted else (2_000, "tablet 0")
    assert f"{rows} rows for {takes}, and one transaction takes 1500 rows per tablet" in text
    assert "max_rows_per_partition" in text
    flow.assert_untouched()


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
