"""The contract of a delivery mode: one more is a class and a line, and works behind both doors.

And what tasks check that send rows into an open transaction.
"""

from contextlib import nullcontext
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
from yt_exactly_once import RetryPolicy, TransactionalSink
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.errors import ConfigError, LedgerDivergedError, RepeatedTaskError
from yt_exactly_once.spark.sink import batch_writer, frame_rows
from yt_exactly_once.spark.sink.arrived import TaskRows, WriterTask
from yt_exactly_once.spark.sink.batch_writer import Job, JobSink
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError
from yt_exactly_once.spark.sink.frame_rows import FrameRows
from yt_exactly_once.spark.sink.look_up import Found
from yt_exactly_once.spark.sink.modes import MODES
from yt_exactly_once.spark.sink.modes.mode import Mode, Plan, RowTask, TargetBatch, TaskSettings
from yt_exactly_once.spark.sink.modes.tasks import ChunkReport

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

    def check(self):
        """See `Mode.check`."""

    def plan(self, given):
        settings = self.settings(given, given.target)
        return Plan(given, settings.names, CountTask(settings))

    def finish(self, plan, arrived):
        return [TargetRows(plan.given.target.path, (), "", ChunkReport.of_all(arrived).row_count)]


class Frame(SimpleNamespace):
    """A DataFrame whose only task runs at once."""

    def mapInArrow(self, task, schema):  # noqa: N802 - Spark's name
        assert schema == CountTask.reports
        with task_context(3):
            return list(task([ROWS]))


@pytest.mark.parametrize("door", ["foreachBatch", "format"])
def test_a_further_mode_is_a_class_and_a_line(monkeypatch, door):
    """The same object of it runs inside `mapInArrow` and inside the `write` of the format."""
    monkeypatch.setitem(MODES, "transactional", Count)
    monkeypatch.setattr(frame_rows, "arrow_batches", list)
    mode = TransactionalSink("//t", proxy="localhost:1")._mode
    target = prepared_target("//t", is_sorted=False)
    plan = mode.plan(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))
    if door == "foreachBatch":
        arrived = FrameRows(Frame(schema=SCHEMA)).compute(plan)
    else:
        message = WriterTask(plan).run([ROWS], "run", 3)
        arrived = TaskRows(SCHEMA, [message]).compute(plan)
    (written,) = mode.finish(plan, arrived)
    assert (written.path, written.row_count) == ("//t", 3)


def by_driver(task, **options):
    """Plan that the driver stands in for tasks."""
    target = prepared_target("//t", is_sorted=False)
    settings = TaskSettings(COLUMNS, target, None, RetryPolicy(), 1)
    given = TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}, by_driver=True)
    return Plan(given, COLUMNS, task(settings), **options)


def test_driver_that_stands_in_writes_when_it_has_all_rows_and_is_told_to(monkeypatch):
    """An error of `ready`, such as that the batch is written already, comes before the first request."""
    done = []

    def arrive(_frame):
        done.append("all rows")
        return [ROWS.append_column(PARTITION_COLUMN, pa.array([3, 3, 3], pa.int32()))]

    def ready():
        done.append("told")
        if len(done) > 2:
            raise LedgerDivergedError("written")

    monkeypatch.setattr(frame_rows, "arrow_batches", arrive)
    monkeypatch.setattr(frame_rows, "_numbered", lambda frame: frame)
    plan = by_driver(CountTask, ready=ready)
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
])  # fmt: skip
def test_spark_partitions_are_told_by_their_ends_only_where_each_has_one(
    monkeypatch, full, tasks, is_by_position, known
):
    """By position a row has the number of its partition. Elsewhere neighbours may share one."""
    told = []
    monkeypatch.setattr(frame_rows, "arrow_batches", lambda _: [ROWS, ROWS])
    monkeypatch.setattr(frame_rows, "rows_of_full_batch", lambda _: full)
    monkeypatch.setattr(frame_rows, "require_straight", lambda *_: tasks)
    plan = by_driver(
        PartitionTask,
        ready=lambda: told.append("ready"),
        ends_tell=True,
        is_by_position=is_by_position,
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
    frame = frames.Frame(Server(), rows.schema, lambda: [rows.slice(0, 1), rows.slice(1)], None)
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
    mode, target = (
        TransactionalSink("//t", proxy="localhost:1")._mode,
        prepared_target("//t", is_sorted=False),
    )
    given = TargetBatch(
        MicroBatch("query", 0, "run"), target, COLUMNS, {}, OpenTransaction("1-2", "localhost:1")
    )
    with pytest.raises(error, match=told):
        FrameRows(Late(schema=SCHEMA)).compute(mode.plan(given))


@pytest.mark.parametrize("is_sorted", [True, False])
def test_lanes_of_the_driver_are_tablets_where_rows_are_placed(is_sorted):
    """Keys choose the tablets of a sorted target, so its parts are cut by all rows."""
    mode = TransactionalSink("//t", proxy="localhost:1")._mode
    target = prepared_target("//t", is_sorted=is_sorted)
    plan = mode.plan(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))
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
    job = Job("job", 1, options, overwrites=False)
    run = SimpleNamespace(targets=(prepared_target("//t", is_sorted=is_sorted),), sessions={})
    batch, rows = MicroBatch("query", 1, "run"), TaskRows(SCHEMA)
    delivery = SimpleNamespace(run=run, batch=batch, rows=rows)
    monkeypatch.setattr(JobSink, "_of_job", lambda *_: nullcontext(delivery))
    monkeypatch.setattr(batch_writer, "find", lambda _: Found())
    plan = JobSink(job).plan(SCHEMA).plan
    assert (plan.task is not None, plan.is_by_position) == (True, is_of_one_task)
