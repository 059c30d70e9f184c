"""Tasks that fail, workers that die, and the order of rows: what Spark repeats must not show."""

import threading

import pytest

from tests.integration.streams import counted
from tests.tiers import first_of
from yt_exactly_once import Event


def interrupted(how, *, after=0, seen=None):
    """Return a change of a frame whose first task attempts break down in the middle of partition 1.

    What travels to the workers is defined inside: they cannot import a test module.

    Args:
        after: Arrow batches that pass before.
        seen: wait until rows of tablet 1 can be read, given the proxy and the path of the target.
    """

    def wait_for_rows(proxy, path):

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
def test_frame_is_evaluated_once_whatever_the_attempts(stream, faults, spark):
    """Attempts send the payloads of one evaluation: a second one would commit Spark's state twice."""
    change, seen = counted(spark)
    flow = stream(change=change)
    faults.inject("lose_request", "commit_transaction", count=3)
    told = flow.run()
    assert told.count(Event.RETRY_SCHEDULED) == 3
    assert seen.value == 6_000
    flow.assert_exact()
