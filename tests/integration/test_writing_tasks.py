"""The tasks of the modes that write from there, as a worker runs them, against the embedded cluster.

Without Spark, so that an attempt can be stopped between two requests, and go on when another one has
taken its place. The cluster has the hazards of older servers: a push without new rows moves the session
back, and one with an empty body moves it to the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.flows import columns, create_table
from tests.model.tasks import task_context
from yt_exactly_once import RetryPolicy
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, check_frame
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.config import ROWS_PER_TABLET_LIMIT, ClusterConfig
from yt_exactly_once.errors import DuplicateKeyError, NotOneToOneError, RequestRefusedError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.sink.modes.mode import TaskSettings
from yt_exactly_once.spark.sink.modes.push import PushTask, RehearsalTask
from yt_exactly_once.spark.sink.modes.sessions import Numbering
from yt_exactly_once.spark.sink.modes.tasks import KEY_HASH_COLUMNS, InsertTask
from yt_exactly_once.spark.sink.options import Target
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.targets import PreparedTarget
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import SessionState, session_prefix, sessions_of
from yt_exactly_once.ytsaurus.tables import ensure_object

PUSH, INSERT = "push_queue_producer", "insert_rows"
ALL = list(range(8))
QUICK = RetryPolicy(first_wait=timedelta(milliseconds=10), max_wait=timedelta(milliseconds=50))


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(proxies=2) as running:
        yield running


@pytest.fixture
def client(cluster):
    yield cluster.client()
    cluster.clear_faults()


@dataclass
class Writing:
    """A target and the tasks that write into it, two rows per request."""

    client: Any
    connection: Connection
    folder: str
    is_sorted: bool = False

    def __post_init__(self) -> None:
        schema = columns({"key": "int64", "row": "int64"}, ["key"] if self.is_sorted else [])
        path = create_table(self.client, f"{self.folder}/target", schema)
        ensure_object(self.connection, "queue_producer", f"{self.folder}/producer")
        frame = pa.schema([("key", pa.int64()), ("row", pa.int64())])
        plan = check_frame(frame, TableSchema.from_yt(schema), target=path, sorted=self.is_sorted)
        self.target = PreparedTarget(
            options=Target(path),
            is_sorted=self.is_sorted,
            tablet_count=1,
            plan=plan,
            wire=WireFormat.YSON,
            placement=Placement(None if self.is_sorted else 1),
            rows_per_tablet=ROWS_PER_TABLET_LIMIT,
            table_id="",
        )

    def settings(self, names: tuple[str, ...], chunk: int = 2, run: str = "run") -> TaskSettings:
        return TaskSettings(
            names, replace(self.target, request_size=chunk), self.connection, QUICK, 1, run
        )

    def push(
        self,
        rows: Sequence[int] = ALL,
        partition: int = 0,
        chunk: int = 2,
        batch_id: int = 0,
        *,
        run: str = "run",
        by_source: bool = True,
        attempt: int = 0,
    ) -> Iterator[object]:
        """Begin an attempt; every step of it is one push."""
        numbering = self.numbering(batch_id, run, by_source=by_source)
        task = PushTask(self.settings(PUSHED, chunk, run), numbering, self.producer)
        with task_context(partition, attempt):
            yield from task(pushed(rows))

    def rehearse(
        self, tasks: dict[int, Sequence[int]], *, run: str = "next", by_source: bool = False
    ) -> None:
        """Compare the rows of a replay, by Spark partition, with what was pushed of batch 0."""
        prefix = session_prefix("query", self.target.path)
        begun = {
            name.removeprefix(prefix): state
            for name, state in sessions_of(self.connection, self.producer, prefix).items()
        }
        numbering = self.numbering(0, run, by_source=by_source)
        task = RehearsalTask(self.settings(PUSHED), numbering, begun)
        reports = []
        for partition, rows in tasks.items():
            with task_context(partition):
                reports += task(pushed(rows))
        task.require_same_rows(reports)

    @property
    def producer(self) -> str:
        return f"{self.folder}/producer"

    def numbering(self, batch_id: int, run: str, *, by_source: bool) -> Numbering:
        source = SourceRange("cluster", "//queue", None, ())
        batch = MicroBatch("query", batch_id, run, (source,))
        return Numbering(batch, by_source, self.target.plan)

    def insert(self, rows: Sequence[int] = ALL, key: int | None = None) -> Iterator[object]:
        """Begin an attempt; every step of it is one insert."""
        names = ("key", "row", *KEY_HASH_COLUMNS)
        keys = list(rows) if key is None else [key] * len(rows)
        task = InsertTask(self.settings(names), unique_keys=self.is_sorted)
        with task_context(0):
            yield from task(frame(keys, rows, keys, pa.array(keys, pa.int32())))

    def found(self) -> list[int]:
        """Return the rows, in the order of the table."""
        return [row["row"] for row in self.client.select_rows(f"* from [{self.target.path}]")]


PUSHED = ("key", "row", *SOURCE_COLUMNS)


def pushed(rows: Sequence[int]) -> list[pa.RecordBatch]:
    """Return what a pushing task gets."""
    return frame(rows, rows, [0] * len(rows), rows)


def frame(*values: Any) -> list[pa.RecordBatch]:
    arrays = [each if isinstance(each, pa.Array) else pa.array(each, pa.int64()) for each in values]
    return [pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])]


@pytest.fixture
def writing(cluster, client, tmp):
    return Writing(client, Connection(ClusterConfig(proxy=cluster.proxy_urls[0])), tmp)


@pytest.fixture
def upserting(cluster, client, tmp):
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    return Writing(client, connection, tmp, is_sorted=True)


def steps(attempt, count):
    """Let an attempt send so many requests."""
    for _ in range(count):
        next(attempt)
    return attempt


def test_attempt_after_a_broken_one_adds_what_is_missing(writing):
    """Rows that the session has are not sent again."""
    steps(writing.push(), 2)
    list(writing.push())
    list(writing.push())
    assert writing.found() == ALL


def test_old_attempt_that_continues_adds_nothing(writing):
    """It is fenced, takes the session back, and finds there what a newer one has pushed."""
    old = steps(writing.push(), 1)
    list(writing.push())
    list(old)
    list(writing.push())
    assert writing.found() == ALL


@pytest.mark.parametrize("attempt", [Writing.push, Writing.insert])
def test_tablet_that_is_gone_is_named_with_a_remedy(writing, attempt):
    """The target was prepared with two tablets, and has one now."""
    writing.target = replace(writing.target, tablet_count=2, placement=Placement(2, turn=1))
    with pytest.raises(RequestRefusedError, match="changed its columns or tablets") as caught:
        list(attempt(writing))
    assert "Start the query again" in caught.value.remedy


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
def test_push_without_an_answer_counts_once(cluster, writing, fault):
    """The session is asked what it has."""
    cluster.inject(fault, PUSH, after=1, count=2)
    list(writing.push())
    assert cluster.faults()[0]["hits"] == 2
    assert writing.found() == ALL


OTHER_ROWS = {
    "a filter": ALL[1:],
    "another order": [1, 0, *ALL[2:]],
    "another value": [9, *ALL[1:]],
    "one row more": [0, 0, *ALL[1:]],
    "fewer rows than are there": ALL[:3],
}


@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize("rows", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_replay_with_other_rows_is_refused_until_the_old_ones_are_back(writing, rows, chunk):
    """Neither dropped nor pushed, however often it is tried and however requests are cut."""
    steps(writing.push(by_source=False), 2)
    for run in ("second", "third"):
        with pytest.raises(NotOneToOneError, match="pushed before"):
            list(writing.push(rows, chunk=chunk, run=run, by_source=False))
        with pytest.raises(NotOneToOneError, match="pushed before"):
            writing.rehearse({0: rows})
    assert writing.found() == ALL[:4]
    writing.rehearse({0: ALL})
    list(writing.push(chunk=chunk, run="fourth", by_source=False))
    assert writing.found() == ALL


def test_rows_may_change_behind_those_that_are_there(writing):
    """What nobody has written yet is as the newest code says."""
    steps(writing.push(), 2)
    writing.rehearse({0: [*ALL[:4], 7]}, by_source=True)
    list(writing.push([*ALL[:4], 7], run="second"))
    assert writing.found() == [*ALL[:4], 7]


def test_source_partition_may_be_in_another_task_of_the_next_run(writing):
    """Numbers of tasks are those of one run."""
    steps(writing.push(partition=1), 2)
    writing.rehearse({0: ALL}, by_source=True)
    list(writing.push(partition=0, run="second"))
    assert writing.found() == ALL


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ({1: [5], 2: []}, "no task of this replay gives them"),
        ({0: ALL[::2], 1: ALL[1::2]}, "in the Spark partitions 0 and 1"),
        ({0: ALL[:4], 1: ALL[4:]}, "in the Spark partitions 0 and 1"),
    ],
    ids=["nowhere", "by turns", "one half each"],
)
def test_replay_over_other_tasks_is_refused_before_it_pushes(writing, tasks, told):
    """By position a task that is gone would leave its rows, and others would write them again."""
    by_source = len(tasks[1]) > 1
    steps(writing.push(by_source=by_source), 2)
    with pytest.raises(NotOneToOneError, match=told):
        writing.rehearse(tasks, by_source=by_source)


def test_rows_without_a_digest_are_not_taken_for_the_same(writing, monkeypatch):
    """An older version of the package pushed them."""
    monkeypatch.setattr(SessionState, "digest", property(lambda _: None))
    steps(writing.push(), 1)
    with pytest.raises(NotOneToOneError, match="pushed before"):
        list(writing.push(run="second"))
    assert writing.found() == ALL[:2]


def test_two_rows_with_one_key_are_refused(upserting):
    """Whichever came last would win, and nobody would know."""
    with pytest.raises(DuplicateKeyError, match="1 rows of the batch have the key of another"):
        list(upserting.insert(key=5))
    assert upserting.found() == []


def test_upserts_may_be_repeated(cluster, upserting):
    """A row replaces itself."""
    cluster.inject("lose_answer", INSERT, after=1)
    steps(upserting.insert(), 3)
    list(upserting.insert())
    assert upserting.found() == ALL


def test_inserts_lose_nothing_and_repeat_what_was_not_answered(cluster, writing):
    """At-least-once: its promise, and no more."""
    cluster.inject("lose_answer", INSERT, after=1)
    cluster.inject("lose_request", INSERT, after=3)
    list(writing.insert())
    assert sorted(writing.found()) == sorted([*ALL, 2, 3])
