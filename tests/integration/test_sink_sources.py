"""Queries with several queues, with none, and with several sinks."""

from __future__ import annotations

import shutil
import threading

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import (
    STATELESS,
    Queue,
    columns,
    create_table,
    differences,
    ledger_entries,
    passed_on,
)
from tests.integration.streams import QUICK, Broken, Heard, finish, forget_last_batch
from tests.protections import switch_off
from tests.tiers import first_of
from yt_exactly_once import Event, TransactionalSink

LINES = {"line": "utf8"}


@pytest.mark.nightly
def test_two_queues_in_one_query_are_both_exact(stream, client, tmp, tmp_path):
    """Also when a batch is replayed in which one of them is idle."""
    first, second = (Queue.filled(client, tmp, 2_000, name) for name in ("first", "second"))
    ours, theirs = stream(queue=first), stream(queue=second, name="other")

    def run():
        heard = Heard()
        both = ours.frame().unionByName(
            theirs.frame().selectExpr("part + 3 as part", "* except (part)")
        )
        finish(
            both.writeStream.foreachBatch(ours.sink(heard))
            .option("checkpointLocation", str(tmp_path / "both"))
            .trigger(availableNow=True)
            .start()
        )
        return heard

    def expected():
        moved = [(row[0] + 3, *row[1:]) for row in passed_on(second)]
        return sorted(passed_on(first) + moved)

    run()
    assert differences(ours.found(), expected()) == ""
    first.append(500)
    run()
    last = forget_last_batch(tmp_path / "both")
    told = run()
    assert [fields["batch"] for fields in told.of(Event.BATCH_SKIPPED)] == [last]
    assert differences(ours.found(), expected()) == ""
    first.append(10, 2)
    second.append(500)
    run()
    assert differences(ours.found(), expected()) == ""
    assert first.stored() == first.ends()
    assert second.stored() == second.ends()


@pytest.mark.nightly
def test_idle_queue_keeps_its_consumer_where_it_is(stream, client, tmp):
    """Partitions without new rows are not moved."""
    queue = Queue.create(client, tmp)
    queue.append(2_000, 1)
    flow = stream(queue=queue)
    told = flow.run()
    assert told.count(Event.BATCH_COMMITTED) == 2
    assert flow.wrong() == ""
    assert queue.stored() == {1: 2_000}


@pytest.mark.nightly
def test_queue_without_a_consumer_rests_on_the_ledger_alone(stream):
    """A replay is found all the same."""
    flow = stream(consumer="")
    flow.run()
    flow.forget_last_batch()
    told = flow.run()
    assert told.count(Event.TRANSACTION_STARTED) == 0
    flow.assert_exact()


def test_files_are_delivered_once(spark, cluster, client, tmp, tmp_path):
    """A source that is no queue has no consumer; the ledger decides."""
    target = create_table(client, f"{tmp}/lines", columns(LINES), tablet_count=2)
    folder, expected = tmp_path / "files", []
    folder.mkdir()
    for number in range(6):
        lines = [f"file {number} line {line}" for line in range(1_000)]
        (folder / f"{number:03}.txt").write_text("\n".join(lines))
        expected += lines

    def run(act=None):
        heard = Heard(act=act)
        frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
        sink = TransactionalSink(target, proxy=cluster.proxy_urls[0], listener=heard, retry=QUICK)
        finish(
            frame.selectExpr("value as line")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        return heard

    def break_off(event, fields):
        if event == Event.BATCH_COMMITTED and fields["batch"] == 2:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        run(break_off)
    told = run()
    assert [fields["batch"] for fields in told.of(Event.BATCH_SKIPPED)] == [2]
    assert told.count(Event.BATCH_COMMITTED) == 3
    forget_last_batch(tmp_path / "checkpoint")
    run()
    assert sorted(row["line"] for row in client.select_rows(f"line from [{target}]")) == sorted(
        expected
    )


@pytest.mark.nightly
def test_replay_of_files_without_the_ledger_would_be_noticed(
    spark, cluster, client, tmp, tmp_path, monkeypatch
):
    """Nothing but the ledger tells that the lines are there: no consumer stands in the way."""
    target = create_table(client, f"{tmp}/lines", columns(LINES))
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "only.txt").write_text("one\ntwo")

    def run():
        sink = TransactionalSink(target, proxy=cluster.proxy_urls[0], retry=QUICK)
        frame = spark.readStream.format("text").load(str(folder)).selectExpr("value as line")
        finish(
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    run()
    forget_last_batch(tmp_path / "checkpoint")
    switch_off("ledger_look_up", monkeypatch.setattr)
    run()
    rows = [row["line"] for row in client.select_rows(f"line from [{target}]")]
    assert sorted(rows) == ["one", "one", "two", "two"]


@pytest.mark.nightly
def test_replay_of_two_queues_without_the_ledger_would_be_noticed(
    stream, client, tmp, tmp_path, monkeypatch
):
    """The batch of both is written again, although one of them was idle in it."""
    first, second = (Queue.filled(client, tmp, 100, name) for name in ("first", "second"))
    ours, theirs = stream(queue=first, consumer=""), stream(queue=second, consumer="", name="other")

    def run():
        finish(
            ours.frame()
            .unionByName(theirs.frame())
            .writeStream.foreachBatch(ours.sink())
            .option("checkpointLocation", str(tmp_path / "both"))
            .trigger(availableNow=True)
            .start()
        )

    run()
    second.append(10)
    run()
    assert len(ours.found()) == 610
    forget_last_batch(tmp_path / "both")
    switch_off("ledger_look_up", monkeypatch.setattr)
    run()
    assert len(ours.found()) == 620


@pytest.mark.nightly
def test_rate_source_is_delivered_once(spark, cluster, client, tmp, tmp_path):
    """Every value once and none left out, however often the query is stopped and replayed."""
    target = create_table(client, f"{tmp}/values", columns({"value": "int64?", "at": "timestamp?"}))

    def run():
        committed = threading.Event()

        def act(event, _fields):
            # Spark has logged a batch with rows once the next one begins.
            if event == Event.BATCH_STARTED and any(
                fields["rows"] for fields in heard.of(Event.BATCH_COMMITTED)
            ):
                committed.set()

        heard = Heard(act=act)
        sink = TransactionalSink(target, proxy=cluster.proxy_urls[0], listener=heard, retry=QUICK)
        query = (
            spark.readStream.format("rate")
            .option("rowsPerSecond", 5_000)
            .load()
            .selectExpr("value", "timestamp as at")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            assert committed.wait(60)
        finally:
            query.stop()
        return heard

    for _ in range(3):
        run()
        forget_last_batch(tmp_path / "checkpoint")
    run()
    values = [row["value"] for row in client.select_rows(f"value from [{target}]")]
    assert len(values) >= 5_000
    assert sorted(values) == list(range(len(values)))


@pytest.mark.nightly
def test_two_sinks_in_one_function_are_both_exact(stream, client, tmp):
    """Only the last one moves the consumer, and a crash between the two is mended by the replay."""
    flow = stream(rows=2_000, rows_per_partition=500)
    other = STATELESS.create_target(client, f"{tmp}/second", is_sorted=True)

    def run(break_at=None):
        first, second = Heard(), Heard()
        sinks = (
            flow.sink(first, advance_consumer=False),
            TransactionalSink(
                other, proxy=flow.cluster.proxy_urls[0], listener=second, retry=QUICK
            ),
        )

        def write(frame, batch_id):
            sinks[0](frame, batch_id)
            if batch_id == break_at:
                raise Broken
            sinks[1](frame, batch_id)

        finish(flow.start(write))
        return first, second

    with pytest.raises(StreamingQueryException, match="Broken"):
        run(break_at=2)
    (entry,) = ledger_entries(client, f"{other}_ledger")
    assert (flow.entry().batch_id, entry.batch_id) == (2, 1)
    assert flow.queue.stored() == entry.ends[flow.queue.path]
    first, second = run()
    assert [fields["batch"] for fields in first.of(Event.BATCH_SKIPPED)] == [2]
    assert second.count(Event.BATCH_SKIPPED) == 0
    flow.assert_exact()
    assert differences(STATELESS.found(client, other), sorted(passed_on(flow.queue))) == ""


@pytest.mark.parametrize(
    "first_batch", first_of([True, False]), ids=["from the first batch", "later"]
)
def test_two_sinks_on_one_target_are_refused(stream, first_batch):
    """The entry of the first one would make the rows of the second one look written."""
    flow = stream(rows=2_000)
    sinks = flow.sink(advance_consumer=False), flow.sink()

    def write(frame, batch_id):
        sinks[0](frame.where("id % 2 = 0"), batch_id)
        if first_batch or batch_id:
            sinks[1](frame.where("id % 2 = 1"), batch_id)

    with pytest.raises(StreamingQueryException, match="RepeatedCallError"):
        finish(flow.start(write))
    assert flow.entry().batch_id == (0 if first_batch else 1)


@pytest.mark.nightly
def test_one_sink_object_serves_two_queries_at_a_time(stream, client, tmp):
    """Each of them keeps its own columns: what was prepared for one is not used for the other."""
    flow = stream(rows=2_100, rows_per_partition=300)
    client.remove(flow.target)
    create_table(client, flow.target, columns(STATELESS.types | {"value": "int64?"}))
    other = Queue.filled(client, f"{tmp}/other", 2_100)
    rival = stream(rows_per_partition=300, queue=other, name="rival")
    sink = flow.sink()
    running = [flow.start(sink), rival.start(lambda frame, batch: sink(frame.drop("value"), batch))]
    for query in running:
        finish(query)
    names = list(STATELESS.types)
    rows = client.select_rows(f"* from [{flow.target}]")
    found = [tuple(row[name] for name in names) for row in rows]
    without = [(*row[:4], None, *row[5:]) for row in passed_on(other)]
    assert sorted(found, key=str) == sorted([*passed_on(flow.queue), *without], key=str)


@pytest.mark.further
def test_function_that_leaves_empty_batches_out_is_borne(stream):
    """The sink is not called for them, and the next batch tells how many rows it was not given."""
    flow = stream(rows=4_000, rows_per_partition=500)
    heard = Heard()
    sink = flow.sink(heard)

    def write(frame, batch_id):
        rows = frame.where("row >= 1000 and row < 2000 or row >= 3000")
        if not rows.isEmpty():
            sink(rows, batch_id)

    finish(flow.start(write))
    kept = [row for row in passed_on(flow.queue) if 1_000 <= row[1] < 2_000 or row[1] >= 3_000]
    assert differences(flow.found(), sorted(kept)) == ""
    assert flow.queue.stored() == flow.queue.ends()
    (told,) = heard.of(Event.BATCHES_LEFT_OUT)
    assert (told["first"], told["last"], told["rows"]) == (4, 5, 3 * 1_000)
    for partition in range(3):
        flow.queue.append(500, partition)
    sink = flow.sink()
    finish(flow.start(write))
    kept = [row for row in passed_on(flow.queue) if 1_000 <= row[1] < 2_000 or row[1] >= 3_000]
    assert differences(flow.found(), sorted(kept)) == ""


def test_restored_checkpoint_of_a_source_without_a_consumer_is_refused(
    spark, cluster, client, tmp, tmp_path
):
    """Spark plans the batch anew, with more in it: taken for a replay, the new rows would be lost."""
    target = create_table(client, f"{tmp}/values", columns({"value": "int64?", "at": "timestamp?"}))
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def break_off(event, fields):
        if event == Event.BATCH_COMMITTED and fields["batch"] >= 1:
            raise Broken

    def run(*, rows, told):
        heard = Heard(act=break_off)
        sink = TransactionalSink(target, proxy=cluster.proxy_urls[0], listener=heard, retry=QUICK)
        # This source's offsets follow from its options alone; those of "rate" follow the clock.
        query = (
            spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=rows, numPartitions=2)
            .load()
            .selectExpr("value", "timestamp as at")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        with pytest.raises(StreamingQueryException, match=told):
            finish(query)

    run(rows=10, told="Broken")
    shutil.copytree(checkpoint, copy)
    for name in ("1", ".1.crc"):
        (copy / "offsets" / name).unlink()
    before = sorted(row["value"] for row in client.select_rows(f"value from [{target}]"))
    assert before == list(range(20))
    shutil.rmtree(checkpoint)
    shutil.move(copy, checkpoint)
    run(rows=15, told="sources that are no queues")
    assert sorted(row["value"] for row in client.select_rows(f"value from [{target}]")) == before


def test_two_checkpoints_on_one_consumer_are_told_apart(stream):
    """The second query is stopped with both numbers, before it doubles a row."""
    flow = stream(rows=2_000)
    half = stopped_after(flow, 0)
    rival = stream(queue=flow.queue, name="rival")
    rival.run()
    text = flow.fail("OffsetConflictError")
    assert half == 1_000
    assert "is at row 2000 of" in text
    assert "expected 1000" in text
    assert flow.entry().batch_id == 0
    rival_rows = [row for row in rival.found() if row[1] < half]
    assert rival_rows == []


@pytest.mark.nightly
def test_compare_and_set_off_is_noticed(stream, monkeypatch):
    """Both queries take the second half of the queue."""
    flow = stream(rows=2_000)
    half = stopped_after(flow, 0)
    rival = stream(queue=flow.queue, name="rival")
    rival.run()
    switch_off("compare_and_set", monkeypatch.setattr)
    flow.run()
    later = {row for row in rival.found() if row[1] >= half}
    assert later & set(flow.found()) == later != set()


def stopped_after(flow, batch):
    """Run a query up to a batch; return the end of that batch in partition 0."""

    def break_off(event, fields):
        if event == Event.BATCH_STARTED and fields["batch"] == batch + 1:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        flow.run(break_off)
    return flow.entry().ends[flow.queue.path][0]
