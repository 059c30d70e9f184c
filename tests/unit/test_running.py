"""The running query as the JVM shows it: whose call this is, and what may be written already."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from yt_exactly_once import TransactionalSink
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.running import BATCH_ID_PROPERTY, QUERY_ID_PROPERTY, RunningQuery
from yt_exactly_once.spark.query.offset_log import QueueOffset

QUERY, RUN, LATER = (digit * 36 for digit in "abc")
UUID = "0b7f3c1e-5a4d-4e21-9c68-2d1f0a9b8c7d"


class Jvm:
    """An object of the JVM, equal to itself alone, whose methods return what is given."""

    def __init__(self, **returned):
        for name, value in returned.items():
            setattr(self, name, lambda *_, value=value: value)

    def equals(self, other):
        """Compare as Java does."""
        return self is other


class Log:
    """The offset log: where the one partition of a queue ends with each batch, and when all were logged."""

    def __init__(self, ends, logged, name):
        self.ends = ends
        self.logged = logged
        self.name = name
        self.read = []

    def get(self, number):
        """Return an `Option` of the offsets of a batch."""
        self.read.append(number)
        if not 0 <= number < len(self.ends):
            return Jvm(isDefined=False)
        offset = QueueOffset("local", "//q", None, {0: self.ends[number]}, {0: 0}, "id", "1")
        return Jvm(isDefined=True, get=json.dumps(offset.to_json()))

    def serialize(self, offset, stream):
        """Write a batch as Spark does."""
        line = f"{self.name}:{offset}" if self.name else offset
        version = "v2" if self.name else "v1"
        stream.toString.return_value = f'{version}\n{{"batchTimestampMs": {self.logged}}}\n{line}'


class Query:
    """A query in the JVM, and DataFrames that its function gets.

    Args:
        ends: see `Log`.
        ran: batches that Spark remembers of this run.
        committed: whether Spark has logged its batches as done.
        plan: the physical plan, see `operator`.
        logged: when Spark logged the running batch; the application began at 1 000.
        name: of the source in the log; the run reads `orders` and `1`.
        root: of the checkpoint.
        query_name: of the query.
    """

    def __init__(
        self,
        run=RUN,
        ends=(),
        ran=(),
        *,
        query=QUERY,
        committed=False,
        plan=None,
        logged=0,
        name="",
        root="/checkpoint",
        query_name=None,
    ):
        conf = Jvm(get="/data/checkpoints/")
        self.session = Jvm(sessionState=Jvm(newHadoopConf=None), conf=conf)
        self.execution = Jvm(
            id=Jvm(toString=query),
            runId=Jvm(toString=run),
            name=query_name,
            sparkSessionForStream=self.session,
            offsetLog=Log(ends, logged, name),
            resolvedCheckpointRoot=root,
            isActive=True,
            lastExecution=Jvm(currentBatchId=4, executedPlan=plan),
            outputMode="Append",
            sourceIdMap=SimpleNamespace(contains=("orders", "1").__contains__),
            recentProgress=[Jvm(batchId=number) for number in ran],
            commitLog=Jvm(get=Jvm(isDefined=committed)),
        )
        self.active = {query: self.execution}

    def frame(self, thread=None, **properties):
        """Return what is passed to a sink on a thread of that name, with these local properties."""
        named = f"stream execution thread for [id = {QUERY}, runId = {RUN}]"
        jvm = MagicMock()
        jvm.java.lang.Thread.currentThread().getName.return_value = thread or named
        jvm.java.util.UUID.fromString = str
        jvm.java.lang.Class.forName = lambda _: SimpleNamespace(isInstance=lambda each: each.writes)
        self.session.sharedState = lambda: Jvm(activeStreamingQueries=self.active)
        session = SimpleNamespace(
            _jvm=jvm,
            _jsparkSession=self.session,
            sparkContext=SimpleNamespace(getLocalProperty=properties.get, startTime=1_000),
        )
        return SimpleNamespace(sparkSession=session, _jdf=Jvm(sparkSession=self.session))


def inherited(number):
    """Return the properties that an `InheritableThread` takes along."""
    return {QUERY_ID_PROPERTY: QUERY, BATCH_ID_PROPERTY: str(number)}


@pytest.mark.parametrize(
    ("thread", "properties", "number", "in_background", "problem"),
    [
        (None, {BATCH_ID_PROPERTY: "4"}, 4, False, None),
        ("Thread-3", inherited(4), 4, True, None),
        ("Thread-3", {}, 4, True, "a thread that Spark does not know"),
        (None, {BATCH_ID_PROPERTY: "4"}, 3, False, "called for batch 3, and Spark is running batch 4"),
    ],
    ids=["of the query", "that inherits the batch", "unknown", "for another batch"],
)  # fmt: skip
def test_call_is_located_by_its_thread(thread, properties, number, in_background, problem):
    """Or by its DataFrame. Spark waits for its own thread alone; a problem makes the batch fail."""
    place = RunningQuery().locate(Query().frame(thread, **properties), number)
    assert (place.query_id, place.run_id, place.batch_id) == (QUERY, RUN, 4)
    assert place.in_background is in_background
    assert (problem or "None") in str(place.problem)


def test_threads_that_are_not_pinned_are_to_blame():
    """Then PySpark calls the JVM on any of its threads, also for the function of the query."""
    frame = Query().frame("Thread-3")
    frame.sparkSession.sparkContext._gateway = "no ClientServer"
    problem = RunningQuery().locate(frame, 4).problem
    assert "Remove this variable" in problem.remedy


def test_next_run_is_noticed_on_the_thread_of_the_query():
    """Its thread has another name; the objects of the old run are of no use any more."""
    log = RunningQuery()
    log.locate(Query().frame(), 4)
    thread = f"stream execution thread for [id = {QUERY}, runId = {LATER}]"
    assert log.locate(Query(run=LATER).frame(thread), 4).run_id == LATER


@pytest.mark.parametrize(("is_active", "expected"), [(True, RUN), (False, LATER)])
def test_next_run_is_noticed_in_the_background_once_the_old_one_has_ended(is_active, expected):
    """That thread does not name its run; Spark has one run of a query at a time."""
    log, query = RunningQuery(), Query()
    log.locate(query.frame("Thread-3", **inherited(4)), 4)
    query.execution.isActive = lambda: is_active
    later = Query(run=LATER).frame("Thread-3", **inherited(4))
    assert log.locate(later, 4).run_id == expected


def test_session_without_a_jvm_needs_a_checkpoint_and_the_sink_keeps_what_it_raises():
    """Nothing else knows the offsets."""
    frame, sink = (
        SimpleNamespace(sparkSession=SimpleNamespace()),
        TransactionalSink("//t", proxy="p"),
    )
    with pytest.raises(ConfigError, match="has no JVM") as raised:
        sink(frame, 4)
    assert sink.last_error is raised.value


def test_jvm_is_asked_where_there_is_one():
    """It knows more than the files of a checkpoint."""
    assert RunningQuery(MagicMock()).locate(Query().frame(), 4).query_id == QUERY


def operator(kind, *children, writes=False, inside=None):
    """Return an operator of a physical plan."""
    found = Jvm(
        getClass=Jvm(getSimpleName=kind),
        children=SimpleNamespace(size=lambda: len(children), apply=children.__getitem__),
        initialPlan=inside,
    )
    found.writes = writes
    return found


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (operator("Project", operator("Scan")), False),
        (operator("Project", operator("Scan"), operator("Save", writes=True)), True),
        (operator("AdaptiveSparkPlanExec", inside=operator("Save", writes=True)), True),
    ],
    ids=["stateless", "below another operator", "in an adaptive plan"],
)
def test_query_keeps_state_if_any_operator_writes_some(plan, expected):
    """Then a replay may give other rows."""
    log, query = RunningQuery(), Query(plan=plan, ends=(5, 8))
    place = log.locate(query.frame(), 1)
    found = place.log.identify(place)
    assert (found.stateful, found.output_mode, found.run_id) == (expected, "append", RUN)
    assert found.sources[0].partitions == (PartitionRange(0, 5, 8),)


def test_batch_of_a_source_that_was_removed_is_refused():
    """Spark runs it without the rows of that source, whose consumer would move past them."""
    plan = operator("Scan")
    for name, refused in (("orders", False), ("", False), ("payments", True)):
        place = RunningQuery().locate(Query(ends=(5, 8), name=name, plan=plan).frame(), 1)
        with pytest.raises(ConfigError, match="source payments") if refused else nullcontext():
            assert place.log.identify(place).sources[0].partitions == (PartitionRange(0, 5, 8),)


def test_call_with_a_dataframe_of_no_query_is_refused():
    """There is no batch to write it for."""
    query = Query()
    query.active = {}
    with pytest.raises(ConfigError, match="outside a streaming query"):
        RunningQuery().locate(query.frame("main"), 4)


def test_call_with_a_dataframe_of_another_query_fails():
    """Its rows belong to a batch of that one."""
    query, other = Query(), Query(query="d" * 36)
    other.active = query.active | other.active
    log = RunningQuery()
    assert log.locate(query.frame(), 4).problem is None
    place = log.locate(other.frame(), 4)
    assert place.query_id == QUERY
    assert "a DataFrame of another query" in str(place.problem)


def test_call_with_a_dataframe_of_a_session_of_its_own_is_no_call_of_another_query():
    """A function may make sessions, and no query runs in them."""
    query, own = Query(), Query()
    log = RunningQuery()
    log.locate(query.frame(), 4)
    own.active = query.active
    assert log.locate(own.frame(), 4).problem is None


@pytest.mark.parametrize(
    ("root", "query_name", "is_refused"),
    [
        (f"file:/tmp/temporary-{UUID}", "totals", True),
        (f"file:/data/checkpoints/{UUID}", None, True),
        (f"file:/data/checkpoints/{UUID}", UUID, False),
        (f"file:/data/others/{UUID}", None, False),
        ("file:/data/checkpoints/totals", None, False),
    ],
    ids=["temporary", "unnamed", "named", "given by the query", "given with the folder"],
)
def test_checkpoint_that_no_restart_finds_is_refused(root, query_name, is_refused):
    """Spark makes one for a function, where it refuses other sinks without a checkpoint."""
    query = Query(root=root, query_name=query_name)
    problem = RunningQuery().locate(query.frame(), 4).problem
    assert ("has no checkpointLocation" in str(problem)) is is_refused


def test_call_of_a_run_that_has_ended_is_refused():
    """The next run repeats the batch."""
    with pytest.raises(ConfigError, match="A run of the query that has ended"):
        RunningQuery().locate(Query(run=LATER).frame(), 4)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("thread", [None, "Thread-3"])
def test_batch_has_ended_once_it_is_logged_while_a_background_call_continues(thread, committed):
    """The thread of the query itself logs it only after the call."""
    log = RunningQuery()
    place = log.locate(Query(committed=committed).frame(thread, **inherited(4)), 4)
    assert place.log.has_ended(place) is (committed and thread is not None)


def batch(number, start, end):
    source = SourceRange("local", "//q", None, (PartitionRange(0, start, end),))
    return MicroBatch(QUERY, number, RUN, (source,))


@pytest.mark.parametrize(
    ("ran", "ends", "logged", "unused", "expected"),
    [
        ((1,), (5, 8, 9), 0, False, False),
        ((2,), (5, 8, 9), 0, True, True),
        ((), (5, 8, 9), 999, True, True),
        ((), (5, 8, 9), 1_000, True, False),
        ((), (5, 8, 9), 1_000, False, True),
        ((), (0, 0, 9), 0, False, False),
    ],
    ids=[
        "this run has ended a batch",
        "it was idle before this one",
        "a replay, perhaps of rows from another sink",
        "a new batch of a query that had no rows",
        "a new batch for another target",
        "nothing was read",
    ],
)
def test_batch_may_be_written_if_an_earlier_run_may_have_begun_it(
    ran, ends, logged, unused, expected
):
    """A ledger without an entry then has lost it, or is another one. The function may leave batches out."""
    log = RunningQuery().locate(Query(ends=ends, ran=ran, logged=logged).frame(), 2).log
    assert log.may_be_written(batch(2, ends[1], ends[2]), unused) is expected


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (2, 2)])
def test_range_of_a_batch_does_not_depend_on_what_was_asked_before(numbers):
    """The offsets of the last answer are kept for the next batch alone."""
    log = RunningQuery().locate(Query(ends=(5, 8, 9)).frame(), 2).log
    expected = {1: PartitionRange(0, 5, 8), 2: PartitionRange(0, 8, 9)}
    for number in numbers:
        (source,) = log.ranges(number)
        assert source.partitions == (expected[number],)


def test_offsets_of_a_batch_are_read_once_for_it_and_the_next_one():
    """A read of the log is a call of the JVM, which parses a file."""
    query = Query(ends=(5, 8, 9))
    log = RunningQuery().locate(query.frame(), 1).log
    for number in (1, 2):
        log.ranges(number)
    assert query.execution.offsetLog().read == [0, 1, 2]
