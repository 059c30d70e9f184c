"""The story of a batch: in which order its steps come, and what follows when one fails."""

from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from yt_exactly_once import Changes, Event, SinkOptions, Target
from yt_exactly_once.commit.batch import MicroBatch, TargetColumns
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.commit.transactional import BatchCommit, Committed
from yt_exactly_once.delivery.memory import Memory, Prepared
from yt_exactly_once.delivery.route import LARGE
from yt_exactly_once.errors import (
    BatchTooLargeError,
    ClusterUnavailableError,
    ConfigError,
    ConflictError,
    FencedError,
    RequestRefusedError,
    TasksRefusedError,
)
from yt_exactly_once.spark.engine import engine, look_up, preparation
from yt_exactly_once.spark.engine.by_table import _tables_of
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.engine.look_up import Found
from yt_exactly_once.spark.engine.run import Rows
from yt_exactly_once.spark.modes.mode import Assignment, Mode
from yt_exactly_once.spark.query.calls import Calls
from yt_exactly_once.spark.query.offset_log import RunningBatch
from yt_exactly_once.spark.sink import targets
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError

ROWS = TargetRows("//t", (), "yson", 3)


class Scripted(Mode):
    """A mode whose rows come as a test says, and that notes what it is asked."""

    one_transaction = True

    def __init__(self, **options):
        super().__init__(SinkOptions("//t", proxy="localhost:1", **options), None)
        self.connection = SimpleNamespace(unpin=lambda: None)
        self.done, self.failures, self.rows = [], [], [ROWS]

    def check(self):
        """See `Mode.check`."""

    def begun_sessions(self, *_, **__):
        """See `Mode.begun_sessions`."""
        return {}

    def assign(self, given):
        return Assignment(given, (), by_ends=given.by_ends)

    def finish(self, assignment, arrived):  # noqa: ARG002 - the interface
        given = assignment.given
        ends = " by ends" if given.by_ends else ""
        self.done.append(("tasks" if given.transaction else "driver") + ends)
        if self.failures and (failure := self.failures.pop(0)):
            raise failure
        given.first()
        return self.rows


class Rowless(Rows):
    """Rows that nobody computes."""

    schema = StructType()

    def schema_for(self, target):  # noqa: ARG002 - the interface
        return self.schema

    def compute(self, assignment):  # noqa: ARG002 - the interface
        return ()

    def pass_over(self):
        """See `Rows.pass_over`."""


@pytest.fixture
def deliver(monkeypatch):
    """Let a scripted mode deliver batch 7, and return what it has remembered and emitted."""
    mode, emitted, found = Scripted(), [], {}
    opened = SimpleNamespace(
        transaction=lambda: SimpleNamespace(id="1-2", proxy="p", kept_alive=lambda _: no_block()),
        read=lambda: (None, []),
    )

    @contextmanager
    def no_block():
        yield

    def ask(*_, **__):
        mode.done.append("ask")
        return Found(**found)

    def commit(_self, _parts, _resumed):
        mode.done.append("commit")
        if mode.failures and (failure := mode.failures.pop(0)):
            raise failure
        return Committed("1-2", 1)

    monkeypatch.setattr(look_up, "look_up", ask)
    monkeypatch.setattr(BatchCommit, "begin_ahead", lambda *_: opened)
    monkeypatch.setattr(BatchCommit, "leave_ahead", lambda _: mode.done.append("leave"))
    monkeypatch.setattr(BatchCommit, "commit", commit)

    def run(
        *failures,
        several=False,
        replay=False,
        stateful=False,
        age=0.0,
        ended=False,
        problem=None,
        **known,
    ):
        mode.failures, mode.one_transaction = list(failures), not several
        found.update(is_replay=replay)
        target = SimpleNamespace(
            path="//t",
            is_sorted=False,
            options=None,
            spreads_partitions=True,
            tablet_count=2,
            wanted=None,
            columns=TargetColumns(),
        )
        engine = Engine(mode)
        engine._calls = Calls()
        engine._listener = lambda event, fields: emitted.append((event, fields))
        batch = MicroBatch("query", 7, "run", stateful=stateful)
        engine._memories.keep(
            batch,
            Memory("run", Prepared(StructType(), (target,), "id", monotonic() - age), **known),
        )
        notes = SimpleNamespace(add=lambda *_: None)
        log = SimpleNamespace(
            identify=lambda _: batch,
            has_ended=lambda _: ended,
            notes=notes,
            ranges=None,
            query_name="orders",
        )
        run.engine, run.memory = engine, lambda: engine._memories.of(batch)
        engine.deliver(RunningBatch("query", "run", 7, log, problem=problem), Rowless())
        return [step for step in mode.done if step != "leave"]

    run.mode, run.emitted = mode, emitted
    return run


@pytest.mark.parametrize(("known", "order"), [
    ({}, ["ask", "driver", "commit"]),
    ({"agreed": 6}, ["driver", "commit"]),
    ({"agreed": 7}, ["ask", "driver", "commit"]),
    ({"replay": True}, ["ask"]),
    ({"several": True, "agreed": 6, "bytes": 1}, ["driver by ends", "ask", "commit"]),
    ({"several": True, "agreed": 6, "bytes": LARGE}, ["ask", "driver", "commit"]),
    ({"several": True, "bytes": 1}, ["ask", "driver by ends", "commit"]),
])  # fmt: skip
def test_ledger_is_asked_before_anything_is_written(deliver, known, order):
    """While Spark computes, where all rows come to the driver, and this run has written the batch before."""
    assert deliver(**known) == order


def test_event_of_a_batch_says_how_long_each_step_took(deliver):
    """The rest is what Spark takes between the batches."""
    deliver()
    assert list(deliver.emitted[-1][1]["seconds"]) == ["look_up", "compute", "commit"]


@pytest.mark.parametrize("rejected", [0, 2])
def test_rejected_rows_are_an_event(deliver, rejected):
    """Of a batch without any there is none."""
    letters = TargetRows("//letters", (), "yson", rejected, rejected_by="//t")
    deliver.mode.rows = [ROWS, letters][: 2 if rejected else 1]
    deliver()
    told = [fields["rows"] for event, fields in deliver.emitted if event == Event.ROWS_REJECTED]
    assert told == [rejected] * bool(rejected)


def test_batch_that_another_run_wrote_while_it_was_computed_is_skipped(deliver):
    """A ledger that has it by then stops the driver before its first request."""
    steps = deliver(several=True, agreed=6, bytes=1, replay=True)
    assert steps == ["driver by ends", "ask", "ask"]


@pytest.mark.parametrize(
    "error", [TasksRefusedError("a shuffle"), ConflictError("a task"), OSError("x")]
)
def test_rows_that_tasks_could_not_send_go_through_the_driver(deliver, error):
    """In the next batches too, if the reason lies in the query. The retry is an event."""
    assert deliver(error, agreed=6, bytes=LARGE) == ["tasks", "driver", "commit"]
    retried = [
        fields["reason"] for event, fields in deliver.emitted if event == Event.RETRY_SCHEDULED
    ]
    assert retried == [type(error).__name__]
    assert bool(deliver.memory().refusal) == isinstance(error, TasksRefusedError)


@pytest.mark.parametrize(("error", "again"), [
    (ClusterUnavailableError("gone"), True), (RequestRefusedError("no"), True), (FencedError("late"), False),
])  # fmt: skip
def test_commit_of_rows_that_tasks_sent_is_tried_once_and_then_they_come_to_the_driver(
    deliver, error, again
):
    """Unless another run owns the ledger."""
    if again:
        steps = deliver(None, error, agreed=6, bytes=LARGE)
        assert steps == ["tasks", "commit", "driver", "commit"]
    else:
        with pytest.raises(type(error)):
            deliver(None, error, agreed=6, bytes=LARGE)


def test_rows_too_large_for_the_driver_go_by_tasks_from_then_on(deliver):
    """Spark says so by the name of its setting."""
    too_large = RuntimeError("bigger than spark.driver.maxResultSize")
    assert deliver(too_large, agreed=6) == ["driver", "tasks", "commit"]
    assert deliver.memory().too_large
    assert deliver.mode.done.count("leave") == 2, "the first transaction, and the last"


def test_rows_for_the_tasks_are_looked_up_before_tasks_send_them(deliver):
    """The driver had put the look-up off until all rows would be here, and they never came."""
    too_large = RuntimeError("bigger than spark.driver.maxResultSize")
    steps = deliver(too_large, several=True, agreed=6, bytes=1)
    assert steps == ["driver by ends", "ask", "driver", "commit"]


@pytest.mark.parametrize("error", [PartitionsUnknownError(), BatchTooLargeError("a tablet")])
def test_rows_whose_partitions_are_not_told_apart_are_computed_again(deliver, error):
    """With the numbers of the partitions, in later batches too."""
    assert deliver(error, agreed=6, bytes=1) == ["driver by ends", "driver", "commit"]
    assert deliver.memory().uneven


def test_failure_of_the_rows_is_raised_as_it_is_unless_the_batch_is_written(deliver):
    """A commit of an earlier run may land late, and the queue may trim the rows then."""
    with pytest.raises(OSError, match="of the user") as caught:
        deliver(OSError("of the user"), agreed=6)
    assert caught.value.__cause__ is None
    assert deliver(OSError("of the user"), agreed=6, replay=True)[-1] == "ask"
    assert deliver.emitted[-1][1]["reason"] == "replay"


@pytest.mark.parametrize("is_same", [True, False])
def test_commit_that_is_refused_names_a_target_that_has_changed(deliver, monkeypatch, is_same):
    """Fewer tablets than the rows were placed in: the remedy is to look at the target again."""
    monkeypatch.setattr(targets, "are_the_same", lambda *_: is_same)
    refused = RequestRefusedError("Invalid tablet index")
    with pytest.raises(RequestRefusedError) as caught:
        deliver(None, refused, agreed=6)
    assert ("has changed its columns or tablets" in caught.value.what) is not is_same
    assert ("Start the query again" in caught.value.remedy) is not is_same
    assert refused.what == "Invalid tablet index", "an error is not edited"


@pytest.mark.parametrize(
    ("rows", "tablets", "is_uneven"),
    [(20_000, 1, True), (20_000, 2, False), (20_000, 0, False), (3, 1, False)],
)
def test_batch_for_fewer_tablets_than_could_share_it_is_remembered(
    deliver, rows, tablets, is_uneven
):
    """Not where nobody knows how many took it, and not of a batch that one request takes."""
    deliver.mode.rows = [TargetRows("//t", (), "yson", rows, tablets=tablets)]
    deliver()
    assert deliver.memory().uneven is is_uneven


@pytest.mark.parametrize(("age", "checks"), [(1.0, False), (7.0, True)])
def test_targets_are_checked_between_two_batches_when_that_is_due(deliver, age, checks):
    """The next batch need not wait for it."""
    asked = []
    deliver.mode.connection.submit = lambda call: asked.append(call) or Future()
    deliver(age=age)
    assert bool(asked) is checks
    check = deliver.memory().prepared.check
    assert (check is not None) is checks


def test_function_that_returns_before_its_sink_is_told_once_the_batch_is_written(deliver):
    """Spark would not replay a batch that fails later."""
    with pytest.raises(ConfigError, match="before the sink had written it"):
        deliver(ended=True)
    assert deliver.mode.done[-2:] == ["commit", "leave"]


def test_call_that_must_fail_asks_and_writes_nothing(deliver):
    """Such as one for another batch than Spark runs."""
    with pytest.raises(ConfigError, match="another batch"):
        deliver(problem=ConfigError("another batch"))
    assert deliver.mode.done == []


def test_targets_that_cannot_be_prepared_name_the_proxy(deliver, monkeypatch):
    """The error that was raised stays as it was."""
    unavailable = ConfigError("never")

    def away(_):
        nonlocal unavailable
        unavailable = ConflictError("away")
        raise unavailable

    monkeypatch.setattr(preparation, "are_the_same", lambda *_: False)
    monkeypatch.setattr(preparation, "prepare", away)
    monkeypatch.setattr(preparation, "run_attempts", lambda attempt, *_: attempt(1))
    monkeypatch.setattr(Prepared, "fits", lambda *_: False)
    with pytest.raises(ConflictError) as caught:
        deliver()
    assert caught.value.where["proxy"] == "localhost:1"
    assert "proxy" not in unavailable.where


def test_check_before_the_start_asks_for_the_proxy_first(monkeypatch):
    """One that is not there is named at once, instead of after all retries of the first request."""
    mode, done = Scripted(), []
    mode.connection.require_proxy = lambda: done.append("proxy")
    monkeypatch.setattr(engine, "check_before_start", lambda *given: done.append(given))
    rows = Rowless()
    Engine(mode).check(rows, "append")
    assert done == ["proxy", (mode, rows, "append")]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, []),
        ({"dead_letter_path": "//r"}, ["//r", "//r_replayed"]),
        ({"history_path": "//h"}, ["//h"]),
        ({"target": Target("//t", changes=Changes(sequence="n"))}, ["//t_tombstones"]),
    ],
)
def test_tables_that_the_sink_makes_are_not_for_rows_to_name(options, more):
    """They would be written as a target."""
    options = SinkOptions(**{"target": "//t", "proxy": "x", "ledger_path": "//l"} | options)
    assert {*_tables_of(options)} == {"//l", "//l_claims", options.producer, *more}


@pytest.mark.parametrize("obstacle", [None, "changes"])
def test_state_that_does_not_fit_the_driver_is_told_what_the_sink_takes(obstacle):
    """Tasks may not send all rows: then the driver needs room for them."""
    scripted = type("Obstructed", (Scripted,), {"obstacle": obstacle})
    delivery = SimpleNamespace(batch=MicroBatch("query", 7, "run", stateful=True))
    error = RuntimeError("bigger than spark.driver.maxResultSize 1024.0 MiB")
    found = Engine(scripted())._explained(delivery, error)
    assert isinstance(found, BatchTooLargeError)
    assert ("sent_by='tasks'" in found.remedy) is (obstacle is None)
    assert ("a larger spark.driver.maxResultSize" in found.remedy) is (obstacle is not None)
