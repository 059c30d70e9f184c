"""The contract of a delivery mode: one more is a class and a line, and works behind both doors.

And what tasks check that send rows into an open transaction.
"""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructType

from tests.callers import frames
from tests.callers.program import SPARK_NAMES, SYSTEM_NAMES
from tests.callers.server import Server
from tests.model.tasks import COLUMNS, prepared_target, task_context
from yt_exactly_once import DeliveryMode, RetryPolicy, TransactionalSink
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.errors import ConfigError, LedgerDivergedError, RepeatedTaskError
from yt_exactly_once.spark.sink import engine, frame_rows, look_up
from yt_exactly_once.spark.sink.arrived import TaskRows, WriterTask
from yt_exactly_once.spark.sink.batch_writer import Job, JobDoor
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError
from yt_exactly_once.spark.sink.frame_rows import FrameRows
from yt_exactly_once.spark.sink.look_up import Found
from yt_exactly_once.spark.sink.modes import MODES
from yt_exactly_once.spark.sink.modes.mode import (
    Assignment,
    Mode,
    RowTask,
    TargetBatch,
    TaskSettings,
    nothing_first,
)
from yt_exactly_once.spark.sink.modes.tasks import ChunkReport
from yt_exactly_once.ytsaurus.client import Connection

ROWS = pa.RecordBatch.from_pydict({name: [1, 2, 3] for name in COLUMNS})
SCHEMA = StructType()
for each in COLUMNS:
    SCHEMA.add(each, LongType())


class CountTask(RowTask):
    """Counts the rows of a task, and writes none."""

    reports = StructType().add("row_count", LongType())

    def run(self, batches, partition):
        assert partition == 3
        count = sum(chunk.num_rows for chunk in self.settings.chunks(batches))
        yield ChunkReport(count).to_arrow()


class Count(Mode):
    """A mode that only counts."""

    one_transaction = False

    def check(self):
        """See `Mode.check`."""

    def begun_sessions(self, *_, **__):
        """See `Mode.begun_sessions`."""
        return {}

    def assign(self, given):
        settings = self.settings(given, given.target)
        return Assignment(given, settings.names, CountTask(settings))

    def finish(self, assignment, arrived):
        path = assignment.given.target.path
        return [TargetRows(path, (), "", ChunkReport.of_all(arrived).row_count)]


def sink_mode():
    """The mode of a sink, which reaches no cluster."""
    return TransactionalSink("//t", proxy="localhost:1")._engine.mode


class Frame(SimpleNamespace):
    """A DataFrame whose only task runs at once."""

    sparkSession = None  # noqa: N815 - Spark's name

    def mapInArrow(self, task, schema):  # noqa: N802 - Spark's name
        assert schema == CountTask.reports
        with task_context(3):
            return list(task([ROWS]))


@pytest.mark.parametrize("door", ["foreachBatch", "format"])
def test_a_further_mode_is_a_class_and_a_line(monkeypatch, door):
    """The same object of it runs inside `mapInArrow` and inside the `write` of the format."""
    monkeypatch.setitem(MODES, "transactional", Count)
    monkeypatch.setattr(frame_rows, "arrow_batches", list)
    mode = sink_mode()
    target = prepared_target("//t", is_sorted=False)
    plan = mode.assign(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))
    if door == "foreachBatch":
        arrived = FrameRows(Frame(schema=SCHEMA)).compute(plan)
    else:
        message = WriterTask(plan).run([ROWS], "run", 3)
        arrived = TaskRows(SCHEMA, [message]).compute(plan)
    (written,) = mode.finish(plan, arrived)
    assert (written.path, written.row_count) == ("//t", 3)


@pytest.mark.parametrize("name", DeliveryMode)
def test_traits_of_a_mode_are_those_that_doctor_goes_by(name):
    """`doctor` runs without Spark, so it cannot ask the mode itself."""
    mode = MODES[name]
    own = mode.one_transaction, mode.tolerates_repeats, mode.has_sessions
    assert own == (name.through_driver, name.may_repeat, name.has_sessions)


def by_driver(task, first=nothing_first, **options):
    """Assign to the driver what tasks would do."""
    target = prepared_target("//t", is_sorted=False)
    settings = TaskSettings(COLUMNS, target, None, RetryPolicy(), 1)
    batch = MicroBatch("query", 0, "run")
    given = TargetBatch(batch, target, COLUMNS, {}, by_driver=True, first=first)
    return Assignment(given, COLUMNS, task(settings), **options)


def test_driver_sends_for_tasks_when_it_has_all_rows_and_what_comes_first_is_done(monkeypatch):
    """An error of `first`, such as that the batch is written already, comes before the first request."""
    done = []

    def arrive(_frame):
        done.append("all rows")
        return [ROWS.append_column(PARTITION_COLUMN, pa.array([3, 3, 3], pa.int32()))]

    def first():
        done.append("told")
        if len(done) > 2:
            raise LedgerDivergedError("written")

    monkeypatch.setattr(frame_rows, "arrow_batches", arrive)
    monkeypatch.setattr(frame_rows, "_numbered", lambda frame: frame)
    plan = by_driver(CountTask, first)
    rows = FrameRows(Frame(schema=SCHEMA))
    assert ChunkReport.of_all(rows.compute(plan)).row_count == 3
    with pytest.raises(LedgerDivergedError):
        rows.compute(plan)
    assert done == ["all rows", "told"] * 2


class PartitionTask(CountTask):
    """Reports the Spark partition in the place of the rows."""

    def run(self, batches, partition):
        assert all(batch.num_rows for batch in batches)
        yield ChunkReport(partition).to_arrow()


@pytest.mark.parametrize(("full", "tasks", "is_by_position", "known"), [
    (4, 2, True, [0, 1]),
    (4, 3, True, None),
    (3, 2, True, None),
    (3, 2, False, [0]),
    (None, 2, False, None),
])  # fmt: skip
def test_spark_partitions_are_told_by_their_ends_only_where_each_has_one(
    monkeypatch, full, tasks, is_by_position, known
):
    """By position a row has the number of its partition. Elsewhere neighbours may share one."""
    told = []
    monkeypatch.setattr(frame_rows, "tells_ends", lambda _: True)
    monkeypatch.setattr(frame_rows, "ended_batches", lambda _: ([ROWS, ROWS], full))
    monkeypatch.setattr(frame_rows, "require_straight", lambda *_: tasks)
    plan = by_driver(
        PartitionTask, lambda: told.append("first"), by_ends=True, is_by_position=is_by_position
    )
    rows = FrameRows(Frame(schema=SCHEMA))
    if known is None:
        with pytest.raises(PartitionsUnknownError):
            rows.compute(plan)
        assert not told
    else:
        reports = [row for batch in rows.compute(plan) for row in batch.to_pylist()]
        assert [row["row_count"] for row in reports] == known


class RowsTask(CountTask):
    """Reports the rows of a task as it sees them."""

    def run(self, batches, partition):
        for chunk in self.settings.chunks(batches):
            yield chunk.append_column("place", pa.array([partition] * chunk.num_rows))


@given(
    names=st.lists(st.sampled_from(SPARK_NAMES + SYSTEM_NAMES), min_size=1, unique=True),
    data=st.data(),
)
def test_driver_sees_the_rows_that_tasks_see(names, data):
    """Whatever the columns are called: names on the way may be those of other columns."""
    wanted = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True), "wanted"))
    wanted = tuple(name for name in names if name in wanted)
    values = {name: [10 * place, 10 * place + 1] for place, name in enumerate(names)}
    rows = pa.RecordBatch.from_pydict(values)
    session = SimpleNamespace(conf=frames.Conf({frames.ROWS_OF_BATCH: "10000"}))
    frame = frames.Frame(Server(), rows.schema, lambda: [rows.slice(0, 1), rows.slice(1)], session)
    plan = by_driver(RowsTask)
    batch = replace(plan.given, columns=tuple(names))
    task = replace(plan.task, settings=replace(plan.task.settings, names=wanted))
    seen = []
    with patch.object(frame_rows, "sf", frames.Functions):
        for stands_in in (False, True):
            now = replace(plan, given=replace(batch, by_driver=stands_in), names=wanted, task=task)
            seen.append([row for part in FrameRows(frame).compute(now) for row in part.to_pylist()])
    expected = [
        {name: values[name][place] for name in wanted} | {"place": place} for place in (0, 1)
    ]
    assert seen == [expected, expected]


def test_rows_of_a_writer_are_computed_once_spark_asks_for_the_commit():
    """Even where no task had any: the driver does not take the place of tasks that have run."""
    assert not TaskRows(SCHEMA).are_computed
    assert TaskRows(SCHEMA, []).are_computed


@pytest.mark.parametrize(
    ("tasks", "attempt", "error", "told"),
    [
        (2, 0, ConfigError, "2 tasks cannot write into 1 tablets"),
        (1, 1, RepeatedTaskError, "Attempt 1 of the task"),
    ],
)
def test_tasks_send_nothing_that_could_mix_or_come_twice(monkeypatch, tasks, attempt, error, told):
    """Before the first request: the cluster is nobody."""

    class Late(Frame):
        def mapInArrow(self, task, _schema):  # noqa: N802 - Spark's name
            with task_context(0, attempt):
                yield from task([ROWS])

    monkeypatch.setattr(frame_rows, "arrow_batches", list)
    monkeypatch.setattr(frame_rows, "require_one_stage", lambda *_: tasks)
    mode, target = sink_mode(), prepared_target("//t", is_sorted=False)
    given = TargetBatch(
        MicroBatch("query", 0, "run"), target, COLUMNS, {}, OpenTransaction("1-2", "localhost:1")
    )
    with pytest.raises(error, match=told):
        FrameRows(Late(schema=SCHEMA)).compute(mode.assign(given))


@pytest.mark.parametrize("is_sorted", [True, False])
def test_lanes_of_the_driver_are_tablets_where_rows_are_placed(is_sorted):
    """Keys choose the tablets of a sorted target, so its parts are cut by all rows."""
    mode = sink_mode()
    target = prepared_target("//t", is_sorted=is_sorted)
    plan = mode.assign(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))
    placed = ROWS.append_column(PARTITION_COLUMN, pa.array([0] * 3, pa.int32()))
    (written,) = mode.finish(plan, [placed if target.needs_partitions else ROWS])
    assert (written.row_count, written.lane_is_tablet) == (3, not is_sorted)


@pytest.mark.parametrize(
    ("mode", "is_sorted", "is_of_one_task"),
    [("idempotent", False, True), ("idempotent", True, False), ("at-least-once", False, False)],
)
def test_rows_of_a_job_are_numbered_by_their_place(monkeypatch, mode, is_sorted, is_of_one_task):
    """So idempotent mode knows them again in an ordered table, where one task writes it."""
    options = (("path", "//t"), ("proxy", "localhost:1"), ("mode", mode))
    target = prepared_target("//t", is_sorted=is_sorted)
    monkeypatch.setattr(engine, "prepare", lambda _delivery: (target,))
    monkeypatch.setattr(look_up, "require_cluster", lambda _delivery: "id")
    monkeypatch.setattr(look_up, "look_up", lambda *_: Found())
    monkeypatch.setattr(Connection, "require_proxy", lambda _: None)
    monkeypatch.setattr(JobDoor, "_require_next", lambda *_: None)
    assignment = JobDoor(Job("job", 1, options, overwrites=False)).plan(SCHEMA).assignment
    assert (assignment.task is not None, assignment.is_by_position) == (True, is_of_one_task)
