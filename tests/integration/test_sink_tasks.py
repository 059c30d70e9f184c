"""Tasks that fail, workers that die, and the order of rows: what Spark repeats must not show."""

from __future__ import annotations

import threading

import pytest

from tests.flows import AGGREGATION, passed_on
from tests.integration.streams import counted, finish
from tests.tiers import first_of
from yt_exactly_once import Event


def interrupted(how, *, after=0, seen=None):
    """Return a change of a frame whose first task attempts break down in the middle of partition 1.

    What travels to the workers is defined inside: they cannot import a test module.

    Args:
        how: the way to break down.
        after: Arrow batches that pass before.
        seen: wait until rows of tablet 1 can be read, given the proxy and the path of the target.
    """

    def wait_for_rows(proxy, path):
        import threading

        from yt.wrapper import YtClient

        client, pause = YtClient(proxy), threading.Event()
        while not client.get_tablet_infos(path, [1])["tablets"][0]["total_row_count"]:
            pause.wait(0.05)

    def break_down():
        import os
        import signal

        if seen:
            wait_for_rows(*seen)
        if how == "worker is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("the task fails once, on purpose")

    def change(frame):
        def half_of_it(batches):
            from pyspark import TaskContext

            context = TaskContext.get()
            for number, batch in enumerate(batches):
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                unlucky = context.partitionId() == 1 and context.attemptNumber() == 0
                if unlucky and number == after:
                    break_down()
                yield batch.slice(half)

        return frame.mapInArrow(half_of_it, frame.schema)

    return change


@pytest.mark.parametrize("how", first_of(["task fails", "worker is killed"]))
def test_task_broken_down_in_the_middle_leaves_an_ordered_target_right(stream, how):
    """The rows of the broken attempt and those of the next one are the same rows, and come once."""
    flow = stream(rows=4_000, rows_per_partition=2_000, change=interrupted(how))
    told = flow.run(dyn_batch_size=300)
    assert told.count(Event.BATCH_COMMITTED) == 2
    flow.assert_exact()


@pytest.mark.nightly
def test_task_broken_down_under_an_aggregation_leaves_its_totals_right(stream):
    """State is made from one attempt of each task."""
    flow = stream(
        AGGREGATION,
        is_sorted=True,
        rows=4_000,
        rows_per_partition=2_000,
        change=interrupted("task fails"),
    )
    flow.run()
    flow.assert_exact()


@pytest.mark.nightly
def test_rows_written_by_the_tasks_themselves_would_be_noticed(stream):
    """What the detour over the driver protects from: a repeated task writes its first rows again."""
    flow = stream(rows=50_000, rows_per_partition=50_000)
    seen = (flow.cluster.proxy_urls[0], flow.target)
    flow.change = interrupted("task fails", after=3, seen=seen)
    flow.run(mode="at-least-once", dyn_batch_size=300)
    assert flow.wrong().startswith("0 lost, e.g. []; ")


@pytest.mark.nightly
def test_producer_session_taken_over_in_the_middle_of_a_push_costs_one_retry(stream, faults):
    """As by a task of a stopped driver that wakes up: the survivor takes the session back."""

    def at_first(frame):
        def check(batches):
            from pyspark import TaskContext

            assert TaskContext.get().attemptNumber() == 0, "Spark repeats the task"
            yield from batches

        return frame.mapInArrow(check, frame.schema)

    flow = stream(partitions=1, rows=1_000, change=at_first, options={"digest": True})
    flow.run(mode="idempotent")
    flow.queue.append(1_000)
    producer = f"{flow.target}_producer"
    (session,) = flow.client.select_rows(f"session_id from [{producer}]")
    here = {"queue_path": flow.target}
    faults.inject("delay", "push_queue_producer", match=here, seconds=1)
    faults.inject("delay", "create_queue_producer_session", match=here, count=None)
    query = flow.start(flow.sink(mode="idempotent"))
    wait_for_hit(faults)
    flow.client.create_queue_producer_session(producer, flow.target, session["session_id"])
    finish(query)
    pushes, takeovers = faults.faults()
    assert (pushes["seen"], takeovers["seen"]) == (2, 3)
    flow.assert_exact()


def wait_for_hit(cluster):
    """Wait until the first fault has met a request."""
    pause = threading.Event()
    while not cluster.faults()[0]["hits"]:
        pause.wait(0.02)


@pytest.mark.nightly
def test_order_is_kept_with_one_partition(stream):
    """Row i of the queue is row i of the target, over many batches, chunks and connections."""
    flow = stream(partitions=1, rows=10_000, rows_per_partition=1_000)
    told = flow.run(dyn_batch_size=97, connections=4)
    assert told.count(Event.BATCH_COMMITTED) == 10
    rows = flow.client.select_rows(f"[$row_index], row from [{flow.target}]")
    assert [(found["$row_index"], found["row"]) for found in rows] == [
        (number, number) for number in range(10_000)
    ]


@pytest.mark.nightly
def test_order_of_every_partition_is_kept_in_a_tablet_of_its_own(stream):
    """Partitions that all move stay apart and in order."""
    flow = stream(rows=3_000, rows_per_partition=500)
    flow.run(dyn_batch_size=97)
    rows = flow.client.select_rows(f"[$tablet_index], [$row_index], part, row from [{flow.target}]")
    found = {(row["$tablet_index"], row["$row_index"]): (row["part"], row["row"]) for row in rows}
    assert found == {row[:2]: row[:2] for row in passed_on(flow.queue)}


@pytest.mark.nightly
def test_frame_is_evaluated_once_whatever_the_attempts(stream, faults, spark):
    """Attempts send the payloads of one evaluation: a second one would commit Spark's state twice."""
    change, seen = counted(spark)
    flow = stream(change=change)
    faults.inject("lose_request", "commit_transaction", count=3)
    told = flow.run()
    assert told.count(Event.RETRY_SCHEDULED) == 3
    assert seen.value == 6_000
    flow.assert_exact()
