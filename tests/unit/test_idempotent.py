"""What idempotent mode does before its tasks push; the tasks have tests of their own."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.model.tasks import COLUMNS, prepared_target
from yt_exactly_once.codec.key_hashes import KEY_HASHES, distinct, key_hashes
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, WritePlan
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.errors import ConfigError, DuplicateKeyError
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.doors.frame_rows import FrameRows
from yt_exactly_once.spark.modes import idempotent
from yt_exactly_once.spark.modes import tasks as tasks_module
from yt_exactly_once.spark.modes.idempotent import Idempotent
from yt_exactly_once.spark.modes.mode import TargetBatch
from yt_exactly_once.spark.modes.push import RehearsalTask
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.target import Target


class Frame:
    """A DataFrame that only shows which task it is given to."""

    schema = StructType()
    sparkSession = None  # noqa: N815 - Spark's name

    def mapInArrow(self, task, _schema):  # noqa: N802 - Spark's name
        return type(task).__name__

    def select(self, *_names):
        return self


@pytest.mark.parametrize("by_source", [True, False])
@pytest.mark.parametrize("begun", [{}, {"0": SimpleNamespace(sequence_number=3)}])
def test_rows_are_inspected_as_far_as_their_numbers_need_it(monkeypatch, by_source, begun):
    """Positions need rows that come straight from the batch; a begun batch is rehearsed first."""
    done, turned = [], []
    monkeypatch.setattr(frame_rows, "require_straight", lambda *_: done.append("straight"))
    monkeypatch.setattr(frame_rows, "arrow_batches", lambda job: done.append(job) or [])
    monkeypatch.setattr(RehearsalTask, "require_same_rows", lambda *_: done.append("same"))
    monkeypatch.setattr(idempotent, "gone_sessions", lambda *_: frozenset())
    options = SinkOptions("//t", mode="idempotent", proxy="x", connections=1)
    target = SimpleNamespace(
        plan=SimpleNamespace(names=("id",)), options=Target("//t"), is_sorted=False,
        placement=Placement(1), dyn_batch_size=1,
    )  # fmt: skip
    target.of_batch = lambda batch: turned.append(batch) or target
    source = SourceRange("cluster", "//queue", None, ())
    columns = ("id", *(SOURCE_COLUMNS if by_source else ()))
    given = TargetBatch(MicroBatch("query", 0, "run", (source,)), target, columns, begun)
    FrameRows(Frame()).compute(Idempotent(options, None).assign(given))
    inspected = [] if by_source else ["straight"]
    rehearsed = ["RehearsalTask", "same"] if begun else []
    assert done == [*inspected, *rehearsed, "PushTask"]
    # Rows that carry their source go where their queue partition says, in all batches.
    assert bool(turned) is not by_source


@pytest.mark.parametrize(
    ("state", "shuffles", "columns", "told"),
    [
        (True, False, {}, "this query keeps state"),
        (False, True, {"//t": ["id"]}, "this query has a shuffle"),
        (False, False, {"//t": ["id"]}, None),
        (False, True, {"//t": ["id", *SOURCE_COLUMNS]}, None),
        (False, True, {}, None),
        (False, True, None, None),
    ],
)
def test_query_whose_replay_may_give_other_rows_is_refused(state, shuffles, columns, told):
    """Rows that carry their source, or a key, may come in any order."""
    source = SourceRange("cluster", "//queue", None, ())
    batch = MicroBatch("query", 0, "run", (source,), stateful=state)
    mode = Idempotent(SinkOptions("//t", mode="idempotent", proxy="x"), None)
    with pytest.raises(ConfigError, match=told) if told else nullcontext():
        mode.require_query(batch, columns, shuffles=shuffles)
    with pytest.raises(ConfigError, match=told) if state else nullcontext():
        mode.prepare(batch, ())


def keyed(*keys):
    """Return rows with these keys."""
    return pa.RecordBatch.from_pydict({name: list(keys) for name in COLUMNS})


def test_hashes_of_keys_differ_wherever_their_nulls_are():
    """And both of their numbers do: 64 bits would stop a query of many rows by accident."""
    columns = [
        {"name": name, "type": "int64", "sort_order": "ascending"} for name in ("one", "other")
    ]
    keys = WritePlan("//t", TableSchema.from_yt(columns).columns)
    values = [(None, 1), (1, None), (1, 1), (None, None), (1, 1)]
    arrays = [pa.array(part, pa.int64()) for part in zip(*values, strict=True)]
    hashes = key_hashes(pa.RecordBatch.from_arrays(arrays, names=["one", "other"]), keys)
    assert hashes[2] == hashes[4]
    for name in hashes.dtype.names:
        assert len(set(hashes[name][:4].tolist())) == 4


@pytest.mark.parametrize(
    ("keys", "once"),
    [
        ([(2, 1), (1, 1), (1, 2)], [(1, 1), (1, 2), (2, 1)]),
        ([(1, 1), (2, 2), (1, 1)], [(1, 1), (2, 2)]),
        ([], []),
    ],
)
def test_keys_are_one_if_both_of_their_hashes_are(keys, once):
    assert sorted(distinct(np.array(keys, KEY_HASHES)).tolist()) == once


@pytest.mark.parametrize(
    ("tasks", "is_refused"), [([(1, 1)], True), ([(1,), (1,)], True), ([(1,), (2,)], False)]
)
def test_rows_with_one_key_are_refused_in_a_task_and_across_tasks(monkeypatch, tasks, is_refused):
    """In a chunk before it is sent; the driver compares the tasks before the commit."""
    sent = []
    monkeypatch.setattr(tasks_module, "insert_payload", lambda *given, **_: sent.append(given))
    mode = Idempotent(SinkOptions("//t", mode="idempotent", proxy="x", connections=1), None)
    target = prepared_target("//t", is_sorted=True)
    assignment = mode.assign(TargetBatch(MicroBatch("query", 0, "run"), target, COLUMNS, {}))

    def finish():
        told = [report for keys in tasks for report in assignment.task.run([keyed(*keys)], 0)]
        return mode.finish(assignment, told)

    if is_refused:
        with pytest.raises(DuplicateKeyError, match="1 rows of the batch have the key"):
            finish()
        assert len(sent) == len(tasks) - (len(tasks) == 1)
    else:
        assert finish()[0].row_count == len(tasks)
