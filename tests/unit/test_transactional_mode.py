"""Transactional mode: which rows of a batch may have one key, and when its transaction is opened."""

import pyarrow as pa
import pytest

from yt_exactly_once import Event, Target, TransactionalSink
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.errors import ConfigError, DuplicateKeyError
from yt_exactly_once.spark.engine import past_batches
from yt_exactly_once.spark.modes.transactional import _distinct_keys
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
