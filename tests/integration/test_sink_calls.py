"""How users call a sink: what would lose or double rows is refused, now and after every restart."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException

from tests.flows import columns, create_table, differences, ledger_entries, passed_on
from tests.integration.streams import Broken, Heard, finish
from tests.protections import switch_off
from tests.tiers import first_of
from yt_exactly_once import Event, TransactionalSink
from yt_exactly_once.errors import ExactlyOnceError

EVEN, ODD = "id % 2 = 0", "id % 2 = 1"


@pytest.fixture
def flow(stream):
    """Two batches of 500 rows from each of two partitions."""
    return stream(rows=1_000, partitions=2, rows_per_partition=500)


def refused(flow, write, told):
    """Run a query that must be stopped by an error."""
    with pytest.raises(StreamingQueryException, match=told):
        finish(flow.start(write))


def rows_where(flow, keep):
    """Return the target's rows that the whole queue would give, where `keep` says so."""
    return sorted(row for row in passed_on(flow.queue) if keep(row))


def twice_by_one_object(flow):
    """Halves of a batch by two calls of one sink."""
    sink = flow.sink()

    def write(frame, batch_id):
        sink(frame.where(EVEN), batch_id)
        sink(frame.where(ODD), batch_id)

    return write


def twice_by_new_objects(flow):
    """The same, with a sink made for each call."""

    def write(frame, batch_id):
        flow.sink(advance_consumer=False)(frame.where(EVEN), batch_id)
        flow.sink()(frame.where(ODD), batch_id)

    return write


def at_the_same_time(flow):
    """The same, by two threads that the function waits for."""
    sink = flow.sink()

    def write(frame, batch_id):
        errors = []

        def call(condition):
            try:
                sink(frame.where(condition), batch_id)
            except ExactlyOnceError as error:
                errors.append(error)

        threads = [InheritableThread(target=call, args=(half,)) for half in (EVEN, ODD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    return write


@pytest.mark.parametrize(
    ("calls", "mode"),
    first_of(
        [
            (twice_by_one_object, "transactional"),
            (twice_by_new_objects, "idempotent"),
            (at_the_same_time, "at-least-once"),
        ]
    ),
)
def test_second_call_of_a_batch_is_refused_until_it_is_settled(flow, calls, mode):
    """Not by a restart, and not by a mended function that cannot know which rows are missing."""
    flow.options["mode"] = mode
    refused(flow, calls(flow), "RepeatedCallError")
    refused(flow, calls(flow), "IncompleteBatchError|RepeatedCallError")
    refused(flow, flow.sink(), "accept_incomplete=0")
    half = {row[2] % 2 for row in flow.found()}
    assert half in ({0}, {1})
    # By hand, the other half of the batch: the ledger's entry has its range.
    (entry,) = ledger_entries(flow.client, flow.ledger)
    ends = entry.ends[flow.queue.path]
    names = list(flow.query.types)
    missing = rows_where(flow, lambda row: row[1] < ends[row[0]] and row[2] % 2 not in half)
    flow.client.insert_rows(flow.target, [dict(zip(names, row, strict=True)) for row in missing])
    flow.run(accept_incomplete=0)
    flow.assert_exact()


@pytest.mark.nightly
def test_one_call_off_is_noticed(flow, monkeypatch):
    """Half of the rows are nowhere, and the consumer is at the end."""
    switch_off("one_call", monkeypatch.setattr)
    finish(flow.start(twice_by_one_object(flow)))
    assert flow.queue.stored() == flow.queue.ends()
    assert differences(flow.found(), rows_where(flow, lambda row: row[2] % 2 == 0)) == ""


@pytest.mark.nightly
def test_history_off_is_noticed(flow, monkeypatch):
    """The mended function goes past the rows that the old one had lost."""
    refused(flow, twice_by_one_object(flow), "RepeatedCallError")
    switch_off("history", monkeypatch.setattr)
    flow.run()
    lost = rows_where(flow, lambda row: row[1] < 500 and row[2] % 2)
    assert sorted(flow.found() + lost) == rows_where(flow, bool)


@pytest.mark.further
def test_swallowed_error_is_not_washed_away(flow, faults):
    """The batch after it is refused, in this run and in all that follow, until Spark repeats it."""
    sink = flow.sink()

    def write(frame, batch_id):
        with suppress(ExactlyOnceError):
            sink(frame, batch_id)

    faults.inject("error", "commit_transaction", code=307, message="no", count=1)
    finish(flow.start(write))
    faults.clear_faults()
    assert flow.found() == []
    flow.queue.append(500)
    flow.fail("IncompleteBatchError")
    flow.fail("IncompleteBatchError")
    # The way out: let Spark repeat everything from the batch that failed.
    for folder, first in (("commits", 0), ("offsets", 1)):
        for file in (flow.checkpoint / folder).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                file.unlink()
    for partition, offset in flow.queue.stored().items():
        # The source has moved the consumer, since Spark had logged the batches.
        flow.client.advance_queue_consumer(
            flow.queue.consumer, flow.queue.path, partition, offset, 0, client_side=True
        )
    flow.run()
    flow.assert_exact()


@pytest.mark.nightly
def test_swallowed_batches_may_be_given_up(flow, faults):
    """By their numbers; the option is without effect afterwards."""
    sink = flow.sink()

    def write(frame, batch_id):
        with suppress(ExactlyOnceError):
            sink(frame, batch_id)

    faults.inject("error", "commit_transaction", code=307, message="no", count=1)
    finish(flow.start(write))
    faults.clear_faults()
    flow.queue.append(500)
    assert "accept_incomplete=(0, 1)" in flow.fail("IncompleteBatchError", accept_incomplete=0)
    flow.run(accept_incomplete=(0, 1))
    assert differences(flow.found(), rows_where(flow, lambda row: row[1] >= 1_000)) == ""
    flow.queue.append(500)
    flow.run()
    assert differences(flow.found(), rows_where(flow, lambda row: row[1] >= 1_000)) == ""


def test_failed_batch_may_be_called_again(flow, faults):
    """Catch the error, call again: in one function, with the same or a new sink."""

    def write(frame, batch_id):
        try:
            flow.sink()(frame, batch_id)
        except ExactlyOnceError:
            flow.sink()(frame, batch_id)

    faults.inject("error", "commit_transaction", code=307, message="no", count=1)
    finish(flow.start(write))
    flow.assert_exact()


@pytest.mark.nightly
def test_sink_made_for_each_batch_is_exact(flow):
    """It costs a look-up per batch, and nothing else."""

    def write(frame, batch_id):
        sink = flow.sink()
        sink(frame, batch_id)

    finish(flow.start(write))
    flow.assert_exact()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "wrong", first_of([lambda _: 0, lambda number: number + 1]), ids=["a constant", "the next"]
)
def test_wrong_batch_number_is_refused(flow, wrong):
    """A replay could not be recognised by it."""
    sink = flow.sink()
    refused(flow, lambda frame, number: sink(frame, wrong(number)), "and Spark is running batch")


@pytest.mark.nightly
def test_thread_without_sparks_properties_is_refused_and_noted(flow):
    """Nobody looks at what such a thread raises, so the next batch and the next run must stop."""
    sink = flow.sink()
    errors = []

    def call(frame, batch_id):
        try:
            sink(frame, batch_id)
        except ExactlyOnceError as error:
            errors.append(error)

    def write(frame, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(call, frame, batch_id)

    finish(flow.start(write))
    assert "a thread that Spark does not know" in str(errors[0])
    assert flow.found() == []
    flow.queue.append(500)
    flow.fail("IncompleteBatchError")


@pytest.mark.further
def test_function_that_does_not_wait_for_its_sink_is_stopped(flow):
    """Spark has logged a batch that may never be written; no later one gets past it."""
    go = threading.Event()
    threads, errors = [], []

    def hold(event, _fields):
        if event == Event.LEDGER_RECORDED:
            assert go.wait(60)

    sink = flow.sink(Heard(act=hold))

    def call(frame, batch_id):
        try:
            sink(frame, batch_id)
        except ExactlyOnceError as error:
            errors.append(error)

    def write(frame, batch_id):
        threads.append(InheritableThread(target=call, args=(frame, batch_id)))
        threads[-1].start()
        if batch_id:
            threads[-1].join()

    finish(flow.start(write))
    go.set()
    for thread in threads:
        thread.join()
    assert sorted("by another thread" in str(error) for error in errors) == [False, True]
    flow.queue.append(500)
    flow.fail("IncompleteBatchError")


@pytest.mark.nightly
def test_data_frame_of_another_query_is_refused(flow, stream):
    """Its rows are not those of the batch whose number they would get."""
    kept = []
    other = stream(rows=10, partitions=1, queue=flow.queue, name="other", consumer="")
    waiting = other.frame().writeStream.foreachBatch(lambda frame, _: kept.append(frame))
    query = waiting.option("checkpointLocation", str(other.checkpoint)).start()
    try:
        query.processAllAvailable()
        sink = flow.sink()
        refused(flow, lambda _, number: sink(kept[0], number), "a DataFrame of another query")
    finally:
        query.stop()


@pytest.mark.nightly
def test_first_rows_of_a_query_may_come_after_empty_batches_and_a_restart(flow):
    """The function left the empty DataFrames out, and nothing was ever written."""
    sink, wanted = flow.sink(), "id < 0"

    def write(frame, batch_id):
        if not frame.where(wanted).isEmpty():
            sink(frame.where(wanted), batch_id)

    finish(flow.start(write))
    assert ledger_entries(flow.client, flow.ledger) == []
    flow.queue.append(500)
    flow.queue.append(500, 1)
    wanted = "id >= 1000"
    finish(flow.start(write))
    expected = rows_where(flow, lambda row: row[1] >= 1_000)
    assert differences(flow.found(), expected) == ""


@pytest.mark.nightly
@pytest.mark.parametrize("how", first_of(["removed", "another path"]))
@pytest.mark.parametrize("batches", first_of([1, 2]))
def test_missing_ledger_is_refused(stream, how, batches):
    """Without a consumer nothing else could tell that the batch is there already."""
    flow = stream(rows=500 * batches, partitions=2, rows_per_partition=500, consumer="")
    flow.run()
    flow.forget_last_batch()
    options = {}
    if how == "removed":
        flow.client.remove(flow.ledger)
    else:
        options["ledger_path"] = f"{flow.ledger}2"
    before = flow.found()
    flow.fail("LedgerMissingError", **options)
    flow.fail("LedgerMissingError", **options)
    assert flow.found() == before
    # The way out: tell Spark that the batch is done, and begin with another ledger.
    commits = flow.checkpoint / "commits"
    if batches > 1:
        shutil.copy(commits / "0", commits / "1")
    else:
        (commits / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    flow.queue.append(500)
    flow.queue.append(500, 1)
    flow.run(ledger_path=f"{flow.ledger}3", new_ledger=True, accept_incomplete=batches - 1)
    assert flow.wrong() == ""


@pytest.mark.nightly
def test_other_target_on_an_old_checkpoint_is_refused_unless_asked(flow, stream):
    """The batches before are not in it."""
    flow.run()
    for partition in range(2):
        flow.queue.append(500, partition)
    moved = stream(queue=flow.queue, name="moved", checkpoint=flow.checkpoint)
    moved.fail("LedgerMissingError")
    moved.run(new_ledger=True)
    assert differences(moved.found(), rows_where(flow, lambda row: row[1] >= 1_000)) == ""


@pytest.mark.nightly
def test_run_killed_before_its_first_commit_continues(flow):
    """The ledger has no entry, and has never had one."""

    def break_off(event, _fields):
        if event == Event.LEDGER_RECORDED:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        flow.run(break_off)
    flow.run()
    flow.assert_exact()


@pytest.mark.nightly
def test_query_whose_first_batches_write_nothing_continues_after_a_restart(
    spark, cluster, client, tmp, tmp_path
):
    """The first batch is recorded although it is empty."""
    target = create_table(client, f"{tmp}/values", columns({"value": "int64?"}))
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()

    def run(condition, until):
        stop = threading.Event()
        sink = TransactionalSink(target, proxy=cluster.proxy_urls[0])

        def write(frame, batch_id):
            sink(frame.select("value").where(condition), batch_id)
            if batch_id >= until:
                stop.set()

        checkpoint = str(tmp_path / "checkpoint")
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        query = writer.start()
        assert stop.wait(120)
        query.stop()
        assert query.exception() is None

    run("value < 0", until=0)
    (entry,) = client.select_rows(f"batch_id, row_count from [{target}_ledger]")
    assert entry["row_count"] == 0
    run("true", until=entry["batch_id"] + 1)
    assert list(client.select_rows(f"value from [{target}]")) != []


@pytest.mark.nightly
@pytest.mark.parametrize("error", first_of([ValueError, StopIteration]))
def test_listener_that_raises_disturbs_nothing(flow, error, caplog):
    """It is a metrics hook: its first exception is logged, with the event."""

    def listener(_event, _fields):
        raise error("on purpose")

    finish(flow.start(flow.sink(listener)))
    flow.assert_exact()
    (record,) = [record for record in caplog.records if "listener.failed" in record.getMessage()]
    assert "batch.started" in record.getMessage()
    assert "on purpose" in record.getMessage()
