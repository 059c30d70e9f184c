"""Transactional mode: which rows of a batch may have one key, and when its transaction is opened."""

from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest

from yt_exactly_once import Event, Target, TransactionalSink, config
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.errors import (
    ConfigError,
    ConflictError,
    DuplicateKeyError,
    RequestRefusedError,
)
from yt_exactly_once.spark.sink import past_batches, targets
from yt_exactly_once.spark.sink.modes.transactional import _distinct_keys
from yt_exactly_once.spark.sink.run import Delivery, QueryRun
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
        (Target("//t", write="replace"), {}, "write='replace'"),
        (Target("//t", delete_marker="gone"), {}, "delete_marker"),
        (Target("//t", unique_keys=True), {}, "unique_keys"),
        (["//t", "//u"], {}, "several targets"),
        ("//t", {"split_oversized": True}, "split_oversized"),
        ("//t", {"dead_letter_path": "//d"}, "dead_letter_path"),
        ("//t", {"backend": "rpc"}, "the backend rpc"),
    ],
)
def test_tasks_send_no_rows_that_must_come_together(monkeypatch, target, options, named):
    """The driver sends them, and a query that wants otherwise is refused."""
    monkeypatch.setattr(backends, "find_spec", bool)  # not every platform has the RPC driver
    assert TransactionalSink(target, proxy="localhost:1", **options)._mode.obstacle == named
    with pytest.raises(ConfigError, match=f"^sent_by='tasks' and {named} exclude each other"):
        TransactionalSink(target, proxy="localhost:1", sent_by="tasks", **options)


@pytest.mark.parametrize(
    ("mode", "seconds", "opens"),
    [
        ("transactional", None, False),  # the first batch of a run may be a replay
        ("transactional", 0.9, True),
        ("transactional", 1.1, False),
        ("at-least-once", 0.9, True),
    ],
)
def test_transaction_is_opened_ahead_when_computing_is_known_to_be_short(
    monkeypatch, mode, seconds, opens
):
    """It may take a quarter of the lease."""
    monkeypatch.setattr(config, "LEASE", timedelta(seconds=4))
    sink = TransactionalSink("//t", proxy="localhost:1", mode=mode)
    committer = SimpleNamespace(ahead=lambda: nullcontext("opened"))
    delivery = SimpleNamespace(run=QueryRun("run", computing=seconds), committer=committer)
    with sink._ahead(delivery) as opened:
        assert opened == ("opened" if opens else None)


@pytest.mark.parametrize("error", [ConfigError("a shuffle"), ConflictError("a task failed")])
def test_rows_that_tasks_could_not_send_go_through_the_driver(monkeypatch, error):
    """In the next batches too, if the reason lies in the query. The retry is an event."""
    sink = TransactionalSink("//t", proxy="localhost:1")
    told = []

    def fail(*_):
        raise error

    monkeypatch.setattr(sink, "_compute", fail)
    transaction = SimpleNamespace(id="1-2", proxy="proxy", kept_alive=nullcontext)
    opened = SimpleNamespace(transaction=lambda: transaction, read=lambda: None)
    run = QueryRun("run")
    committer = SimpleNamespace(ahead=lambda: nullcontext(opened))
    delivery = SimpleNamespace(
        run=run,
        committer=committer,
        emit=lambda event, **fields: told.append((event, fields["reason"])),
    )
    delivery.tell_again = partial(Delivery.tell_again, delivery)
    assert not sink._deliver_by_tasks(delivery)
    assert told == [(Event.RETRY_SCHEDULED, type(error).__name__)]
    assert bool(run.refusal) == isinstance(error, ConfigError)


def test_table_of_earlier_batches_is_made_once(monkeypatch):
    """With the first batch, on the thread that writes it."""
    done = []
    monkeypatch.setattr(past_batches, "ensure_table", lambda *_: done.append("made"))
    monkeypatch.setattr(past_batches, "store_rows", lambda *_: done.append("stored"))
    past = past_batches.PastBatches(None, "//history")
    for number in range(2):
        past._write(LedgerEntry("query", "//t", number, "run", "1-2", {}), ["//t"], None)
    assert done == ["made", "stored", "stored"]


@pytest.mark.parametrize("is_same", [True, False])
def test_commit_that_is_refused_names_a_target_that_has_changed(monkeypatch, is_same):
    """Fewer tablets than the rows were placed in: the remedy is to look at the target again."""
    sink = TransactionalSink("//t", proxy="localhost:1")
    monkeypatch.setattr(targets, "are_the_same", lambda *_: is_same)

    def refuse(*_):
        raise RequestRefusedError("Invalid tablet index")

    batch = SimpleNamespace(moves=True)
    call = SimpleNamespace(is_repeated=False, records=False)
    committer = SimpleNamespace(commit=refuse)
    delivery = SimpleNamespace(
        batch=batch, call=call, emit=None, run=QueryRun("run"), committer=committer
    )
    with pytest.raises(RequestRefusedError) as caught:
        sink._write(delivery, [])
    assert ("has changed its columns or tablets" in caught.value.what) is not is_same
    assert ("Start the query again" in (caught.value.remedy or "")) is not is_same
