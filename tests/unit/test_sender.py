"""Who sends the rows of a batch, as `docs/explanation/exactly-once.md` lists it."""

import weakref
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import BatchTooLargeError, ConfigError
from yt_exactly_once.observability import Clock
from yt_exactly_once.spark.sink import look_up
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError
from yt_exactly_once.spark.sink.modes.mode import Plan
from yt_exactly_once.spark.sink.options import BY_PARTITION, PRESERVE, Target
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.run import QueryRun
from yt_exactly_once.spark.sink.sender import (
    LARGE,
    driver_stands_in,
    ends_tell,
    tasks_join,
    tasks_may_send,
)
from yt_exactly_once.spark.sink.targets import PreparedTarget
from yt_exactly_once.spark.sink.transactional_sink import TransactionalSink

MODES = {
    "one": DeliveryMode.TRANSACTIONAL,
    "again": DeliveryMode.AT_LEAST_ONCE,
    "once": DeliveryMode.IDEMPOTENT,
}


def sender(mode, sent_by="auto", *, stateful=False, option="", speculation=None, **known):
    """Return who sends the rows: `joined` are tasks in the driver's transaction."""
    is_sorted, are_computed = known.pop("is_sorted", False), known.pop("are_computed", False)
    run = QueryRun("run", targets=(SimpleNamespace(is_sorted=is_sorted),), **known)
    traits, options = MODES[mode], SimpleNamespace(sent_by=sent_by)
    delivery = SimpleNamespace(
        run=run,
        batch=SimpleNamespace(stateful=stateful, query_id="query"),
        rows=SimpleNamespace(
            conf={"spark.speculation": speculation}.get, are_computed=are_computed
        ),
        mode=SimpleNamespace(traits=traits, options=options, obstacle=option),
    )
    if tasks_join(delivery):
        return "joined"
    if traits.through_driver or driver_stands_in(delivery):
        return "driver, for good" if not tasks_may_send(delivery) else "driver"
    return "tasks"


@pytest.mark.parametrize(("known", "expected"), [
    ({}, "driver"),
    ({"bytes": LARGE - 1}, "driver"),
    ({"bytes": LARGE}, "joined"),
    ({"too_large": True}, "joined"),
    ({"bytes": LARGE, "option": "unique_keys"}, "driver, for good"),
    ({"bytes": LARGE, "refusal": "a shuffle"}, "driver, for good"),
    ({"bytes": LARGE, "speculation": "true"}, "driver, for good"),
    ({"bytes": LARGE, "stateful": True}, "driver, for good"),
    ({"bytes": LARGE, "is_sorted": True, "computing": 60.0}, "joined"),
    ({"bytes": LARGE, "is_sorted": True, "computing": 60.1}, "driver"),
    ({"bytes": LARGE, "computing": 60.1}, "joined"),
    ({"bytes": LARGE, "sent_by": "driver"}, "driver, for good"),
    ({"sent_by": "tasks"}, "joined"),
])  # fmt: skip
def test_in_one_transaction_tasks_join_with_large_batches(known, expected):
    """Where nothing is in the way; a refusal to come together at the driver is remembered."""
    assert sender("one", **known) == expected


def test_tasks_that_must_join_are_refused_rows_of_a_query_with_state():
    """They could be computed only once."""
    with pytest.raises(ConfigError, match="keeps state"):
        sender("one", "tasks", stateful=True)


@pytest.mark.parametrize("mode", ["again", "once"])
@pytest.mark.parametrize(("known", "expected"), [
    ({}, "tasks"),
    ({"bytes": 1}, "driver"),
    ({"bytes": LARGE - 1, "speculation": "true"}, "driver"),
    ({"bytes": LARGE}, "tasks"),
    ({"bytes": 1, "too_large": True}, "tasks"),
    ({"bytes": 1, "stateful": True}, "tasks"),
    ({"bytes": 1, "sessions": {"//t": {"partition-0": None}}}, "tasks"),
    ({"bytes": 1, "sent_by": "tasks"}, "tasks"),
    ({"sent_by": "driver"}, "driver, for good"),
    ({"sent_by": "driver", "stateful": True}, "driver, for good"),
    ({"sent_by": "driver", "sessions": {"//t": {"partition-0": None}}}, "tasks"),
    ({"bytes": 1, "are_computed": True}, "tasks"),
    ({"sent_by": "driver", "are_computed": True}, "tasks"),
])  # fmt: skip
def test_with_a_transaction_per_request_the_driver_stands_in_for_small_batches(
    mode, known, expected
):
    """Those of a known size, whose rows can come another way again and are not written yet."""
    assert sender(mode, **known) == expected


@pytest.mark.parametrize(("known", "expected"), [
    ({"bytes": 1}, True),
    ({}, False),
    ({"bytes": LARGE}, False),
    ({"bytes": 1, "is_uneven": True}, False),
    ({"bytes": 1, "stateful": True}, False),
    ({"bytes": 1, "are_computed": True}, False),
])  # fmt: skip
def test_ends_tell_partitions_apart_where_rows_can_be_computed_again(known, expected):
    """In a batch that is known to be small, unless that has made tablets uneven."""
    more = {name: known.pop(name, False) for name in ("stateful", "are_computed")}
    delivery = SimpleNamespace(
        run=QueryRun("run", **known),
        batch=SimpleNamespace(stateful=more["stateful"]),
        rows=SimpleNamespace(are_computed=more["are_computed"]),
    )
    assert ends_tell(delivery) is expected


@pytest.mark.parametrize(("tablets", "rule", "times"), [
    (2, BY_PARTITION, 2), (1, BY_PARTITION, 1), (None, BY_PARTITION, 1), (2, PRESERVE, 1),
])  # fmt: skip
def test_batch_that_is_too_large_is_computed_again_only_where_that_can_help(tablets, rule, times):
    """Where Spark partitions choose among tablets; elsewhere it would be too large again."""
    target = PreparedTarget(
        options=Target("//t"), is_sorted=tablets is None, tablet_count=tablets or 2, plan=None,
        wire=None, placement=Placement(tablets, rule), rows_per_tablet=1, table_id="id",
    )  # fmt: skip
    computed, held = [], []

    def compute(plan):
        assert not any(rows() for rows in held), "the memory of the first time is free"
        computed.append(plan.ends_tell)
        return {object()}

    def refuse(_plan, rows):
        held.append(weakref.ref(rows))
        raise BatchTooLargeError("too large", remedy="none")

    sink = SimpleNamespace(_mode=SimpleNamespace(finish=refuse))
    sink._finish = partial(TransactionalSink._finish, sink)
    delivery = SimpleNamespace(run=QueryRun("run"), tell_again=lambda _error: None)
    plan = Plan(SimpleNamespace(target=target), (), ends_tell=True)
    with pytest.raises(BatchTooLargeError):
        sink._finish(delivery, SimpleNamespace(compute=compute), plan)
    assert computed == [True, False][:times]


def test_batch_whose_partitions_are_unknown_is_computed_again_and_later_ones_are_not():
    """The run remembers it."""

    def compute(plan):
        if plan.ends_tell:
            raise PartitionsUnknownError
        return [7]

    target = SimpleNamespace(spreads_partitions=False)
    sink = SimpleNamespace(_mode=SimpleNamespace(finish=lambda _plan, rows: rows))
    sink._finish = partial(TransactionalSink._finish, sink)
    delivery = SimpleNamespace(run=QueryRun("run"))
    plan = Plan(SimpleNamespace(target=target), (), ends_tell=True)
    assert sink._finish(delivery, SimpleNamespace(compute=compute), plan) == [7]
    assert delivery.run.is_uneven


@pytest.mark.parametrize(("known", "order"), [
    ({"bytes": 1, "agreed": 6}, ["compute", "ask"]),
    ({"bytes": 1}, ["ask", "compute"]),
    ({"bytes": 1, "agreed": 7}, ["ask", "compute"]),
    ({"bytes": LARGE, "agreed": 6}, ["ask", "compute"]),
    ({"bytes": 1, "agreed": 6, "is_replay": True}, ["compute", "ask", "ask", "skip"]),
    ({"bytes": 1, "is_replay": True}, ["ask", "skip"]),
])  # fmt: skip
def test_ledger_is_asked_before_anything_is_written(monkeypatch, known, order):
    """While Spark computes, where all rows come to the driver, and this run has written the batch before."""
    done = []
    is_replay = known.pop("is_replay", False)

    def ask(*_):
        done.append("ask")
        return look_up.Found(is_replay=is_replay)

    def compute(_delivery, ready):
        done.append("compute")
        ready()
        assert not is_replay
        return []

    monkeypatch.setattr(look_up, "find", ask)
    monkeypatch.setattr(look_up, "look_up", ask)
    mode = SimpleNamespace(
        traits=MODES["once"], options=SimpleNamespace(sent_by="auto"), obstacle=""
    )
    delivery = SimpleNamespace(
        run=QueryRun("run", **known),
        batch=SimpleNamespace(stateful=False, batch_id=7, where={}),
        rows=SimpleNamespace(are_computed=False),
        mode=mode,
        clock=Clock(),
    )
    sink = SimpleNamespace(
        _mode=mode,
        options=mode.options,
        _ahead=lambda _delivery: nullcontext(),
        _compute=compute,
        _skip=lambda *_: done.append("skip"),
        _write=lambda *_: None,
    )
    sink._deliver_by_driver = partial(TransactionalSink._deliver_by_driver, sink)
    TransactionalSink._deliver(sink, delivery)
    assert done == order
