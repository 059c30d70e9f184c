"""Tasks of the format yt that wake up when nobody waits for them, or that compute for longer than a lease.

Spark plans a batch in a process of its own, so a format of the test gives the tasks what they do.
"""

import os
import signal
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.integration.streams import finish
from tests.integration.test_format_by_tasks import sent_by
from yt_exactly_once import config
from yt_exactly_once.commit import claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.observability import emitter
from yt_exactly_once.spark.data_source import YtDataSource
from yt_exactly_once.spark.modes import transactional
from yt_exactly_once.spark.modes.joined import JoinedInsertTask

pytestmark = pytest.mark.further

WAIT_SECONDS = 60
ROWS_PER_REQUEST = 50


def await_file(path):
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


@pytest.fixture
def altered(spark, stream):
    """Make a query that writes with the format, whose tasks are of another class."""

    def make(task, **given):
        flow = stream(**given)
        flow.form = name_of_format = f"yt_{uuid.uuid4().hex[:8]}"

        class Altered(YtDataSource):
            @classmethod
            def name(cls):
                return name_of_format

            def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
                usual, transactional.JoinedInsertTask = transactional.JoinedInsertTask, task
                try:
                    return super().streamWriter(schema, overwrite)
                finally:
                    transactional.JoinedInsertTask = usual

        spark.dataSource.register(Altered)
        flow.options |= {"sent_by": "tasks", "dyn_batch_size": ROWS_PER_REQUEST}
        return flow

    return make


def stranded_task(folder, *, has_claimed):
    """Return a task of partition 0 whose first attempt fails, and leaves a process behind.

    That process is out of reach for Spark. It has the rows of the task, and stops before it sends them.

    Args:
        has_claimed: whether it wakes as the owner of the partition, of which a chunk was sent; or it has not
            claimed yet.
    """
    awake, claimed, told = (folder / name for name in ("awake", "claimed", "told"))

    class StrandedTask(JoinedInsertTask):
        def run(self, batches, partition):
            rows = list(batches)
            if partition or awake.exists():
                yield from super().run(rows, partition)
                (folder / f"{partition}").touch()
                return
            pid = os.fork()
            if not pid:
                os.kill(os.getpid(), signal.SIGSTOP)
                late = self
                if has_claimed:
                    opened = OpenTransaction(*claimed.read_text().split())
                    late = replace(self, transaction=opened, claims=None)
                try:
                    text = str(len(list(JoinedInsertTask.run(late, rows, partition))))
                except ExactlyOnceError as error:
                    text = type(error).__name__
                told.write_text(text)
                os._exit(0)
            os.waitpid(pid, os.WUNTRACED)
            awake.write_text(str(pid))
            if has_claimed:
                yield next(super().run(rows, partition))
                emit = emitter(target=self.settings.target.path)
                opened = self.claims.open(self.settings.connection, self.settings.retry, emit)
                claimed.write_text(f"{opened.id} {opened.proxy}")
                if (folder / "waits").exists():
                    await_file(folder / "1")
            raise ZeroDivisionError

    return StrandedTask


@pytest.fixture
def wake(tmp_path):
    """Wake the process that a task has left behind; return what it says in the end."""

    def call():
        os.kill(int((tmp_path / "awake").read_text()), signal.SIGCONT)
        await_file(tmp_path / "told")
        time.sleep(0.1)
        return (tmp_path / "told").read_text()

    yield call
    with suppress(OSError):
        os.kill(int((tmp_path / "awake").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("when", ["after the abort", "after the commit", "in the next batch"])
def test_owner_of_a_partition_that_wakes_finds_no_transaction(
    altered, faults, tmp_path, wake, when
):
    """Spark aborted its batch, and the next run wrote it in another transaction."""
    (tmp_path / "waits").touch()
    task = stranded_task(tmp_path, has_claimed=True)
    flow = altered(task, rows=600, rows_per_partition=300, partitions=2)
    flow.fail("RepeatedTaskError", by_format=True)
    flow.assert_untouched()
    if when == "after the abort":
        assert wake() == "TransactionLostError"
        flow.assert_untouched()
    # The first batch goes through the driver now, and the second one by tasks.
    faults.inject(
        "delay", "commit_transaction", writes_to=flow.ledger, after=1, count=1, seconds=3.0
    )
    running = flow.start_writer()
    if when == "in the next batch":
        deadline = time.monotonic() + WAIT_SECONDS
        while not flow.cluster.faults()[0]["hits"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert wake() == "TransactionLostError"
    finish(running)
    if when == "after the commit":
        assert wake() == "TransactionLostError"
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


def test_attempt_that_wakes_before_its_claim_finds_the_partition_claimed(altered, tmp_path, wake):
    """Another attempt has written it, and the batch is committed."""
    task = stranded_task(tmp_path, has_claimed=False)
    flow = altered(task, rows=300, rows_per_partition=300, partitions=2)
    flow.write()
    assert sent_by(flow) == SentBy.TASKS
    assert flow.wrong() == ""
    assert wake() == "RepeatedTaskError"
    assert flow.wrong() == ""


def test_rows_of_an_owner_whose_plan_has_failed_are_never_committed(altered, tmp_path, wake):
    """No task has named the transaction to Spark, so it stays open until its lease ends."""
    task = stranded_task(tmp_path, has_claimed=True)
    flow = altered(task, rows=300, rows_per_partition=300, partitions=1, tablets=2)
    flow.fail("RepeatedTaskError", by_format=True)
    assert int(wake()) == 300 // ROWS_PER_REQUEST
    flow.assert_untouched()
    flow.write()
    assert flow.wrong() == ""


def patient_task(folder, *, renews):
    """Return a task of partition 0 that computes longer than a lease: before its first row, and after it."""

    class PatientTask(JoinedInsertTask):
        def run(self, batches, partition):
            usual = config.LEASE
            config.LEASE = claims.LEASE = timedelta(seconds=3)

            def slowly():
                if not partition:
                    # Another task has opened the transaction, sent its rows and ended.
                    await_file(folder / "1")
                    time.sleep(8)
                for number, batch in enumerate(batches):
                    if number == 1 and not partition:
                        time.sleep(8)
                    yield batch

            try:
                yield from super().run(slowly(), partition)
            except ExactlyOnceError as error:
                with (folder / "errors").open("a") as errors:
                    errors.write(f"{type(error).__name__}\n")
                raise
            finally:
                config.LEASE = claims.LEASE = usual
            (folder / f"{partition}").touch()

        def _renew(self):
            if renews:
                super()._renew()

    return PatientTask


@pytest.mark.parametrize("renews", [True, False])
def test_lease_is_renewed_while_a_task_has_nothing_to_send(altered, tmp_path, arrow_rows, renews):
    """Of the transaction that another one has opened, and that has its rows. Otherwise the batch is lost."""
    arrow_rows(ROWS_PER_REQUEST)
    task = patient_task(tmp_path, renews=renews)
    flow = altered(task, rows=200, rows_per_partition=200, partitions=2)
    if renews:
        flow.write()
        assert flow.wrong() == ""
        assert sent_by(flow) == SentBy.TASKS
        return
    flow.fail("RepeatedTaskError", by_format=True)
    assert (tmp_path / "errors").read_text().split()[0] == "TransactionLostError"
    flow.assert_untouched()
