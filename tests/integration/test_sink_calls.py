"""How users call a sink: what would lose or double rows is refused, now and after every restart."""

import threading
from contextlib import suppress

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException

from tests.flows import ledger_entries, passed_on
from tests.integration.streams import Heard, finish
from tests.tiers import first_of
from yt_exactly_once import Event
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


@pytest.mark.parametrize("mode", first_of(["transactional", "idempotent", "at-least-once"]))
def test_second_call_of_a_batch_is_refused_until_it_is_settled(flow, mode):
    """Not by a restart, and not by a mended function that cannot know which rows are missing."""
    flow.options["mode"] = mode
    sink = flow.sink()

    def write(frame, batch_id):
        sink(frame.where(EVEN), batch_id)
        sink(frame.where(ODD), batch_id)

    refused(flow, write, "RepeatedCallError")
    refused(flow, write, "IncompleteBatchError|RepeatedCallError")
    refused(flow, flow.sink(), "accept_incomplete=0")
    assert {row[2] % 2 for row in flow.found()} == {0}
    # By hand, the other half of the batch: the ledger's entry has its range.
    (entry,) = ledger_entries(flow.client, flow.ledger)
    ends = entry.ends[flow.queue.path]
    names = list(flow.query.types)
    missing = [row for row in passed_on(flow.queue) if row[1] < ends[row[0]] and row[2] % 2]
    flow.client.insert_rows(flow.target, [dict(zip(names, row, strict=True)) for row in missing])
    flow.run(accept_incomplete=0)
    flow.assert_exact()


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


@pytest.mark.further
def test_function_that_does_not_wait_for_its_sink_is_stopped(flow):
    """Spark has logged a batch that may never be written; no later one gets past it."""
    written, go = threading.Event(), threading.Event()
    threads, errors = [], []

    def hold(event, _fields):
        if event == Event.LEDGER_RECORDED:
            written.set()
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
        # The query ends with the next batch, and Spark would cancel the jobs of this one.
        assert written.wait(60)
        if batch_id:
            threads[-1].join()

    finish(flow.start(write))
    go.set()
    for thread in threads:
        thread.join()
    assert sorted("by another thread" in str(error) for error in errors) == [False, True]
    flow.queue.append(500)
    flow.fail("IncompleteBatchError")
