"""Tasks that claim their partitions, on a real Spark: shuffles whose files are lost, killed attempts."""

import os
import time
import uuid
from pathlib import Path

import pytest

from tests.integration.test_rows_by_tasks import reasons, senders
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.errors import RepeatedTaskError
from yt_exactly_once.spark.modes import transactional
from yt_exactly_once.spark.modes.joined import JoinedInsertTask

WAIT_SECONDS = 60


def await_file(path):
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def shuffled(partitions):
    """Return a step that spreads the rows anew; a later stage then writes them."""
    return lambda frame: frame.repartition(partitions)


@pytest.mark.parametrize("is_sorted", first_of([False, True]))
def test_tasks_of_a_shuffle_claim_their_partitions(stream, is_sorted):
    """Nothing passes the driver, and a replay is skipped. Claims of each batch are rows of their own.

    The driver has claimed before the first batch, to see that it can.
    """
    flow = stream(rows=600, rows_per_partition=300, is_sorted=is_sorted)
    flow.change = shuffled(2)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.TASKS] * 2
    claims = list(flow.client.select_rows(f"* from [{flow.ledger}_claims]"))
    taken = [each["transaction"] for each in heard.of(Event.BATCH_COMMITTED)]
    found = {(row["transaction_id"], row["partition"]) for row in claims}
    assert found == {(one, number) for one in taken for number in (0, 1)} | {(taken[0], -1)}
    flow.forget_last_batch()
    assert flow.run(sent_by="tasks").count(Event.BATCH_SKIPPED) == 1
    flow.assert_exact()


def losing_task(folder, files):
    """Return a task that removes the shuffle files after its first chunk, and waits for a copy of itself.

    The tasks that begin afterwards find no files. So Spark runs both stages again, and starts attempt 0 of
    all tasks that have not ended.
    """
    lost, refused = folder / "lost", folder / "refused"

    class LosingTask(JoinedInsertTask):
        def run(self, batches, partition):
            written = super().run(batches, partition)
            try:
                first = next(written, None)
            except RepeatedTaskError:
                refused.touch()
                raise
            if first is not None:
                yield first
            if partition or lost.exists():
                await_file(lost)
                yield from written
                return
            for file in Path(files).rglob("shuffle_*"):
                file.unlink()
            lost.touch()
            await_file(refused)
            yield from written

    return LosingTask


@pytest.mark.further
@pytest.mark.own_spark
def test_shuffle_files_that_are_lost_while_tasks_write(spark, stream, tmp_path, monkeypatch):
    """The stage that writes runs again, with attempts 0 of tasks that have sent rows: these refuse.

    For lost files Spark gives up the whole executor. In local mode that is the driver, whose store of
    blocks never comes back: later jobs with results of over 1 MiB fail with "TaskResultLost".
    """
    task = losing_task(tmp_path, spark.conf.get("spark.local.dir"))
    monkeypatch.setattr(transactional, "JoinedInsertTask", task)
    flow = stream(rows=4_000, partitions=1, rows_per_partition=4_000, tablets=6)
    flow.change = shuffled(6)
    heard = flow.run(sent_by="tasks", dyn_batch_size=10)
    assert (tmp_path / "lost").exists()
    assert (tmp_path / "refused").exists()
    flow.assert_exact()
    assert len(reasons(heard)) == (senders(heard) == [SentBy.DRIVER])


def dying_task(folder):
    """Return a task whose process dies once: after its claim, and before its first row."""

    class DyingTask(JoinedInsertTask):
        def run(self, batches, partition):
            first = folder / f"{partition}"
            if not first.exists():
                first.touch()
                from yt_exactly_once.ytsaurus.transaction import TabletTransaction

                TabletTransaction.write = lambda *_: os._exit(1)
            yield from super().run(batches, partition)

    return DyingTask


def test_attempt_that_dies_between_its_claim_and_its_first_row(stream, tmp_path, monkeypatch):
    """Nobody else may write its partition: the batch goes through the driver, in another transaction."""
    monkeypatch.setattr(transactional, "JoinedInsertTask", dying_task(tmp_path))
    flow = stream(rows=200, partitions=1, rows_per_partition=100, tablets=2)
    flow.change = shuffled(2)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.DRIVER, SentBy.TASKS]


def test_attempt_that_dies_before_its_claim_is_repeated(stream, tmp_path):
    """It has sent nothing, so another attempt may write: unlike a job of one stage, which has no claims."""
    died = tmp_path / "died"

    def once(batches):
        for batch in batches:
            if not died.exists():
                died.touch()
                os._exit(1)
            yield batch

    flow = stream(rows=200, partitions=1, rows_per_partition=200, tablets=2)
    flow.change = lambda frame: frame.repartition(2).mapInArrow(once, frame.schema)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.TASKS]
    assert reasons(heard) == []


def fickle_task(flag):
    """Return a task that fails after its first chunk, and that has no rows when it is repeated."""

    class FickleTask(JoinedInsertTask):
        def run(self, batches, partition):
            if partition or flag.exists():
                yield from super().run([] if flag.exists() else batches, partition)
                return
            yield next(super().run(batches, partition))
            flag.touch()
            raise ZeroDivisionError

    return FickleTask


def test_repeated_attempt_without_rows_does_not_hide_those_of_the_first(
    stream, tmp_path, monkeypatch
):
    """It claims too, and is refused: otherwise the batch would be committed with the rows of one chunk."""
    monkeypatch.setattr(transactional, "JoinedInsertTask", fickle_task(tmp_path / "failed"))
    flow = stream(rows=100, partitions=1, rows_per_partition=100, tablets=1)
    flow.change = shuffled(1)
    heard = flow.run(sent_by="tasks", dyn_batch_size=10)
    flow.assert_exact()
    assert senders(heard) == [SentBy.DRIVER]


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
def test_claim_without_an_answer_is_found_or_taken_once_more(stream, faults, fault):
    """Its outcome shows in the table."""
    flow = stream(rows=100, partitions=1, rows_per_partition=100, tablets=2)
    flow.change = shuffled(2)
    # The first claim is that of the driver.
    faults.inject(fault, "insert_rows", match={"path": f"{flow.ledger}_claims"}, after=1, count=1)
    faults.inject(fault, "commit_transaction", after=2, count=1)
    heard = flow.run(sent_by="tasks")
    flow.assert_exact()
    assert senders(heard) == [SentBy.TASKS]


def test_user_who_may_not_claim_has_the_driver_send(stream, monkeypatch):
    """The event says why, and the rows of later batches do not try once more."""
    monkeypatch.setattr("yt_exactly_once.delivery.route.LARGE", 1)
    flow = stream(rows=300, rows_per_partition=100)
    flow.run()
    client, user = flow.client, f"robot-{uuid.uuid4().hex[:8]}"
    client.create("user", attributes={"name": user})
    for path in (flow.queue.path, flow.consumer, flow.target, flow.ledger):
        rule = {"action": "allow", "subjects": [user], "permissions": ["read", "write"]}
        client.set(f"{path}/@acl/end", rule)
    hidden = {"acl": [], "inherit_acl": False}
    client.create("table", f"{flow.ledger}_claims", attributes=hidden)
    flow.token = client.issue_token(user)
    flow.change = shuffled(2)
    flow.queue.append(300, 0)
    heard = flow.run()
    assert senders(heard) == [SentBy.DRIVER] * 3
    (retry,) = heard.of(Event.RETRY_SCHEDULED)
    assert retry["reason"] == "TasksRefusedError"
    assert "cannot claim" in retry["error"]
