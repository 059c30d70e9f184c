"""The contract of a delivery mode: one more is a class and a line, and works behind both doors.

And what tasks check that send rows into an open transaction.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, chain, cycle, pairwise
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructType
from yt import yson

from tests.callers import frames
from tests.callers.program import SPARK_NAMES, SYSTEM_NAMES
from tests.callers.server import Server
from tests.model.tasks import COLUMNS, prepared_target, task_context
from tests.unit.test_chunks import TYPES
from yt_exactly_once import DeliveryMode, RetryPolicy, TransactionalSink
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import SEQUENCE_NUMBER, TABLET_INDEX, WireFormat
from yt_exactly_once.codec.rows import encode as encoded
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, check_frame
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.errors import ConfigError, LedgerDivergedError, RepeatedTaskError
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.doors.arrived import TaskRows, WriterTask
from yt_exactly_once.spark.doors.batch_writer import Job, JobDoor
from yt_exactly_once.spark.doors.frame_rows import FrameRows
from yt_exactly_once.spark.engine import look_up, preparation
from yt_exactly_once.spark.engine.look_up import Found
from yt_exactly_once.spark.modes import MODES
from yt_exactly_once.spark.modes.mode import (
    Assignment,
    Mode,
    RowTask,
    TargetBatch,
    TaskSettings,
    nothing_first,
)
from yt_exactly_once.spark.modes.tasks import ChunkReport
from yt_exactly_once.spark.sink import encode, placement
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.target import BY_PARTITION, ROUND_ROBIN, Target
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
    monkeypatch.setattr(frame_rows, "has_batch_ends", lambda _: True)
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


class Way(NamedTuple):
    """How rows get into a table."""

    mode: DeliveryMode
    is_sorted: bool = False
    by_source: bool = False


WAYS = [
    Way(DeliveryMode.AT_LEAST_ONCE),
    Way(DeliveryMode.AT_LEAST_ONCE, is_sorted=True),
    Way(DeliveryMode.IDEMPOTENT, by_source=True),
    Way(DeliveryMode.IDEMPOTENT),
    Way(DeliveryMode.IDEMPOTENT, is_sorted=True),
    Way(DeliveryMode.TRANSACTIONAL),
    Way(DeliveryMode.TRANSACTIONAL, is_sorted=True),
]


class Cluster:
    """Keeps the requests that it is sent, and takes all rows."""

    def __init__(self, wire):
        self.wire = wire
        self.requests = []

    @contextmanager
    def sending(self):
        yield self

    def send(self, command, parameters, body=None):
        if body is None:
            return yson.dumps({"epoch": 1, "sequence_number": -1})
        self.requests.append((command, repr(parameters), bytes(body)))
        last = decoded(body, self.wire)[-1].get(SEQUENCE_NUMBER)
        return yson.dumps({"last_sequence_number": last, "skipped_row_count": 0})

    def joined(self, *_, **__):
        return self

    def write(self, path, payloads, wire, _options=None):
        self.requests += [(path, wire, bytes(payload.data)) for payload in payloads]


class Sent(NamedTuple):
    """What is sent: each row with its tablet and its number, and the requests."""

    row_count: int
    digest: int | None
    key_hashes: list[bytes]
    rows: Counter
    requests: Counter


def bare(sent):
    """Return the rows that were sent, without tablets and numbers."""
    return Counter(row for *_, row in sent.rows.elements())


def decoded(body, wire):
    if wire is WireFormat.YSON:
        return list(yson.loads(bytes(body), yson_type="list_fragment"))
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all().to_pylist()


def value_of(kind, place, number, size):
    """Return a value of a column and a row which no other ones have; some are null."""
    mark, text = f"{place} {number}", "x" * size
    return None if (number + place) % 5 == 4 else {
        "id": 1_000 * number + place,
        "flag": size % 2 == 0,
        "text": mark + text,
        "many": [mark, text],
        "pairs": {mark: size},
        "record": {"flag": size % 3 == 0, "texts": [text, mark]},
    }[kind]  # fmt: skip


# Each example is sent five times.
@settings(max_examples=settings.default.max_examples // 4)
@given(
    way=st.sampled_from(WAYS),
    written=st.lists(st.sampled_from(SPARK_NAMES), min_size=2, unique=True),
    passed=st.lists(st.sampled_from(SYSTEM_NAMES + SOURCE_COLUMNS), unique=True),
    partitions=st.lists(st.lists(st.integers(0, 90), max_size=8), min_size=1, max_size=3),
    batching=st.tuples(st.integers(1, 15), st.integers(1, 15)),
    limits=st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from([100, 1_000, 10_000])),
    tablets=st.integers(1, 3),
    rule=st.sampled_from([BY_PARTITION, ROUND_ROBIN, "a column"]),
    wire=st.sampled_from(WireFormat),
    is_unique=st.booleans(),
    shares_tasks=st.booleans(),
    data=st.data(),
)
def test_same_rows_are_sent_whoever_sends_them(
    way,
    written,
    passed,
    partitions,
    batching,
    limits,
    tablets,
    rule,
    wire,
    is_unique,
    shares_tasks,
    data,
):
    """By tasks, or the driver in their place; whatever the columns are called and Arrow has batched."""
    given_too = {*passed, *(SOURCE_COLUMNS if way.by_source else ())}
    names = data.draw(st.permutations([*written, *sorted(given_too)]), "names")
    kinds = dict(zip(written, cycle(TYPES), strict=False))
    places = [place for place, sizes in enumerate(partitions) for _ in sizes]
    sizes = list(chain.from_iterable(partitions))

    def values(name):
        if name == written[0] or name == SOURCE_COLUMNS[1]:
            return pa.array(range(len(sizes)), pa.int64())
        if name == SOURCE_COLUMNS[0]:
            both = zip(places, sizes, strict=True)
            return pa.array([2 * place + size % 2 for place, size in both], pa.int64())
        kind, place = kinds.get(name, "id"), names.index(name)
        told = [value_of(kind, place, *each) for each in enumerate(sizes)]
        return pa.array(told, TYPES[kind][0])

    rows = pa.RecordBatch.from_arrays([values(name) for name in names], names)
    ends = [0, *accumulate(map(len, partitions))]
    parts = [rows.slice(start, end - start) for start, end in pairwise(ends)]
    order = {"sort_order": "ascending"} if way.is_sorted else {}
    schema = TableSchema.from_yt([
        {"name": name, "type_v3": {"type_name": "optional", "item": TYPES[kinds[name]][1]}}
        | (order if name == written[0] else {})
        for name in written
    ])  # fmt: skip
    is_unique = is_unique and way == Way(DeliveryMode.TRANSACTIONAL, is_sorted=True)
    plan = check_frame(rows.schema, schema, target="//t", sorted=way.is_sorted)
    ordered = Placement(
        tablets, (data.draw(st.sampled_from(names)),) if rule == "a column" else rule
    )
    target = replace(
        prepared_target("//t", is_sorted=way.is_sorted, dyn_batch_size=limits[0]),
        options=Target("//t", digest=not is_unique, unique_keys=is_unique),
        plan=plan,
        wire=wire,
        placement=Placement(None) if way.is_sorted else ordered,
    )
    sources = (SourceRange("model", "//q", None, (), "1-1"),) if way.by_source else ()
    batch = MicroBatch("query", 3, "run", sources, shares_tasks=shares_tasks)

    def send(most, *, by_driver, by_ends=False):
        cluster, joins = Cluster(wire), MODES[way.mode].one_transaction
        session = SimpleNamespace(conf=frames.Conf({frames.ROWS_OF_BATCH: str(most)}))
        frame = frames.Frame(Server(), rows.schema, lambda: parts, session)
        opened = OpenTransaction("1-2", "here") if joins and not by_driver else None
        mode = MODES[way.mode](SinkOptions(target.options, mode=way.mode, proxy="here"), cluster)
        plan = mode.assign(TargetBatch(batch, target, tuple(names), {}, opened, by_driver, by_ends))
        arrived = list(FrameRows(frame).compute(plan))
        # In one transaction the driver compares keys itself, where it has them.
        hashes = b"" if joins or not plan.task else ChunkReport.of_all(arrived).key_hashes
        (written,) = mode.finish(plan, arrived)
        for group in written.groups:
            cluster.write(written.path, group, written.wire)
        found = [row for *_, body in cluster.requests for row in decoded(body, wire)]
        return Sent(
            written.row_count,
            written.digest,
            sorted(hashes[start : start + 16] for start in range(0, len(hashes), 16)),
            Counter(
                (row.pop(TABLET_INDEX, 0), row.pop(SEQUENCE_NUMBER, 0), str(row)) for row in found
            ),
            Counter(cluster.requests),
        )

    with (
        patch.multiple(encode, SMALL_BATCH=limits[1], REQUEST_BYTES=limits[2]),
        patch.multiple(
            frame_rows,
            sf=frames.Functions,
            require_straight=lambda *_: len(parts),
            tasks_of_one_stage=lambda *_: 0,
        ),
        patch.object(placement, "sf", frames.Functions),
    ):
        tasks, again = (send(most, by_driver=False) for most in batching)
        driver, replay = (send(most, by_driver=True) for most in batching)
        try:
            ended = send(batching[0], by_driver=True, by_ends=True)
        except PartitionsUnknownError:
            assert way == Way(DeliveryMode.IDEMPOTENT)
            ended = driver
    assert (tasks, driver) == (again, replay)
    assert tasks[:4] == driver[:4]
    if not MODES[way.mode].one_transaction:
        assert tasks == driver
    assert ended[:3] == driver[:3]
    assert bare(tasks) == bare(ended) == Counter(map(str, decoded(encoded(rows, plan, wire), wire)))
    assert is_unique or tasks.digest == added(0, row_hashes(rows, plan.columns))


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
    monkeypatch.setattr(frame_rows, "tasks_of_one_stage", lambda *_: tasks)
    mode, target = sink_mode(), prepared_target("//t", is_sorted=False)
    given = TargetBatch(
        MicroBatch("query", 0, "run"), target, COLUMNS, {}, OpenTransaction("1-2", "localhost:1")
    )
    rows = FrameRows(Late(schema=SCHEMA, sparkSession=SimpleNamespace(conf={})))
    with pytest.raises(error, match=told):
        rows.compute(mode.assign(given))


@pytest.mark.parametrize("is_sorted", [True, False])
def test_groups_of_the_driver_are_tablets_where_rows_are_placed(is_sorted):
    """Keys choose the tablets of a sorted target, so its parts are cut by all rows."""
    mode = sink_mode()
    target = prepared_target("//t", is_sorted=is_sorted)
    plan = mode.assign(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))
    placed = ROWS.append_column(PARTITION_COLUMN, pa.array([0] * 3, pa.int32()))
    (written,) = mode.finish(plan, [placed if target.needs_partitions else ROWS])
    assert (written.row_count, written.group_is_tablet) == (3, not is_sorted)


@pytest.mark.parametrize(
    ("mode", "is_sorted", "is_of_one_task"),
    [("idempotent", False, True), ("idempotent", True, False), ("at-least-once", False, False)],
)
def test_rows_of_a_job_are_numbered_by_their_place(monkeypatch, mode, is_sorted, is_of_one_task):
    """So idempotent mode knows them again in an ordered table, where one task writes it."""
    options = (("path", "//t"), ("proxy", "localhost:1"), ("mode", mode))
    target = prepared_target("//t", is_sorted=is_sorted)
    monkeypatch.setattr(preparation, "prepare", lambda _delivery: (target,))
    monkeypatch.setattr(preparation, "require_cluster", lambda _delivery: "id")
    monkeypatch.setattr(look_up, "look_up", lambda *_: Found())
    monkeypatch.setattr(Connection, "require_proxy", lambda _: None)
    monkeypatch.setattr(JobDoor, "_require_next", lambda *_: None)
    assignment = JobDoor(Job("job", 1, options, overwrites=False)).plan(SCHEMA).assignment
    assert (assignment.task is not None, assignment.is_by_position) == (True, is_of_one_task)
