"""Batches whose rows are computed once and kept, before tasks send them: a state, or several targets."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.flows import AGGREGATION, STATELESS, Query, differences
from tests.integration.streams import Heard, finish
from tests.integration.test_rows_by_tasks import reasons, senders
from yt_exactly_once import Event, Target, TransactionalSink
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery import route
from yt_exactly_once.spark.modes import transactional
from yt_exactly_once.spark.modes.joined import JoinedInsertTask


def failing_task(flag):
    """Return a task whose first attempts fail after a chunk, as often as Spark tries one."""

    class FailingTask(JoinedInsertTask):
        def run(self, batches, partition):
            for report in super().run(batches, partition):
                yield report
                if not flag.exists():
                    flag.touch()
                    raise ZeroDivisionError

    return FailingTask


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_send_what_a_state_gives_and_a_failure_computes_nothing_again(
    stream, tmp_path, monkeypatch, fails
):
    """The driver sends the kept rows. A batch that was evaluated twice would count its rows twice."""
    if fails:
        monkeypatch.setattr(transactional, "JoinedInsertTask", failing_task(tmp_path / "failed"))
    flow = stream(AGGREGATION, rows=900, rows_per_partition=300, is_sorted=True)
    heard = flow.run(sent_by="tasks", dyn_batch_size=5)
    flow.assert_exact()
    first = SentBy.DRIVER if fails else SentBy.TASKS
    assert senders(heard) == [first, SentBy.TASKS, SentBy.TASKS]
    assert len(reasons(heard)) == fails
    flow.forget_last_batch()
    flow.queue.append(200)
    assert flow.run(sent_by="tasks").count(Event.BATCH_SKIPPED) == 1
    flow.assert_exact()


def test_large_results_of_a_state_go_by_tasks(stream, monkeypatch):
    """As those of any query, once the size of one batch is known."""
    monkeypatch.setattr(route, "LARGE", 1)
    flow = stream(AGGREGATION, rows=900, rows_per_partition=300, is_sorted=True)
    assert senders(flow.run()) == [SentBy.DRIVER, SentBy.TASKS, SentBy.TASKS]
    flow.assert_exact()


def test_state_that_does_not_fit_the_driver_says_how_to_start_again(spark, stream):
    """Its rows cannot be computed a second time in the run. The replay goes by tasks."""
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    flow = stream(AGGREGATION, rows=9_000, rows_per_partition=9_000, is_sorted=True)
    flow.change = lambda frame: frame.selectExpr("* except (key)", "id as key")
    conf.set(name, "8k")
    try:
        assert "sent_by='tasks'" in flow.fail("BatchTooLargeError")
        heard = flow.run(sent_by="tasks")
    finally:
        conf.remove(name)
    assert senders(heard) == [SentBy.TASKS]
    assert sum(row[1] for row in flow.found()) == 27_000


@pytest.fixture
def two(stream, client, tmp):
    """Two targets: all rows, and the odd ones brought together by their key."""
    flow = stream(rows=600, rows_per_partition=300)
    flow.other = STATELESS.create_target(client, f"{tmp}/other", is_sorted=True)
    odd = Target(
        flow.other, transform=lambda frame: frame.where("id % 2 = 1").repartition(2, "key")
    )

    def run(**options):
        heard = Heard()
        given = {"proxy": flow.cluster.proxy_urls[0], "ledger_path": flow.ledger, "listener": heard}
        finish(flow.start(TransactionalSink([Target(flow.target), odd], **given, **options)))
        return heard

    flow.run_both = run
    return flow


def wrong_in_the_other(flow):
    rows = [row for row in STATELESS.expected(flow.queue, 0) if row[2] % 2]
    return differences(STATELESS.found(flow.client, flow.other), sorted(rows))


@pytest.mark.parametrize("fails", [False, True])
def test_several_targets_by_tasks_change_together(two, tmp_path, monkeypatch, fails):
    """One job for each over the same rows, which are computed once; a failed job takes back both."""
    if fails:
        monkeypatch.setattr(transactional, "JoinedInsertTask", failing_task(tmp_path / "failed"))
    heard = two.run_both(sent_by="tasks", dyn_batch_size=50)
    assert two.wrong() == ""
    assert wrong_in_the_other(two) == ""
    assert senders(heard)[-1] == SentBy.TASKS
    assert (SentBy.DRIVER in senders(heard)) is fails
    written = heard.of(Event.ROWS_WRITTEN)
    assert {fields["path"] for fields in written} == {two.target, two.other}


KEYED = Query(
    "keyed", {"key": "int64?", "value": "int64?"}, ("key",), "append",
    lambda frame: frame.select("key", "value"), lambda *_: [],
)  # fmt: skip


def marked(frame):
    return frame.selectExpr("key", "value", "false as gone")


@pytest.mark.parametrize(
    ("options", "build", "error"),
    [
        ({"unique_keys": True}, KEYED.build, "DuplicateKeyError"),
        ({"delete_marker": "gone"}, marked, "AmbiguousOrderError"),
    ],
)
def test_keys_that_must_not_meet_are_found_over_tasks(stream, options, build, error):
    """By hashes that each task reports; nothing is written."""
    flow = stream(replace(KEYED, build=build), rows=300, partitions=2, is_sorted=True)
    flow.fail(error, sent_by="tasks", **options)
    flow.assert_untouched()


EVEN = Query(
    "even totals", {"key": "int64?", "n": "int64"}, ("key",), "complete",
    lambda frame: frame.selectExpr("id % 50 as key").groupBy("key").count()
    .where("count % 2 = 0").selectExpr("key", "count as n"),
    lambda queue, _: [
        row for row in Counter(each["id"] % 50 for each in queue.all_rows()).items() if not row[1] % 2
    ],
)  # fmt: skip
"""A result that loses rows from batch to batch."""


def test_complete_result_by_tasks_replaces_the_one_before(stream):
    """The driver deletes what no task has reported, by the hashes of keys; rows of the result stay."""
    flow = stream(EVEN, rows=220, partitions=1, rows_per_partition=55, is_sorted=True)
    heard = flow.run(sent_by="tasks", write="replace", dyn_batch_size=5)
    flow.assert_exact()
    assert set(senders(heard)) == {SentBy.TASKS}
    assert sum(fields["replaced"] for fields in heard.of(Event.ROWS_WRITTEN)) > 0
    flow.forget_last_batch()
    assert flow.run(sent_by="tasks", write="replace").count(Event.BATCH_SKIPPED) == 1
    flow.assert_exact()


def test_unique_keys_go_by_tasks(stream):
    """Each is there once, in whatever task."""
    query = replace(KEYED, build=lambda frame: frame.selectExpr("id as key", "value"))
    flow = stream(query, rows=300, partitions=1, rows_per_partition=300, is_sorted=True)
    flow.change = lambda frame: frame.repartition(2)
    heard = flow.run(sent_by="tasks", unique_keys=True, dyn_batch_size=40)
    assert senders(heard) == [SentBy.TASKS]
    assert len(flow.found()) == 300
