"""The format yt, whose tasks send the rows: into a transaction that the first of them opens.

Spark plans, runs and commits a batch in processes of its own, which have no listener. So tests read what the
ledger and the table of claims say.
"""

import time
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException
from yt.wrapper import YtClient

from tests.flows import DEDUP
from tests.integration.test_rows_by_tasks_kept import EVEN, KEYED
from tests.tiers import first_of
from yt_exactly_once.commit.tally import SentBy

WAIT_SECONDS = 60
LATE_SECONDS = 2.0


def sent_by(flow):
    """Return who sent the rows of the newest batch, by the ledger."""
    (row,) = flow.client.select_rows(f"sent_by from [{flow.ledger}]")
    return row["sent_by"]


def tried(flow):
    """Return what is kept of the newest batch that tasks were to send."""
    rows = flow.client.select_rows(f"partition, owner from [{flow.ledger}_claims]")
    texts = [row["owner"].split() for row in rows if row["partition"] == -1]
    return [(SentBy(text[0]), text[2]) for text in texts]


def shuffled(partitions):
    """Return a step that spreads the rows anew; a later stage then writes them."""
    return lambda frame: frame.repartition(partitions)


@pytest.mark.parametrize("is_sorted", first_of([False, True]))
def test_tasks_of_the_format_send_the_rows_and_a_replay_is_skipped(stream, is_sorted):
    """Rows, offsets and the ledger entry are in one transaction, as when the commit sends them."""
    flow = stream(rows=600, rows_per_partition=300, is_sorted=is_sorted, tablets=4)
    flow.options["digest"] = True
    flow.change = shuffled(3)
    flow.write(sent_by="tasks")
    flow.assert_proven()
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS
    flow.forget_last_batch()
    flow.write(sent_by="tasks")
    assert flow.wrong() == ""
    flow.write(sent_by="auto")
    flow.queue.append(100, 0)
    flow.write(sent_by="auto")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.DRIVER


def test_state_by_tasks_is_that_of_all_rows(stream):
    """A batch that fails takes its state with it: the next run begins from the one before."""
    flow = stream(DEDUP, rows=900, rows_per_partition=300)
    flow.write(sent_by="tasks", dyn_batch_size=50)
    assert sent_by(flow) == SentBy.TASKS
    flow.forget_last_batch()
    flow.queue.append(200, 0)
    flow.write(sent_by="tasks", dyn_batch_size=50)
    assert flow.wrong() == ""


def test_complete_result_of_the_format_by_tasks(stream):
    """The commit deletes what no task has reported."""
    flow = stream(EVEN, rows=220, partitions=1, rows_per_partition=55, is_sorted=True)
    flow.write(sent_by="tasks", write="replace")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


def test_keys_that_must_not_meet_end_the_query(stream):
    """By the hashes that tasks report. The next run sends the rows by the driver, and finds the same."""
    flow = stream(KEYED, rows=300, partitions=2, is_sorted=True)
    flow.change = shuffled(2)
    flow.fail("DuplicateKeyError", by_format=True, sent_by="tasks", unique_keys=True)
    assert tried(flow) == [(SentBy.TASKS, "failed")]
    flow.fail("DuplicateKeyError", by_format=True, sent_by="tasks", unique_keys=True)
    assert tried(flow) == [(SentBy.DRIVER, "planned")]
    flow.assert_untouched()


def failing_once(flow, flag):
    """Return a step whose task of partition 0 fails once, after another step has sent a chunk of its rows."""
    proxy, claims = flow.cluster.proxy_urls[0], f"{flow.ledger}_claims"

    def rows(batches):
        from pyspark import TaskContext

        partition = TaskContext.get().partitionId()
        for number, batch in enumerate(batches):
            # Spark holds back what is less than a few batches.
            if number == 5 and partition == 0 and not flag.exists():
                client = YtClient(proxy)
                deadline = time.monotonic() + WAIT_SECONDS
                while time.monotonic() < deadline:
                    known = client.select_rows(f"partition from [{claims}]")
                    if 0 in {row["partition"] for row in known}:
                        break
                flag.touch()
                raise ZeroDivisionError
            yield batch

    return lambda frame: frame.repartition(2).mapInArrow(rows, frame.schema)


def test_failed_job_ends_the_query_and_its_batch_goes_through_the_driver(
    stream, tmp_path, arrow_rows
):
    """The rows that a task has sent are gone with the transaction. Later batches go by tasks again."""
    arrow_rows(1_000)
    flow = stream(rows=20_000, partitions=1, rows_per_partition=20_000, tablets=2)
    flow.change = failing_once(flow, tmp_path / "failed")
    flow.fail("RepeatedTaskError", by_format=True, sent_by="tasks", dyn_batch_size=500)
    assert (tmp_path / "failed").exists()
    assert tried(flow) == [(SentBy.TASKS, "failed")]
    flow.assert_untouched()
    flow.write(sent_by="tasks")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.DRIVER
    flow.queue.append(200, 0)
    flow.write(sent_by="tasks")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


def test_batch_that_does_not_fit_the_driver_goes_by_tasks_in_the_next_run(spark, stream):
    """Spark ends the query; what it has tried is kept."""
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    flow = stream(rows=10_000, rows_per_partition=10_000)
    conf.set(name, "64k")
    try:
        with pytest.raises(StreamingQueryException, match=r"spark\.driver\.maxResultSize"):
            flow.write()
        assert tried(flow) == [(SentBy.DRIVER, "failed")]
        flow.write()
    finally:
        conf.remove(name)
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


def test_more_tasks_than_tablets_are_refused_in_order_and_sent_in_turns(stream):
    """With round_robin order between Spark partitions does not matter, so tasks share tablets."""
    flow = stream(rows=300, partitions=1, rows_per_partition=300, tablets=2)
    flow.change = shuffled(3)
    refused = flow.fail("TasksRefusedError", by_format=True, sent_by="tasks")
    assert "use placement='round_robin'" in refused
    flow.assert_untouched()
    flow.write(sent_by="tasks", placement="round_robin")
    assert sent_by(flow) == SentBy.DRIVER
    flow.queue.append(300, 0)
    flow.write(sent_by="tasks", placement="round_robin")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


@pytest.mark.parametrize("fault", first_of(["lose_answer", "hold", "lose_request"]))
def test_insert_of_a_task_without_an_answer_is_not_sent_again(stream, faults, fault):
    """It may have arrived, or arrive after the next run. That one sends the rows in another transaction."""
    flow = stream(rows=200, partitions=1, rows_per_partition=200, tablets=2)
    # The first insert is empty: it asks whether the cluster takes Arrow.
    late = {"match": {"path": flow.target}, "after": 1, "seconds": LATE_SECONDS}
    faults.inject(fault, "insert_rows", **late)
    with pytest.raises(StreamingQueryException):
        flow.write(sent_by="tasks")
    flow.assert_untouched()
    faults.clear_faults()
    flow.write(sent_by="tasks")
    time.sleep(LATE_SECONDS * (fault == "hold"))
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.DRIVER


def test_commit_without_an_answer_is_found_in_the_ledger(stream, faults):
    """In the run that has sent it; its rows were sent by tasks, once."""
    flow = stream(rows=200, partitions=1, rows_per_partition=200, tablets=2)
    # The first commits are those of what is tried, of the claim of the transaction, and of a partition.
    faults.inject("lose_answer", "commit_transaction", after=3, count=1)
    flow.write(sent_by="tasks")
    assert flow.wrong() == ""
    assert sent_by(flow) == SentBy.TASKS


def test_job_by_tasks_is_written_once(stream, spark):
    """The repeated job is found in the ledger."""
    flow = stream(rows=200, partitions=1, tablets=2)
    given = {"proxy": flow.cluster.proxy_urls[0], "application": "backfill", "sent_by": "tasks"}

    def write(version, count):
        rows = spark.range(count, numPartitions=2).selectExpr(
            *(f"cast(id as {kind}) as `{name}`" for name, kind in job_columns(flow).items())
        )
        rows.write.format("yt").options(**given, version=version).mode("append").save(flow.target)

    write(1, 50)
    write(1, 50)
    assert len(flow.found()) == 50
    assert sent_by(flow) == SentBy.TASKS
    write(2, 25)
    assert len(flow.found()) == 75


def job_columns(flow):
    return {field.name: field.dataType.simpleString() for field in flow.frame().schema}


def test_option_of_the_driver_is_refused_where_tasks_always_write(stream):
    flow = stream(
        replace(KEYED, build=lambda frame: frame.selectExpr("id as key", "value")), rows=9
    )
    flow.fail("ConfigError", by_format=True, sent_by="driver", mode="at-least-once")
