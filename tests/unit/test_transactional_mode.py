"""Transactional mode: which rows of a batch may have one key, and when its transaction is opened."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.model.tasks import COLUMNS, prepared_target
from yt_exactly_once import Event, RetryPolicy, Target, TransactionalSink
from yt_exactly_once.codec.key_hashes import KEY_HASHES
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.claims import Claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import (
    AccessError,
    AmbiguousOrderError,
    ConfigError,
    DuplicateKeyError,
    RequestRefusedError,
    SchemaMismatchError,
    TableError,
    TableNotMountedError,
    TasksRefusedError,
)
from yt_exactly_once.spark.engine import past_batches
from yt_exactly_once.spark.modes import transactional
from yt_exactly_once.spark.modes.mode import TargetBatch
from yt_exactly_once.spark.modes.tasks import ChunkReport
from yt_exactly_once.spark.modes.transactional import _distinct_keys
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.ytsaurus import backends


def keys(*values):
    return pa.array([value.encode() for value in values], pa.large_binary())


def test_rows_with_one_key_are_refused_on_request():
    """Within a Spark partition and across them; the message counts them and shows none."""
    assert len(_distinct_keys([], "//t", unique=True)) == 0
    found = _distinct_keys([[keys("a"), keys("b")], [keys("c")]], "//t", unique=True)
    assert found == keys("a", "b", "c")
    for repeated in ([[keys("a", "a")]], [[keys("a")], [keys("a")]]):
        with pytest.raises(DuplicateKeyError, match="1 of 2 rows have the key") as caught:
            _distinct_keys(repeated, "//t", unique=True)
        assert caught.value.where == {"target": "//t"}


def test_mode_that_cannot_see_all_keys_refuses_the_request():
    """Tasks of at-least-once write without each other."""
    target = Target("//t", unique_keys=True)
    with pytest.raises(ConfigError, match="unique_keys is not possible"):
        TransactionalSink(target, proxy="localhost:1", mode="at-least-once")
    TransactionalSink(target, proxy="localhost:1", mode="idempotent")
    with pytest.raises(ConfigError, match="exclude each other"):
        Target("//t", unique_keys=True, delete_marker="gone")


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        ("//home/{shop}/t", {}, "a path with columns in braces"),
        ("//t", {"split_oversized": True}, "split_oversized"),
        ("//t", {"backend": "rpc"}, "the backend rpc"),
    ],
)
def test_tasks_send_no_rows_that_must_come_together(monkeypatch, target, options, named):
    """The driver sends them, and a query that wants otherwise is refused."""
    monkeypatch.setattr(backends, "find_spec", bool)  # not every platform has the RPC driver
    assert TransactionalSink(target, proxy="localhost:1", **options)._engine.mode.obstacle == named
    with pytest.raises(ConfigError, match=f"^sent_by='tasks' and {named} exclude each other"):
        TransactionalSink(target, proxy="localhost:1", sent_by="tasks", **options)


@pytest.mark.parametrize(
    ("unique", "error"), [(True, DuplicateKeyError), (False, AmbiguousOrderError)]
)
def test_key_that_several_tasks_have_sent_is_refused(unique, error):
    """Nobody knows which of its rows is the last one."""
    target = SimpleNamespace(path="//t", options=SimpleNamespace(unique_keys=unique))
    hashes = np.zeros(2, KEY_HASHES).tobytes()
    given = SimpleNamespace(target=target)
    with pytest.raises(error):
        transactional._sent_by_tasks(ChunkReport(2, key_hashes=hashes), given, None)


def test_dead_letters_are_written_only_if_there_are_any():
    """By tasks or by the driver: without any there is nothing to write."""
    batch, letters = MicroBatch("query", 5, "run"), Rejects("//r", "query", 5)
    target = prepared_target("//t", is_sorted=False)
    given = TargetBatch(batch, target, COLUMNS, {}, transaction=OpenTransaction("1-2", "proxy"))
    for report, paths in (
        (ChunkReport(3), ["//t"]),
        (ChunkReport(3, rejected_count=2), ["//t", "//r"]),
    ):
        found = transactional._sent_by_tasks(report, given, letters)
        assert [one.path for one in found] == paths
    options = SinkOptions("//t", proxy="localhost:1", dead_letter_path="//r")
    mode = transactional.Transactional(options, None)
    assignment = mode.assign(TargetBatch(batch, target, COLUMNS, {}))
    rows = pa.RecordBatch.from_pydict({name: [1] for name in COLUMNS})
    assert [one.path for one in mode.finish(assignment, [rows])] == ["//t"]


@dataclass(frozen=True)
class ClaimingTask:
    """What `prepare_claims` reads and sets."""

    settings: Any = field(default_factory=lambda: SimpleNamespace(retry=RetryPolicy()))
    claims: Claims | None = None
    tried: Tried | None = None


@pytest.fixture
def prepare_claims(monkeypatch):
    """Return a function that prepares claims, and tells what was done; rows are kept so many seconds."""

    def run(*, is_tried=False, seconds=None, **opened):
        done = []
        for owner, name, answer in (
            (transactional.tables, "ensure_table", None),
            (transactional.tables, "expiring", seconds),
            (Claims, "try_out", None),
            (Tried, "keep", None),
        ):
            monkeypatch.setattr(
                owner, name, lambda *_, name=name, answer=answer: done.append(name) or answer
            )
        given = SimpleNamespace(
            batch=MicroBatch("query", 5, "run"),
            target=SimpleNamespace(path="//t"),
            **({"plan": None, "transaction": None} | opened),
        )
        task = ClaimingTask()
        made = transactional.prepare_claims(None, "//claims", task, given, is_tried=is_tried)
        return done, made

    return run


OPENED, PLANNED = {"transaction": SimpleNamespace(id="1-2")}, {"plan": SimpleNamespace(id="plan")}


@pytest.mark.parametrize(("opened", "by", "does"), [
    (OPENED, "1-2", ["try_out"]), (PLANNED, "plan", ["keep"]),
])  # fmt: skip
def test_table_of_claims_is_made_and_tried_out_once_in_a_run(prepare_claims, opened, by, does):
    """Each batch asks how long claims are kept, and a plan keeps who was to send the rows."""
    done, made = prepare_claims(**opened)
    assert done == ["ensure_table", "expiring", *does]
    assert made.claims == Claims("//claims", by, "//t")
    assert (made.tried is None) is (opened is OPENED)
    done, _ = prepare_claims(is_tried=True, **opened)
    assert done == ["expiring", *(does if opened is PLANNED else [])]


def test_claims_that_the_cluster_removes_too_soon_are_refused(prepare_claims):
    """A second copy of a task would find none, and its rows would come twice."""
    kept = transactional.KEPT.total_seconds()
    with pytest.raises(TableError, match="removes claims after 1 s"):
        prepare_claims(seconds=1, **OPENED)
    assert prepare_claims(seconds=kept, **OPENED)


@pytest.mark.parametrize(
    "error", [AccessError, SchemaMismatchError, TableNotMountedError, RequestRefusedError]
)
def test_claims_that_cannot_be_made_leave_the_rows_to_the_driver(monkeypatch, error):
    """Whatever the cluster has against them; the remedy is that of the error."""

    def refuse(*_, **__):
        raise error("told", remedy="Do this", path="//claims")

    monkeypatch.setattr(transactional, "prepare_claims", refuse)
    mode = transactional.Transactional(SinkOptions("//t", proxy="localhost:1"), None)
    given = SimpleNamespace(batch=SimpleNamespace(run_id="run"))
    with pytest.raises(TasksRefusedError, match="cannot claim their partitions: told") as raised:
        mode._claiming(None, given)
    assert raised.value.remedy == "Do this. Until then the driver sends such batches"


def test_table_of_earlier_batches_is_made_once(monkeypatch):
    """With the first batch, on the thread that writes it."""
    done = []
    monkeypatch.setattr(past_batches, "ensure_table", lambda *_: done.append("made"))
    monkeypatch.setattr(past_batches, "store_rows", lambda *_: done.append("stored"))
    past = past_batches.PastBatches(None, "//history")
    for number in range(2):
        past._write(LedgerEntry("query", "//t", number, "run", "1-2", {}), ["//t"], None)
    assert done == ["made", "stored", "stored"]


def test_history_that_cannot_be_written_says_so_whatever_fails(monkeypatch):
    """Nobody waits for its thread, so nobody else would see the error."""
    told = []
    monkeypatch.setattr(past_batches, "ensure_table", lambda *_: 1 / 0)
    past = past_batches.PastBatches(None, "//history")
    entry = LedgerEntry("query", "//t", 1, "run", "1-2", {})
    past._write(entry, ["//t"], lambda event, **fields: told.append((event, fields["path"])))
    assert told == [(Event.HISTORY_FAILED, "//history")]
