"""Who sends the rows of a batch, on a real Spark: the driver or its tasks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import columns, create_table
from tests.integration.streams import failing_once
from tests.tiers import first_of
from yt_exactly_once import Event, RetryPolicy, config
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery import route
from yt_exactly_once.errors import TransactionLostError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.modes import transactional
from yt_exactly_once.spark.modes.joined import JoinedInsertTask

INSERT = "insert_rows"
OF_TASKS = ["idempotent", "at-least-once"]
"""Modes whose tasks can write each by itself."""


def senders(heard):
    """Return who sent the rows of each batch."""
    return [fields["sent_by"] for fields in heard.of(Event.BATCH_COMMITTED)]


def reasons(heard):
    """Return why batches were computed again."""
    return [fields["reason"] for fields in heard.of(Event.RETRY_SCHEDULED)]


def test_tasks_send_rows_into_the_transaction_and_a_replay_is_skipped(stream):
    """Rows, offsets and the ledger entry are in one transaction, as when the driver sends them."""
    flow = stream(rows=600, rows_per_partition=100)
    flow.options["digest"] = True
    assert senders(flow.run(sent_by="tasks")) == [SentBy.TASKS] * 6
    flow.assert_exact()
    flow.forget_last_batch()
    assert flow.run(sent_by="tasks").count(Event.BATCH_SKIPPED) == 1
    flow.assert_exact()


@pytest.mark.parametrize("mode", OF_TASKS)
@pytest.mark.parametrize("is_sorted", first_of([False, True]))
def test_driver_does_what_tasks_would_with_batches_known_to_be_small(stream, mode, is_sorted):
    """Nothing is known of the first batch of a query; of later runs the ledger tells."""
    flow = stream(rows=600, rows_per_partition=100, is_sorted=is_sorted)
    flow.options["mode"] = mode
    assert senders(flow.run()) == [SentBy.TASKS] + [SentBy.DRIVER] * 5
    flow.queue.append(100, 0)
    assert senders(flow.run()) == [SentBy.DRIVER]
    flow.queue.append(100, 0)
    assert senders(flow.run(sent_by="tasks")) == [SentBy.TASKS]
    flow.assert_exact()


@pytest.mark.parametrize("by", [(SentBy.DRIVER, SentBy.TASKS), (SentBy.TASKS, SentBy.DRIVER)])
def test_rows_that_were_pushed_are_the_same_whoever_sends_them_again(stream, faults, by):
    """The sessions have all rows of the batch, and the ledger has not got it."""
    flow = stream(rows=900, partitions=3)
    flow.options["mode"] = "idempotent"
    faults.inject("lose_request", "commit_transaction", count=None)
    with pytest.raises(StreamingQueryException):
        flow.run(sent_by=by[0], retry=RetryPolicy(attempts=2))
    pushed = flow.found()
    assert len(pushed) == 2_700
    faults.clear_faults()
    flow.run(sent_by=by[1])
    assert flow.found() == pushed
    flow.assert_exact()


@pytest.fixture
def narrow_driver(spark):
    """A driver that takes few bytes from the tasks of a job."""
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    conf.set(name, "64k")
    yield
    conf.remove(name)


@pytest.mark.usefixtures("narrow_driver")
def test_batch_that_does_not_fit_the_driver_is_sent_by_tasks(stream):
    """Spark fails the job whose rows come to the driver; the next batch goes by tasks at once or again so."""
    flow = stream(rows=10_000, rows_per_partition=10_000)
    heard = flow.run()
    flow.assert_exact()
    assert senders(heard) == [SentBy.TASKS]
    assert len(reasons(heard)) == 1


@pytest.mark.usefixtures("narrow_driver")
@pytest.mark.parametrize("mode", first_of(OF_TASKS))
def test_batch_that_does_not_fit_the_driver_goes_back_to_the_tasks(stream, mode):
    """No row of it was sent before; later batches of the run go by tasks at once."""
    flow = stream(rows=100, rows_per_partition=20_000)
    flow.options["mode"] = mode
    flow.run()
    for _ in range(2):
        flow.queue.append(10_000, 0)
    flow.rows_per_partition = 10_000
    heard = flow.run()
    flow.assert_exact()
    assert set(senders(heard)) == {SentBy.TASKS}
    assert len(reasons(heard)) == 1


def test_transaction_that_outlives_a_flush_of_the_ledger(stream, tmp_path, monkeypatch):
    """Another query has written there: these rows, and those of later batches, go through the driver."""
    monkeypatch.setattr(route, "LARGE", 1)
    flow = stream(rows=300, rows_per_partition=100)
    flow.run()
    flow.client.set(
        f"{flow.ledger}/@mount_config",
        {"dynamic_store_auto_flush_period": 500, "backing_store_retention_time": 1500},
    )
    flow.client.remount_table(flow.ledger)
    done = threading.Event()
    (entry,) = flow.client.select_rows(f"* from [{flow.ledger}]")

    def write():
        while not done.wait(0.2):
            flow.client.insert_rows(flow.ledger, [{**entry, "query_id": "other"}])

    slow = tmp_path / "slow"
    slow.touch()

    def slowly(batches):
        if slow.exists():
            slow.unlink(missing_ok=True)
            time.sleep(2.6)
        yield from batches

    flow.queue.append(300, 0)
    flow.change = lambda frame: frame.mapInArrow(slowly, frame.schema)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        try:
            heard = flow.run()
        finally:
            done.set()
        writing.result()
    assert flow.wrong() == ""
    assert senders(heard) == [SentBy.DRIVER] * 3
    assert reasons(heard) == ["TransactionTooOldError"]


@pytest.mark.further
def test_lease_is_renewed_while_tasks_have_nothing_to_send(stream, monkeypatch):
    """They compute longer than a transaction lives that nobody names."""
    monkeypatch.setattr(config, "LEASE", timedelta(seconds=5))

    def slowly(batches):
        time.sleep(7)
        yield from batches

    flow = stream(rows=100)
    flow.change = lambda frame: frame.mapInArrow(slowly, frame.schema)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.TASKS]


@pytest.mark.further
@pytest.mark.parametrize("barrier", [False, True])
def test_batch_whose_task_fails_goes_through_the_driver(stream, tmp_path, barrier):
    """The rows that the task has sent before are gone with the transaction.

    Of a barrier stage Spark runs all tasks again, and their attempts begin at 0 again; but not of the last
    stage of a job, which is the only one here.
    """
    flow = stream(rows=600, rows_per_partition=300, partitions=2)
    flow.change = failing_once(str(tmp_path / "failed"), barrier=barrier)
    heard = flow.run(sent_by="tasks", dyn_batch_size=10)
    flow.assert_exact()
    assert senders(heard) == [SentBy.DRIVER, SentBy.TASKS]
    assert len(reasons(heard)) == 1


def stranded_task(folder):
    """Return a task whose first attempt fails after a chunk, and leaves a process behind.

    That process is out of reach for Spark. It has the rows of the task, and stops before it sends them.
    """
    awake = folder / "awake"

    class StrandedTask(JoinedInsertTask):
        def run(self, batches, partition):
            rows = list(batches)
            if partition or awake.exists():
                yield from super().run(rows, partition)
                return
            pid = os.fork()
            if not pid:
                os.kill(os.getpid(), signal.SIGSTOP)
                try:
                    told = str(len(list(JoinedInsertTask.run(self, rows, partition))))
                except TransactionLostError as error:
                    told = type(error).__name__
                (folder / "told").write_text(told)
                os._exit(0)
            os.waitpid(pid, os.WUNTRACED)
            awake.write_text(str(pid))
            yield next(super().run(rows, partition))
            raise ZeroDivisionError

    return StrandedTask


@pytest.mark.further
@pytest.mark.parametrize(
    ("event", "batch"),
    [(Event.BATCH_COMPUTED, 0), (Event.BATCH_COMMITTED, 0), (Event.LEDGER_RECORDED, 1)],
    ids=["after the abort", "after the commit", "in the next batch"],
)
def test_task_that_was_stopped_and_wakes_writes_nothing(
    stream, tmp_path, monkeypatch, event, batch
):
    """Its transaction has ended, and no other one has its id."""
    monkeypatch.setattr(transactional, "JoinedInsertTask", stranded_task(tmp_path))
    told = tmp_path / "told"

    def wake(name, fields):
        if (name, fields["batch"]) == (event, batch):
            os.kill(int((tmp_path / "awake").read_text()), signal.SIGCONT)
            deadline = time.monotonic() + 60
            while not told.exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    flow = stream(rows=600, rows_per_partition=300)
    heard = flow.run(wake, sent_by="tasks", dyn_batch_size=100)
    flow.assert_exact()
    assert told.read_text() == "TransactionLostError"
    assert senders(heard) == [SentBy.DRIVER, SentBy.TASKS]


@pytest.mark.parametrize("fault", first_of(["lose_answer", "lose_request"]))
def test_insert_without_an_answer_fails_its_task_and_is_not_sent_again(stream, faults, fault):
    """It may have arrived. The batch goes through the driver, in another transaction."""
    flow = stream(rows=200, rows_per_partition=100)
    # The first insert is empty: it asks whether the cluster takes Arrow.
    faults.inject(fault, INSERT, match={"path": flow.target}, after=1, count=1)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.DRIVER, SentBy.TASKS]
    assert len(reasons(heard)) == 1


LARGE_BATCH = """
import json, resource, sys
from pyspark.sql import SparkSession
from yt_exactly_once import TransactionalSink
proxy, target, checkpoint, count = sys.argv[1:]
narrow = {"spark.driver.memory": "1g", "spark.driver.maxResultSize": "64m", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[2]").config(map=narrow).getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).option("numPartitions", 20)
wide = rows.load().selectExpr("value as id", "rpad(cast(value as string), 1000, 'x') as text")
heard = []
listen = lambda event, fields: heard.append(fields) if event == "batch.committed" else None
sink = TransactionalSink(target, proxy=proxy, rows_per_tablet_limit=4_000_000, listener=listen)
query = wide.writeStream.foreachBatch(lambda frame, number: number or sink(frame, number))
query = query.option("checkpointLocation", checkpoint).start()
while not heard:
    query.awaitTermination(1)
query.stop()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
print(json.dumps({"sent_by": heard[0]["sent_by"], "rows": heard[0]["rows"], "peak": peak}))
"""
"""A driver with a heap of 1 GB, which writes one batch of rows of 1 KB. A task of it has 50 MB.

Its executor is in the same heap, which holds what a task reports to the driver.
"""


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_million_wide_rows_pass_a_narrow_driver(tmp_path):
    """A gigabyte in one transaction; the driver's Python process stays small."""
    target, count = "//wide", 1_000_000
    limit = {"max_rows_per_transaction": 4_000_000}
    schema = columns({"id": "int64?", "text": "string?"})
    with LocalCluster() as cluster:
        client = cluster.client()
        create_table(client, target, schema, tablet_count=20, mount_config=limit)
        command = [sys.executable, "-c", LARGE_BATCH, cluster.proxy_urls[0], target, str(tmp_path)]
        done = subprocess.run([*command, str(count)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, [
            line[:500] for line in done.stderr.splitlines() if "yt_" in line
        ]
        told = json.loads(done.stdout.splitlines()[-1])
        assert (told["sent_by"], told["rows"]) == (SentBy.TASKS, count)
        assert told["peak"] <= 250, "MB"
        tablets = client.get_tablet_infos(target, tablet_indexes=list(range(20)))["tablets"]
        assert sum(tablet["total_row_count"] for tablet in tablets) == count
