"""Transactional mode: which rows of a batch may have one key, and when its transaction is opened."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from yt_exactly_once import Event, Target, TransactionalSink
from yt_exactly_once.codec.key_hashes import KEY_HASHES
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.errors import (
    AccessError,
    AmbiguousOrderError,
    ConfigError,
    DuplicateKeyError,
    RequestRefusedError,
    SchemaMismatchError,
    TableNotMountedError,
    TasksRefusedError,
)
from yt_exactly_once.spark.engine import past_batches
from yt_exactly_once.spark.modes import transactional
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
