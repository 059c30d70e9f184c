"""`survives` on sinks that double rows and on sinks that do not: it finds the ones and clears the others."""

import json
import threading
import uuid
from functools import partial

import pytest

from tests.flows import STATELESS, Queue, passed_on, read_queue
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.testing import At, Finding, NotExactError, sink_job, survives

ROWS_PER_PARTITION = 60


def appended(trial):
    """A sink as many write one: it appends, and knows nothing of replays."""

    def append(frame, _batch_id):
        rows = [row.asDict() for row in frame.collect()]
        with (trial.folder / "target").open("a") as target:
            for row in rows:
                target.write(json.dumps(row) + "\n")

    return append


def read_lines(trial):
    return [json.loads(line) for line in (trial.folder / "target").read_text().splitlines()]


def test_rows_of_a_plain_append_are_doubled_where_its_driver_dies_late():
    verdict = survives(sink_job(appended), rows=read_lines)
    found = {str(one.attack): one.finding for one in verdict.attacked}
    assert found["killed before the call"] is Finding.EXACT
    after = "killed after the call, before Spark logs the batch as done"
    assert found[after] is Finding.DOUBLED
    (late,) = [one for one in verdict.attacked if str(one.attack) == after]
    assert late.doubled == [
        {"id": 10 + row, "text": f"row {row}"} for row in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
    ]
    assert set(found.values()) == {Finding.EXACT, Finding.DOUBLED}
    assert any("killed before line" in text for text in found)
    with pytest.raises(NotExactError, match="doubled"):
        verdict.assert_exact()


def delta(trial, *, application=None):
    """A sink that appends to a Delta table; with an application it notes there which batch that was."""
    path = str(trial.folder / "target")

    def append(frame, batch_id):
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        noted = None
        if application:
            if DeltaTable.is_deltatable(path):
                done = DeltaTable(path).transaction_version(application)
                if done is not None and done >= batch_id:
                    return
            noted = CommitProperties(app_transactions=[Transaction(application, batch_id)])
        write_deltalake(path, frame.toArrow(), mode="append", commit_properties=noted)

    return append


def read_delta(trial):
    from deltalake import DeltaTable

    return DeltaTable(str(trial.folder / "target")).to_pyarrow_table().to_pylist()


@pytest.mark.parametrize("application", [None, "orders"], ids=["plain", "with txnAppId"])
def test_delta_append_doubles_rows_unless_it_notes_its_batches(application):
    pytest.importorskip("deltalake")
    job = sink_job(partial(delta, application=application))
    verdict = survives(job, rows=read_delta)
    assert verdict.finding is (Finding.EXACT if application else Finding.DOUBLED)
    assert len(verdict.of(Finding.EXACT)) > 4
    if not application:
        assert [str(one.attack) for one in verdict.of(Finding.DOUBLED)] == [
            "killed after the call, before Spark logs the batch as done"
        ]


def in_partitions(trial):
    """A sink that has each task write its rows by itself, as sinks without a transaction do."""
    folder = trial.folder / "target"
    folder.mkdir(exist_ok=True)

    def append(rows):
        with (folder / uuid.uuid4().hex).open("w") as file:
            for row in rows:
                file.write(json.dumps(row.asDict()) + "\n")

    def write(frame, _batch_id):
        frame.foreachPartition(append)

    return write


def read_files(trial):
    files = sorted((trial.folder / "target").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_tasks_that_write_by_themselves_double_rows_when_some_have_ended():
    verdict = survives(sink_job(in_partitions), rows=read_files, at=[At.TASKS])
    unfinished, failing = verdict.attacked
    assert unfinished.finding is failing.finding is Finding.DOUBLED
    # One of two tasks had ended; then both tasks are run twice.
    assert (len(unfinished.doubled), len(failing.doubled)) == (5, 10)


def out_of_a_shuffle(spark, trial):
    """A job whose batches have one task before a shuffle, and two after it, which write by themselves."""
    source = trial.folder / "source"
    if not source.exists():
        for start in (0, 100):
            spark.range(start, start + 20, numPartitions=1).write.mode("append").parquet(
                f"{source}"
            )
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(f"{source}")
    writer = rows.repartition(2, "id").writeStream.foreachBatch(in_partitions(trial))
    return writer.option("checkpointLocation", trial.checkpoint).start()


def test_task_that_is_left_is_one_of_those_that_hand_on_rows():
    """A stage before it that has one task is none where rows may be doubled."""
    verdict = survives(out_of_a_shuffle, rows=read_files, at=[At.TASKS])
    unfinished, _ = verdict.attacked
    assert unfinished.finding is Finding.DOUBLED
    assert 0 < len(unfinished.doubled) < 20


class Pipeline:
    """Our sink over a queue; each trial has a target and a consumer of its own."""

    def __init__(self, cluster, mode):
        self.client = cluster.client()
        self.proxy = cluster.proxy_urls[0]
        self.mode = mode
        folder = f"//tmp/{uuid.uuid4().hex}"
        self.queue = Queue.filled(self.client, folder, 4 * ROWS_PER_PARTITION, partitions=2)

    def prepare(self, trial):
        path = f"{self.queue.path}_{trial.name}"
        STATELESS.create_target(self.client, path, is_sorted=False, tablets=2)
        self.queue.add_consumer(f"{path}_consumer")

    def rows(self, trial):
        return STATELESS.found(self.client, f"{self.queue.path}_{trial.name}")

    @property
    def job(self):
        proxy, path, mode = self.proxy, self.queue.path, self.mode

        def copy(spark, trial):
            register_source(spark)
            target = f"{path}_{trial.name}"
            limit = {"max_rows_per_partition": ROWS_PER_PARTITION}
            rows = read_queue(spark, proxy, path, f"{target}_consumer", **limit)
            writer = STATELESS.build(rows).writeStream.foreachBatch(
                TransactionalSink(target, proxy=proxy, mode=mode, dyn_batch_size=20)
            )
            return writer.option("checkpointLocation", trial.checkpoint).start()

        return copy


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", list(DeliveryMode))
def test_modes_survive_what_they_promise_to(cluster, mode):
    """At-least-once mode doubles rows. It never loses one, and so does none of the others either of both."""
    pipeline = Pipeline(cluster, mode)
    verdict = survives(
        pipeline.job,
        rows=pipeline.rows,
        prepare=pipeline.prepare,
        expected=passed_on(pipeline.queue),
    )
    doubles = mode is DeliveryMode.AT_LEAST_ONCE
    assert verdict.finding is (Finding.DOUBLED if doubles else Finding.EXACT), verdict
    assert not any(one.lost or one.wrong or one.error for one in verdict.attacked), verdict
    done = [str(one.attack) for one in verdict.attacked if one.finding is not Finding.MISSED]
    assert "killed after POST /api/v4/commit_transaction" in done
    assert "lost the answer to POST /api/v4/commit_transaction" in done
    assert "every task fails once, after its work is done" in done


def test_job_that_is_wrong_without_an_attack_is_refused():
    """Nothing would be found by attacking it."""
    job = sink_job(appended)
    with pytest.raises(ConfigError, match="wrong without any attack"):
        survives(job, rows=read_lines, expected=[{"id": 1}])
    with pytest.raises(ConfigError, match="no batch 9"):
        survives(job, rows=read_lines, batch=9)
    with pytest.raises(ConfigError, match="no rows"):
        survives(job, rows=lambda _trial: [])


def test_job_that_holds_what_cannot_be_sent_is_refused():
    lock = threading.Lock()

    def sink(_trial):
        return lambda _frame, _batch_id: lock.acquire()

    with pytest.raises(ConfigError, match="cannot be sent"):
        survives(sink_job(sink), rows=read_lines)
