"""A task that pushes, attempt by attempt, against one producer session in memory and without Spark."""

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import product
from threading import Barrier, Event

import pyarrow as pa
import pytest
from yt import yson
from yt.common import YtError

from tests.model.tasks import prepared_target, task_context
from yt_exactly_once import RetryPolicy, Target
from yt_exactly_once.codec.schema import SOURCE_COLUMNS
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.errors import (
    EncodingError,
    FencedError,
    NotOneToOneError,
    RetriesExhaustedError,
)
from yt_exactly_once.spark.modes import sessions
from yt_exactly_once.spark.modes.mode import TaskSettings
from yt_exactly_once.spark.modes.push import PushTask
from yt_exactly_once.spark.modes.sessions import POSITION_BITS, Numbering, source_position
from yt_exactly_once.spark.modes.tasks import ChunkReport

NAMES = ("key", "query", "place", "row", *SOURCE_COLUMNS)
ONCE = RetryPolicy(attempts=1, first_wait=timedelta(milliseconds=1))


class Cluster:
    """Producer sessions and the rows that were pushed; its own connection and sender.

    Attributes:
        fault: of the next push: the request is lost, or its answer.
    """

    def __init__(self):
        self.fault = ""
        self.sessions = {}
        self.opened = []
        self.rows = []

    @contextmanager
    def sending(self):
        yield self

    def send(self, command, parameters, rows=None):
        """Do what a command asks for, and answer in YSON."""
        return yson.dumps(getattr(self, command)(rows=rows, **parameters))

    def create_queue_producer_session(self, *, session_id, **_more):
        """Open a session, and fence whoever has it."""
        self.opened.append(session_id)
        epoch, last, meta = self.sessions.get(session_id, (0, -1, {}))
        self.sessions[session_id] = epoch + 1, last, meta
        return {"epoch": epoch + 1, "sequence_number": last, "user_meta": meta}

    def push_queue_producer(self, *, session_id, epoch, rows, user_meta, **_more):
        """Append the rows."""
        fault, self.fault = self.fault, ""
        if fault == "lost request":
            raise ConnectionResetError
        if session_id not in self.sessions:
            raise YtError("Unknown queue producer session")
        if self.sessions[session_id][0] != epoch:
            raise YtError("The session has another epoch", code=3102)
        sent = list(yson.loads(bytes(rows), yson_type="list_fragment"))
        last = sent[-1]["$sequence_number"]
        self.sessions[session_id] = epoch, last, user_meta
        self.rows += [row["row"] for row in sent]
        if fault == "lost answer":
            raise ConnectionResetError
        return {"last_sequence_number": last, "skipped_row_count": 0}


@pytest.fixture
def cluster():
    return Cluster()


def push(cluster, rows, **options):
    """Run one attempt of a task, two rows per request; return how many rows each report has."""
    return [
        told["row_count"]
        for report in attempted(cluster, rows, **options)
        for told in report.to_pylist()
    ]


def attempted(
    cluster,
    rows,
    *,
    batch=7,
    run="run",
    by_source=False,
    partition=2,
    attempt=0,
    numbers=None,
    digest=False,
    tablets=None,
    connections=1,
    size=2,
    retry=ONCE,
    owned=None,
    gone=frozenset(),
):
    """Begin an attempt of a task; every step of it is one push, and gives its report."""
    source = SourceRange("cluster", "//queue", None, (), "id")
    target = prepared_target("//t", is_sorted=False)
    micro_batch = MicroBatch("query", batch, run, (source,))
    position = source_position(SOURCE_COLUMNS if by_source else (), micro_batch, None)
    numbering = Numbering(micro_batch, position, target.plan, gone)
    target = replace(target, options=Target("//t", digest=digest))
    task = PushTask(
        TaskSettings(NAMES, replace(target, dyn_batch_size=size), cluster, retry, connections, run),
        numbering,
        "//producer",
        owned=owned,
    )
    zeros = [0] * len(rows)
    values = rows, zeros, zeros, rows, tablets or zeros, numbers or rows
    arrays = [pa.array(column, pa.int64()) for column in values]
    frame = pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(NAMES))])
    with task_context(partition, attempt):
        yield from task([frame])


@pytest.mark.parametrize("by_source", [True, False])
def test_repeated_attempt_adds_what_is_missing(cluster, by_source):
    """And reports all of its rows, as the first one would have."""
    push(cluster, [1, 2], by_source=by_source)
    assert push(cluster, [1, 2, 3], by_source=by_source, attempt=1) == [2, 1]
    assert cluster.rows == [1, 2, 3]


def test_repeated_attempt_reports_the_digest_of_all_rows_and_the_bytes_that_it_sends(cluster):
    """The ledger must account for the rows that the attempt before has pushed; only these cost bytes."""
    whole = ChunkReport.of_all(attempted(Cluster(), [1, 2, 3], digest=True))
    push(cluster, [1, 2], digest=True)
    found = ChunkReport.of_all(attempted(cluster, [1, 2, 3], attempt=1, digest=True))
    assert (found.digest, found.row_count) == (whole.digest, 3)
    assert whole.digest != 0
    assert 0 < found.byte_count < whole.byte_count
    plain = ChunkReport.of_all(attempted(Cluster(), [1, 2, 3]))
    assert plain == replace(whole, digest=0)


def test_old_attempt_that_continues_adds_nothing(cluster):
    """It is fenced, takes the session back, and finds there what a newer one has pushed."""
    old = attempted(cluster, [1, 2, 3, 4, 5])
    next(old)
    push(cluster, [1, 2, 3, 4, 5], attempt=1)
    list(old)
    assert cluster.rows == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("arrives", [True, False])
def test_push_without_an_answer_counts_once(cluster, arrives):
    """The session is asked what it has."""
    send, sent = cluster.push_queue_producer, []

    def lose_the_second(**given):
        sent.append(given)
        answer = send(**given) if arrives or len(sent) != 2 else None
        if len(sent) == 2:
            raise ConnectionResetError
        return answer

    cluster.push_queue_producer = lose_the_second
    push(cluster, [1, 2, 3, 4, 5], retry=replace(ONCE, attempts=2))
    assert cluster.rows == [1, 2, 3, 4, 5]
    assert len(sent) == 3 + (not arrives)


@pytest.mark.parametrize("by_source", [True, False])
def test_attempt_opens_a_session_once(cluster, by_source):
    """Every look at it fences whoever has it."""
    push(cluster, [1, 2, 3], by_source=by_source, attempt=1)
    (name,) = cluster.opened
    assert name == "query://t:" + ("source-id-0" if by_source else "partition-2")


@pytest.mark.parametrize(("attempt", "opened"), [(0, []), (1, ["query://t:partition-2"])])
def test_repeated_attempt_without_rows_looks_whether_the_one_before_had_some(
    cluster, attempt, opened
):
    """The first one knows that there are none, so it asks for nothing."""
    assert push(cluster, [], attempt=attempt) == []
    assert cluster.opened == opened


def test_attempt_without_the_rows_of_the_one_before_is_refused(cluster):
    """They are in the target."""
    push(cluster, [1, 2])
    with pytest.raises(NotOneToOneError, match="other rows in their place"):
        push(cluster, [], attempt=1)


OTHER_ROWS = {
    "a filter": [2, 3, 4, 5, 6],
    "another order": [2, 1, 3, 4, 5, 6],
    "another value": [9, 2, 3, 4, 5, 6],
    "one row more": [1, 1, 2, 3, 4, 5, 6],
    "fewer rows than are there": [1, 2, 3],
}


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("rows", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_other_rows_are_refused_until_the_old_ones_are_back(cluster, rows, size):
    """Neither dropped nor pushed, however often it is tried and however requests are cut."""
    push(cluster, [1, 2, 3, 4])
    for run in ("second", "third"):
        with pytest.raises(NotOneToOneError, match="pushed before"):
            push(cluster, rows, size=size, run=run)
    assert cluster.rows == [1, 2, 3, 4]
    push(cluster, [1, 2, 3, 4, 5, 6], size=size, run="fourth")
    assert cluster.rows == [1, 2, 3, 4, 5, 6]


def test_rows_without_a_digest_are_not_taken_for_the_same(cluster):
    """An older version of the package pushed them."""
    push(cluster, [1, 2])
    ((name, (epoch, last, meta)),) = cluster.sessions.items()
    cluster.sessions[name] = epoch, last, {**meta, "digest": None}
    with pytest.raises(NotOneToOneError, match="pushed before"):
        push(cluster, [1, 2], run="second")


def test_rows_that_were_pushed_are_checked_before_they_are_compared(cluster, monkeypatch):
    """A digest is of rows that can be written; the others are checked when they are encoded."""
    push(cluster, [1, 2])

    def misfit(*_):
        raise EncodingError("A value does not fit")

    monkeypatch.setattr(sessions, "row_fragments", misfit)
    assert push(Cluster(), [1, 2]) == [2]
    with pytest.raises(EncodingError):
        push(cluster, [1, 2, 3], attempt=1)


def test_attempt_without_rows_of_the_source_opens_no_session(cluster):
    """It does not know which one; other tasks may have it."""
    push(cluster, [], by_source=True, attempt=1)
    assert cluster.opened == []


def test_rows_that_were_trimmed_after_their_push_do_not_stop_a_replay(cluster):
    """The numbers of those that are left say which of them the session has."""
    push(cluster, [0, 1, 2, 3], by_source=True)
    with pytest.raises(NotOneToOneError):
        push(cluster, [2, 3, 4, 5], by_source=True, run="later")
    gone = frozenset({"source-id-0"})
    for run in ("later", "later still"):
        push(cluster, [2, 3, 4, 5], by_source=True, run=run, gone=gone)
    assert cluster.rows == [0, 1, 2, 3, 4, 5]


def test_rows_that_an_earlier_batch_has_numbered_are_refused(cluster):
    """The session would drop them; their numbers are those of another queue."""
    push(cluster, [4, 5], batch=6, by_source=True)
    with pytest.raises(NotOneToOneError, match="number 5, and batch 6 went up to 5"):
        push(cluster, [5, 6], batch=7, by_source=True)
    push(cluster, [6, 7], batch=7, by_source=True)
    assert cluster.rows == [4, 5, 6, 7]


def test_batch_behind_the_session_is_refused(cluster):
    """Another driver is ahead; the session would drop all rows."""
    push(cluster, [4, 5], batch=8, by_source=True)
    with pytest.raises(FencedError, match="Batch 8 was pushed"):
        push(cluster, [1, 2], batch=7, by_source=True)


def test_rows_of_one_source_in_two_tasks_of_a_run_are_refused(cluster):
    """Another run may spread its rows over other tasks."""
    push(cluster, [1, 2], by_source=True, partition=2)
    with pytest.raises(NotOneToOneError, match="in the Spark partitions 2 and 3"):
        push(cluster, [1, 2, 3], by_source=True, partition=3)
    push(cluster, [1, 2, 3], by_source=True, partition=3, run="later")
    assert cluster.rows == [1, 2, 3]


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [1, 3, 3], [1, 3, 2]])
def test_rows_out_of_their_order_are_refused(cluster, numbers):
    """Within a request or between two."""
    with pytest.raises(NotOneToOneError, match="in the order of their source"):
        push(cluster, list(range(len(numbers))), by_source=True, numbers=numbers)


def test_positions_of_a_batch_follow_those_of_all_batches_before(cluster):
    """However many rows those had."""
    push(cluster, [1, 2, 3], batch=1)
    ((_, last, meta),) = cluster.sessions.values()
    assert last == (1 << POSITION_BITS) + 2
    assert (meta["run"], meta["batch"], meta["task"]) == ("run", 1, 2)


def test_sessions_of_a_chunk_are_pushed_to_side_by_side(cluster):
    """Each request waits for the cluster; one after the other they would wait for ever here."""
    both = Barrier(2, timeout=30)

    def together(call):
        return lambda **given: (both.wait(), call(**given))[1]

    for name in ("create_queue_producer_session", "push_queue_producer"):
        setattr(cluster, name, together(getattr(cluster, name)))
    told = push(cluster, [1, 2, 3, 4], by_source=True, tablets=[0, 1, 0, 1], connections=2)
    assert told == [1, 1, 1, 1]
    assert sorted(cluster.rows) == [1, 2, 3, 4]


def test_no_push_is_under_way_when_a_task_has_failed(cluster):
    """What is sent later would meet the next attempt of the task; what has not begun is left out."""
    send, begun, failed = cluster.push_queue_producer, Event(), Event()

    def answer(**given):
        if given["session_id"].endswith("-0"):
            begun.wait(30)
            failed.set()
            raise FencedError("refused", remedy="none")
        begun.set()
        failed.wait(30)
        return send(**given)

    cluster.push_queue_producer = answer
    with pytest.raises(FencedError):
        push(cluster, [1, 2], by_source=True, tablets=[0, 1], connections=2)
    assert cluster.rows == [2]


def test_owned_session_is_not_asked_for_again(cluster):
    """Nor by another part of the same batch; a task of Spark owns none."""
    owned = {}
    for batch in (7, 8):
        push(cluster, [batch * 10, batch * 10 + 1, batch * 10 + 2], batch=batch, owned=owned)
    assert len(cluster.opened) == len(owned) == 1
    push(cluster, [90], batch=9)
    assert len(cluster.opened) == 2


def test_owned_session_is_checked_like_one_that_was_asked_for(cluster):
    """Rows of an earlier batch, or of another Spark partition, would be dropped as seen."""
    owned = {}
    push(cluster, [80], batch=8, owned=owned, by_source=True)
    with pytest.raises(NotOneToOneError, match="in the Spark partitions 2 and 3"):
        push(cluster, [81], batch=8, owned=dict(owned), by_source=True, partition=3)
    with pytest.raises(
        FencedError, match="Batch 8 was pushed through this session, and this is batch 7"
    ):
        push(cluster, [70], batch=7, owned=owned, by_source=True)
    assert (cluster.rows, len(cluster.opened)) == ([80], 1)


OWNER = (
    "fine",
    "lost request",
    "lost answer",
    "a task before",
    "a task before, and again",
    "a part by a task",
    "gone",
)


@pytest.mark.parametrize(("by_source", "patience"), [(True, 1), (False, 2)])
def test_owner_loses_and_repeats_no_row_whoever_else_pushes(by_source, patience):
    """Every batch is repeated until it succeeds. All ways that two batches can go, and one after them."""
    retry = replace(ONCE, attempts=patience)
    for happens in product(OWNER, OWNER, OWNER[:1]):
        cluster, owned = Cluster(), {}
        for batch, fault in enumerate(happens):
            rows = [batch * 10 + place for place in range(3)]
            options = {"batch": batch, "by_source": by_source, "retry": retry}
            if fault.startswith("a task before"):
                push(cluster, rows, **options)
            if fault == "a task before, and again":
                push(cluster, rows, attempt=1, **options)
            if fault == "a part by a task":
                next(attempted(cluster, rows, **options))
            if fault == "gone" and not by_source:
                cluster.sessions.clear()
            cluster.fault = fault
            for _ in range(2):
                try:
                    push(cluster, rows, owned=owned, **options)
                    break
                except RetriesExhaustedError:
                    assert not owned
        assert cluster.rows == [batch * 10 + place for batch in range(3) for place in range(3)]
