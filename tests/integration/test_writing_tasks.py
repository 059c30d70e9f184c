"""The tasks of the modes that write from there, as a worker runs them, against the embedded cluster.

Without Spark, so that an attempt can be stopped between two requests, and go on when another one has
taken its place. The cluster has the hazards of older servers: a push without new rows moves the session
back, and one with an empty body moves it to the beginning.
"""

from collections.abc import Iterator
from dataclasses import replace
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
from yt_exactly_once.errors import RequestRefusedError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.sink.modes.mode import RowTask, TaskSettings
from yt_exactly_once.spark.sink.modes.push import PushTask
from yt_exactly_once.spark.sink.modes.sessions import Numbering
from yt_exactly_once.spark.sink.modes.tasks import InsertTask
from yt_exactly_once.spark.sink.options import Target
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.targets import PreparedTarget
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_object

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


class Writing:
    """A target and the tasks that write into it, two rows per request."""

    def __init__(self, cluster: LocalCluster, folder: str, *, is_sorted: bool = False) -> None:
        self.client = cluster.client()
        self.connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
        schema = columns({"key": "int64", "row": "int64"}, ["key"] if is_sorted else [])
        path = create_table(self.client, f"{folder}/target", schema)
        self.producer = f"{folder}/producer"
        ensure_object(self.connection, "queue_producer", self.producer)
        frame = pa.schema([("key", pa.int64()), ("row", pa.int64())])
        self.target = PreparedTarget(
            options=Target(path),
            is_sorted=is_sorted,
            tablet_count=1,
            plan=check_frame(frame, TableSchema.from_yt(schema), target=path, sorted=is_sorted),
            wire=WireFormat.YSON,
            placement=Placement(None if is_sorted else 1),
            rows_per_tablet=ROWS_PER_TABLET_LIMIT,
            table_id="",
            request_size=2,
        )

    def push(self) -> Iterator[object]:
        """Begin an attempt; every step of it is one push."""
        batch = MicroBatch("query", 0, "run", (SourceRange("cluster", "//queue", None, ()),))
        numbering = Numbering(batch, True, self.target.plan)
        task = PushTask(self.settings(SOURCE_COLUMNS), numbering, self.producer)
        return run(task, [0] * len(ALL), ALL)

    def insert(self) -> Iterator[object]:
        """Begin an attempt; every step of it is one insert."""
        return run(InsertTask(self.settings(()), unique_keys=self.target.is_sorted))

    def settings(self, more: tuple[str, ...]) -> TaskSettings:
        return TaskSettings(("key", "row", *more), self.target, self.connection, QUICK, 1, "run")

    def found(self) -> list[int]:
        """Return the rows, in the order of the table."""
        return [row["row"] for row in self.client.select_rows(f"* from [{self.target.path}]")]


def run(task: RowTask, *more: Any) -> Iterator[object]:
    arrays = [pa.array(each) for each in (ALL, ALL, *more)]
    frame = pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(arrays))])
    with task_context(0):
        yield from task([frame])


@pytest.fixture
def writing(cluster, tmp):
    return Writing(cluster, tmp)


def test_old_attempt_that_continues_adds_nothing(writing):
    """It is fenced, takes the session back, and finds there what a newer one has pushed."""
    old = writing.push()
    next(old)
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
    cluster.inject(fault, "push_queue_producer", after=1, count=2)
    list(writing.push())
    assert cluster.faults()[0]["hits"] == 2
    assert writing.found() == ALL


def test_upserts_may_be_repeated(cluster, tmp):
    """A row replaces itself."""
    upserting = Writing(cluster, tmp, is_sorted=True)
    cluster.inject("lose_answer", "insert_rows", after=1)
    attempt = upserting.insert()
    for _ in range(3):
        next(attempt)
    list(upserting.insert())
    assert upserting.found() == ALL
