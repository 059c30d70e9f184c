"""`writeStream.format("yt")`: the protocol of the sink, asked by Spark's own writer interface."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, DEDUP, NUMBERED
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once import register_source
from yt_exactly_once.errors import ConfigError

MODES = ["transactional", "idempotent", "at-least-once"]


@pytest.mark.parametrize("mode", first_of(MODES))
def test_replay_is_skipped_in_every_mode(stream, mode):
    """Spark computes the batch again; the ledger has it."""
    flow = stream(NUMBERED, rows=1_500)
    flow.write(mode=mode, digest=True)
    assert flow.wrong() == ""
    flow.forget_last_batch()
    flow.write(mode=mode, digest=True)
    assert flow.wrong() == ""
    flow.assert_proven()
    assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


@pytest.mark.nightly
@pytest.mark.parametrize("is_sorted", first_of([True, False]))
def test_stateful_query_moves_between_the_format_and_the_function(stream, is_sorted):
    """On one checkpoint, with one ledger, back and forth, with replays on either side."""
    flow = stream(DEDUP, rows=2_000, is_sorted=is_sorted)
    flow.run()
    for run in (flow.write, flow.run, flow.write):
        flow.forget_last_batch()
        for partition in range(3):
            flow.queue.append(1_000, partition)
        run()
        assert flow.wrong() == ""
        assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


def _fail_to_commit(flow, faults, **options):
    """Append rows, and run one batch that pushes them and does not record it."""
    for partition in range(3):
        flow.queue.append(300, partition)
    faults.inject("error", "commit_transaction", code=307, message="Refused", count=None)
    with pytest.raises(StreamingQueryException):
        flow.write(**options)
    faults.clear_faults()


def test_mode_that_returns_in_one_driver_finds_what_the_other_has_pushed(stream, faults):
    """The Python process that planned the batch before this one knows nothing of the run between."""
    flow = stream(NUMBERED, rows=900)
    flow.write(mode="transactional")
    _fail_to_commit(flow, faults, mode="idempotent")
    pushed = len(flow.found())
    flow.fail("ConfigError", by_format=True, mode="transactional")
    assert len(flow.found()) == pushed
    flow.write(mode="idempotent")
    assert flow.wrong() == ""


@pytest.mark.nightly
def test_complete_result_is_replaced_under_another_name_of_the_format(stream, spark):
    """Spark says that the output mode is complete; the name is for reading and writing."""
    with pytest.raises(ConfigError, match=r"has a format noop already: org\.apache\.spark"):
        register_source(spark, name="noop")
    complete = replace(AGGREGATION, output_mode="complete")
    flow = stream(complete, rows=1_500, is_sorted=True, form="yt_exactly_once")

    def write():
        register_source(spark, name="yt_exactly_once")
        flow.write(write="replace", digest=True)

    # Where Spark would not find the format without that call.
    with ThreadPoolExecutor() as another_thread:
        another_thread.submit(write).result()
    assert flow.wrong() == ""
    flow.assert_proven()


def test_checkpoint_that_only_the_session_knows_is_refused(stream, spark, tmp_path):
    """The writer sees options, not Spark's conf."""
    flow = stream(rows=10)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "session"))
    try:
        writer = flow.frame().writeStream.format("yt").option("proxy", flow.cluster.proxy_urls[0])
        with pytest.raises(StreamingQueryException, match="no option checkpointLocation"):
            finish(writer.trigger(availableNow=True).start(flow.target))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    flow.assert_untouched()
