"""Queries with several queues, with none, and with several sinks."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import Queue, columns, create_table, differences, passed_on
from tests.integration.streams import QUICK, Broken, Heard, finish, forget_last_batch
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


def stopped_after(flow, batch):
    """Run a query up to a batch; return the end of that batch in partition 0."""

    def break_off(event, fields):
        if event == Event.BATCH_STARTED and fields["batch"] == batch + 1:
            raise Broken

    with pytest.raises(StreamingQueryException, match="Broken"):
        flow.run(break_off)
    return flow.entry().ends[flow.queue.path][0]
