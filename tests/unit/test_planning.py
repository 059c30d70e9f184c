"""Who sends the rows of a batch whose tasks run before its commit, and what is kept when that fails."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from tests.unit.test_claims import Cluster
from yt_exactly_once import SinkOptions
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.claims import CLAIMS_ATTRIBUTES, CLAIMS_SCHEMA, Claims, Plan
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery.memory import Memory, Prepared
from yt_exactly_once.delivery.route import LARGE, LookUp
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import ClusterUnavailableError, ConflictError, TasksRefusedError
from yt_exactly_once.spark.doors.arrived import TaskMessage, TaskRows, give_up
from yt_exactly_once.spark.engine import look_up, planning
from yt_exactly_once.spark.engine.look_up import Found
from yt_exactly_once.spark.engine.run import Delivery
from yt_exactly_once.spark.modes.mode import Assignment

CLAIMS = "//ledger_claims"
QUERY = "query"


class Mode:
    """A transactional mode, of which a test says whether tasks may claim."""

    one_transaction = True
    obstacle = None

    def __init__(self, cluster, **options):
        self.options = SinkOptions("//t", proxy="localhost:1", ledger_path="//ledger", **options)
        self.connection, self.refusal = cluster, None

    def assign(self, given):
        def claiming():
            if self.refusal is not None:
                raise self.refusal
            return "claims"

        return Assignment(given, (), claiming=claiming)


@pytest.fixture
def delivery(monkeypatch):
    """Batch 7 of a query, before its tasks run; `set` changes what is known of it."""
    cluster, asked, emitted, ensured = Cluster(), [], [], []
    cluster.joined = lambda name, **_: SimpleNamespace(abort=lambda: cluster.aborted.append(name))
    cluster.submit = lambda call: SimpleNamespace(result=call)
    state = SimpleNamespace(bytes=0, replay=False, tablets=None, wanted=None)

    def find(_delivery, when, _ahead=None):
        asked.append(when)
        return Found(when, is_replay=state.replay and when is LookUp.FIRST)

    def own_tablets(tasks):
        if state.tablets is not None and tasks > state.tablets:
            raise TasksRefusedError(f"{tasks} tasks, {state.tablets} tablets")

    monkeypatch.setattr(look_up, "find", find)
    monkeypatch.setattr(planning, "ensure_table", lambda *given: ensured.append(given))

    def make(rows=None, **options):
        target = SimpleNamespace(
            path="//t",
            is_sorted=False,
            options=SimpleNamespace(transform=None),
            wanted=state.wanted,
            require_own_tablets=own_tablets,
        )
        entry = SimpleNamespace(batch_bytes=state.bytes) if state.bytes else None
        monkeypatch.setattr(CommitLedger, "read", lambda *_: entry)
        memory = Memory("run", Prepared(StructType(), (target,), "id"))
        mode = Mode(cluster, **options)
        return Delivery(
            MicroBatch(QUERY, 7, "run"), rows or TaskRows(StructType()), None, None,
            None, mode, lambda _, **fields: emitted.append(fields),
            memory,
        )  # fmt: skip

    make.state, make.cluster, make.asked, make.emitted = state, cluster, asked, emitted
    make.ensured = ensured
    return make


def keep(delivery, by, *, batch=7, **more):
    Tried(QUERY, "//t", batch, by, **more).keep(delivery.cluster, CLAIMS)


def kept(delivery):
    return Tried.read(delivery.cluster, CLAIMS, QUERY, "//t")


def plan(delivery, *, looks_up=False):
    """Plan a batch as the engine does."""
    known = planning.ask(delivery.mode, QUERY)
    return planning.plan(delivery, known, looks_up=looks_up)


def by_tasks(planned):
    """Return whether the tasks of a plan send the rows, in a transaction of their own."""
    assert (planned.assignment.task is not None) == (planned.assignment.given.plan is not None)
    return planned.assignment.task == "claims"


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [({}, 0, False), ({}, LARGE - 1, False), ({}, LARGE, True), ({"sent_by": "tasks"}, 0, True),
     ({"sent_by": "driver"}, LARGE, False)],
)  # fmt: skip
def test_plan_chooses_by_the_batch_before(delivery, options, size, expected):
    """The ledger has its size. It is asked for the batch itself where tasks write before the commit."""
    delivery.state.bytes = size
    planned = plan(delivery(**options))
    assert by_tasks(planned) is expected
    assert not planned.is_replay
    assert delivery.asked == [LookUp.FIRST if expected else LookUp.INSIDE]
    assert planned.assignment.claiming is None or not expected, "it travels to the executors"


def test_batch_of_an_option_or_a_table_that_needs_the_driver_stays_there(delivery, monkeypatch):
    """A table that is yet to get columns is altered by the commit, before its transaction begins."""
    delivery.state.bytes = LARGE
    delivery.state.wanted = ["column"]
    assert not by_tasks(plan(delivery()))
    delivery.state.wanted = None
    monkeypatch.setattr(Mode, "obstacle", "changes")
    assert not by_tasks(plan(delivery()))
    monkeypatch.setattr(Mode, "one_transaction", False)
    assert not by_tasks(plan(delivery(), looks_up=True))
    assert delivery.asked[-1] is LookUp.FIRST


@pytest.mark.parametrize(
    ("name", "value"), [("one_transaction", False), ("obstacle", "changes"), ("sent_by", "driver")]
)
def test_nothing_is_asked_where_there_is_no_choice(delivery, monkeypatch, name, value):
    """Each small batch would pay for it."""
    keep(delivery, SentBy.TASKS)
    assert planning.ask(delivery().mode, QUERY)().tried is not None
    if name == "sent_by":
        mode = delivery(sent_by=value).mode
    else:
        monkeypatch.setattr(Mode, name, value)
        mode = delivery().mode
    assert planning.ask(mode, QUERY)() == planning.Known()


def test_replay_is_left_out_by_its_tasks(delivery):
    """They open nothing."""
    delivery.state.replay = True
    planned = plan(delivery(sent_by="tasks"))
    assert planned.is_replay
    assert not by_tasks(planned)


@pytest.mark.parametrize("sent_by", ["auto", "tasks"])
def test_claims_that_are_refused_leave_the_batch_to_the_driver(delivery, sent_by):
    """Unless the user wants the tasks to send it."""
    delivery.state.bytes = LARGE
    one = delivery(sent_by=sent_by)
    one.mode.refusal = TasksRefusedError("no permission")
    if sent_by == "tasks":
        with pytest.raises(TasksRefusedError):
            plan(one)
        return
    assert not by_tasks(plan(one))
    assert delivery.emitted[0]["reason"] == "TasksRefusedError"


def test_ways_of_a_batch_take_turns(delivery):
    """Each run takes the one that has not failed in the last one; a crash alone changes nothing."""
    delivery.state.bytes = LARGE
    assert by_tasks(plan(delivery()))
    keep(delivery, SentBy.TASKS, has_failed=True)
    for _ in range(2):
        assert not by_tasks(plan(delivery()))
        assert kept(delivery) == Tried(QUERY, "//t", 7, SentBy.DRIVER)
    give_up(delivery().mode, QUERY, 7, [TaskMessage("run", 0), None])
    assert kept(delivery).has_failed
    assert by_tasks(plan(delivery()))


def test_job_that_fails_says_that_the_driver_could_not_have_its_rows(delivery):
    """But not if it was for the tasks to send them, or if all rows had come, or if nobody may choose."""
    mode = delivery().mode
    give_up(mode, QUERY, 7, [TaskMessage("run", 0)])
    give_up(delivery(sent_by="driver").mode, QUERY, 7, [None])
    assert kept(delivery) is None
    keep(delivery, SentBy.TASKS)
    give_up(mode, QUERY, 7, [None])
    assert kept(delivery) == Tried(QUERY, "//t", 7, SentBy.TASKS)
    assert delivery.ensured == []
    keep(delivery, SentBy.TASKS, batch=6, lasting="a reason")
    give_up(mode, QUERY, 7, [None])
    assert kept(delivery) == Tried(
        QUERY, "//t", 7, SentBy.DRIVER, has_failed=True, lasting="a reason"
    )
    # No task may have claimed yet.
    assert delivery.ensured == [(delivery.cluster, CLAIMS, CLAIMS_SCHEMA, CLAIMS_ATTRIBUTES)]


def test_transaction_of_a_failed_job_is_ended(delivery):
    """As far as its tasks have said which it is. Without rows there is none."""
    mode, plan = delivery().mode, Plan("plan", 0.0)
    message = TaskMessage("run", 0, plan=plan)
    give_up(mode, QUERY, 7, [None, message])
    assert delivery.cluster.aborted == []
    claims = Claims(CLAIMS, "plan", "//t")
    opened = claims.open(delivery.cluster, mode.options.retry, lambda *_, **__: None)
    give_up(mode, QUERY, 7, [None, message])
    assert delivery.cluster.aborted == [opened.id]
    assert kept(delivery) is None
    arrived = delivery(TaskRows(StructType(), [message]))
    assert planning.opened(arrived) == opened
    assert planning.opened(delivery()) is None


def test_commit_that_fails_says_that_tasks_could_not_send_the_rows(delivery):
    """Of rows that they had sent, for an error of ours."""
    one = delivery()
    planning.keep_failure(one, ConflictError("x"))
    sent = replace(one, opened=SimpleNamespace(id="1-2"))
    planning.keep_failure(sent, OSError("x"))
    assert kept(delivery) is None
    planning.keep_failure(sent, ConflictError("x"))
    assert kept(delivery) == Tried(QUERY, "//t", 7, SentBy.TASKS, has_failed=True)


@pytest.mark.parametrize(
    ("tablets", "size", "is_kept"), [(2, LARGE, True), (3, LARGE, False), (2, LARGE - 1, False)]
)
def test_large_batch_with_more_tasks_than_tablets_is_remembered(delivery, tablets, size, is_kept):
    """The next one would end its query."""
    delivery.state.tablets, delivery.state.bytes = tablets, size
    messages = [TaskMessage("run", number) for number in range(3)]
    planning.keep_refusal(delivery(TaskRows(StructType(), messages)), size)
    planning.keep_refusal(delivery(TaskRows(StructType(), messages), sent_by="driver"), LARGE)
    assert (kept(delivery) is not None) is is_kept
    if is_kept:
        # The driver has sent this one.
        assert not kept(delivery).has_failed
        later = replace(delivery(), batch=MicroBatch(QUERY, 8, "run"))
        assert not by_tasks(plan(later))


def test_cluster_that_does_not_answer_leaves_a_batch_as_if_new(delivery):
    """What is kept decides nothing that matters."""
    one = delivery(sent_by="tasks")

    def away(*_):
        raise ClusterUnavailableError("away")

    one.mode.connection.lookup = one.mode.connection.begin = away
    one.mode.connection.submit = away
    assert by_tasks(plan(one))
    planning.keep_failure(replace(one, opened=SimpleNamespace(id="1-2")), ConflictError("x"))
