"""Which route a batch takes, as `docs/explanation/exactly-once.md` lists it, and which one is left then."""

from dataclasses import replace
from itertools import product

import pytest

from yt_exactly_once.config import LEASE
from yt_exactly_once.delivery.route import (
    AUTO,
    LARGE,
    ONE_TRANSACTION,
    SEVERAL_TRANSACTIONS,
    Facts,
    Failure,
    LookUp,
    Way,
    choose_route,
)

LONG = LEASE.total_seconds() + 0.1


@pytest.mark.parametrize(("known", "expected"), [
    ({}, Way.COLLECT),
    ({"bytes_before": LARGE - 1}, Way.COLLECT),
    ({"bytes_before": LARGE}, Way.JOIN),
    ({"too_large": True}, Way.JOIN),
    ({"bytes_before": LARGE, "arrived": Way.COLLECT}, Way.COLLECT),
    ({"bytes_before": 1, "arrived": Way.JOIN}, Way.JOIN),
    ({"bytes_before": LARGE, "obstacle": "unique_keys"}, Way.COLLECT),
    ({"bytes_before": LARGE, "refusal": "a shuffle"}, Way.COLLECT),
    ({"bytes_before": LARGE, "keeps_state": True}, Way.JOIN),
    ({"bytes_before": LARGE, "several_targets": True}, Way.JOIN),
    ({"bytes_before": LARGE, "is_sorted": True, "seconds_before": LONG - 0.1}, Way.JOIN),
    ({"bytes_before": LARGE, "is_sorted": True, "seconds_before": LONG}, Way.COLLECT),
    ({"bytes_before": LARGE, "seconds_before": LONG}, Way.JOIN),
    ({"bytes_before": LARGE, "outlived": True}, Way.COLLECT),
    ({"bytes_before": LARGE, "sent_by": "driver"}, Way.COLLECT),
    ({"sent_by": "tasks"}, Way.JOIN),
])  # fmt: skip
def test_in_one_transaction_tasks_join_with_large_batches(known, expected):
    """Where nothing is in the way."""
    assert choose_route(Facts(one_transaction=True, **known)).way is expected


@pytest.mark.parametrize(("known", "expected"), [
    ({}, Way.TASKS),
    ({"bytes_before": 1}, Way.FOR_TASKS),
    ({"bytes_before": LARGE - 1}, Way.FOR_TASKS),
    ({"bytes_before": LARGE}, Way.TASKS),
    ({"bytes_before": 1, "too_large": True}, Way.TASKS),
    ({"bytes_before": 1, "keeps_state": True}, Way.TASKS),
    ({"bytes_before": 1, "has_sessions": True}, Way.TASKS),
    ({"bytes_before": 1, "sent_by": "tasks"}, Way.TASKS),
    ({"sent_by": "driver"}, Way.FOR_TASKS),
    ({"sent_by": "driver", "keeps_state": True}, Way.FOR_TASKS),
    ({"sent_by": "driver", "has_sessions": True}, Way.TASKS),
    ({"bytes_before": 1, "arrived": Way.TASKS}, Way.TASKS),
])  # fmt: skip
def test_with_several_transactions_the_driver_sends_small_batches_for_the_tasks(known, expected):
    """Those of a known size, whose rows can come another way again and are not written yet."""
    assert choose_route(Facts(one_transaction=False, **known)).way is expected


@pytest.mark.parametrize(("known", "expected"), [
    ({"one_transaction": True}, LookUp.FIRST),
    ({"one_transaction": True, "follows": True}, LookUp.INSIDE),
    ({"one_transaction": False, "bytes_before": 1}, LookUp.FIRST),
    ({"one_transaction": False, "bytes_before": 1, "follows": True}, LookUp.BESIDE),
    ({"one_transaction": False, "bytes_before": LARGE, "follows": True}, LookUp.FIRST),
])  # fmt: skip
def test_ledger_is_asked_before_anything_is_visible(known, expected):
    """Beside the rows only where all of them come to the driver first, and the run has written before."""
    assert choose_route(Facts(**known)).look_up is expected


@pytest.mark.parametrize(("known", "opens"), [
    ({}, False),  # the first batch of a run may be a replay
    ({"seconds_before": LEASE.total_seconds() / 4}, True),
    ({"seconds_before": LEASE.total_seconds() / 4 + 0.1}, False),
    ({"seconds_before": 0.1, "arrived": Way.COLLECT}, False),
    ({"arrived": Way.JOIN}, True),
    ({"seconds_before": 0.1, "outlived": True}, False),
    ({"sent_by": "tasks"}, True),
])  # fmt: skip
def test_transaction_is_opened_ahead_when_computing_is_known_to_be_short(known, opens):
    """It may take a quarter of the lease. Tasks always write into an open one."""
    assert choose_route(Facts(one_transaction=True, **known)).opens_ahead is opens


@pytest.mark.parametrize(("known", "expected"), [
    ({"bytes_before": 1}, True),
    ({}, False),
    ({"bytes_before": LARGE}, False),
    ({"bytes_before": 1, "uneven": True}, False),
    ({"bytes_before": 1, "keeps_state": True}, False),
    ({"bytes_before": 1, "arrived": Way.COLLECT}, False),
])  # fmt: skip
def test_ends_tell_partitions_apart_where_rows_can_be_computed_again(known, expected):
    """In a batch that is known to be small, unless that has made tablets uneven."""
    assert choose_route(Facts(one_transaction=True, **known)).by_ends is expected


def left(failure, **known):
    """Return the way that is left when the chosen one has failed."""
    facts = Facts(**known)
    then = facts.after(choose_route(facts), failure, "why")
    return None if then is None else choose_route(then).way


@pytest.mark.parametrize(("failure", "known", "expected"), [
    (Failure.TOO_LARGE, {}, Way.JOIN),
    (Failure.TOO_LARGE, {"is_sorted": True, "seconds_before": LONG}, Way.JOIN),
    (Failure.TOO_LARGE, {"outlived": True}, Way.JOIN),
    (Failure.TOO_OLD, {"sent_by": "tasks"}, Way.COLLECT),
    (Failure.TOO_OLD, {}, None),
    (Failure.TOO_LARGE, {"sent_by": "driver"}, None),
    (Failure.TOO_LARGE, {"keeps_state": True}, None),
    (Failure.FAILED, {"keeps_state": True, "bytes_before": LARGE}, Way.COLLECT),
    (Failure.TOO_LARGE, {"several_targets": True}, Way.JOIN),
    (Failure.TOO_LARGE, {"obstacle": "unique_keys"}, None),
    (Failure.TOO_LARGE, {"tried": frozenset({Way.JOIN}), "sent_by": "tasks"}, None),
    (Failure.TOO_LARGE, {"one_transaction": False, "bytes_before": 1}, Way.TASKS),
    (Failure.TOO_LARGE, {"one_transaction": False, "sent_by": "driver"}, None),
    (Failure.FAILED, {"bytes_before": LARGE}, Way.COLLECT),
    (Failure.FAILED, {"sent_by": "tasks"}, Way.COLLECT),
    (Failure.FAILED, {}, None),
    (Failure.FAILED, {"arrived": Way.JOIN}, None),
    (Failure.TOO_OLD, {"arrived": Way.JOIN}, None),
    (Failure.FAILED, {"one_transaction": False}, None),
    (Failure.REFUSED, {"bytes_before": LARGE}, Way.COLLECT),
    (Failure.REFUSED, {"sent_by": "tasks"}, None),
    (Failure.PARTITIONS_UNKNOWN, {"bytes_before": 1}, Way.COLLECT),
    (Failure.PARTITIONS_UNKNOWN, {}, None),
])  # fmt: skip
def test_failed_route_leaves_the_other_one_where_it_can_help(failure, known, expected):
    """Rows that do not fit the driver go by tasks, rows that tasks could not send by the driver."""
    assert left(failure, **{"one_transaction": True, **known}) is expected


def test_refusal_is_remembered_and_a_failure_is_not():
    """A shuffle is there in the next batch too; a task that has failed says nothing about it."""
    facts = Facts(one_transaction=True, bytes_before=LARGE)
    route = choose_route(facts)
    assert facts.after(route, Failure.REFUSED, "a shuffle").refusal == "a shuffle"
    assert facts.after(route, Failure.FAILED, "a task").refusal is None
    assert facts.after(route, Failure.TOO_OLD).outlived
    assert "a shuffle" in choose_route(replace(facts, refusal="a shuffle")).reason


@pytest.mark.parametrize(("known", "expected"), [
    ({}, (False, True)),
    ({"bytes_before": LARGE}, (False, True)),
    ({"several_targets": True}, (True, True)),
    ({"keeps_state": True}, (False, False)),
    ({"keeps_state": True, "several_targets": True}, (True, True)),
    ({"keeps_state": True, "bytes_before": LARGE}, (True, True)),
    ({"keeps_state": True, "tried": frozenset({Way.JOIN})}, (True, True)),
    ({"one_transaction": False, "keeps_state": True}, (False, False)),
])  # fmt: skip
def test_rows_of_a_state_are_kept_before_tasks_send_them(known, expected):
    """So that they can come another way. Rows that only the driver has had cannot."""
    route = choose_route(Facts(**{"one_transaction": True, **known}))
    assert (route.keeps_rows, route.is_repeatable) == expected


def every_combination():
    flags = (
        "one_transaction", "keeps_state", "follows", "is_sorted", "several_targets",
        "has_sessions", "too_large", "uneven", "outlived",
    )  # fmt: skip
    for values in product([False, True], repeat=len(flags)):
        known = dict(zip(flags, values, strict=True))
        ways = [Way.COLLECT, Way.JOIN] if known["one_transaction"] else [Way.TASKS]
        for sent_by, size, seconds, obstacle, refusal, arrived in product(
            [AUTO, "driver", "tasks"], [0, 1, LARGE], [None, 0.1, LONG], [None, "x"], [None, "y"],
            [None, *ways],
        ):  # fmt: skip
            yield Facts(
                **known, sent_by=sent_by, bytes_before=size, seconds_before=seconds,
                obstacle=obstacle, refusal=refusal, arrived=arrived,
            )  # fmt: skip


def test_every_combination_of_facts_has_a_safe_route():
    """Rows that can be computed once go one way, rows that are here stay, and each rule counts."""
    met = set()
    for facts in every_combination():
        route = choose_route(facts)
        rules = ONE_TRANSACTION if facts.one_transaction else SEVERAL_TRANSACTIONS
        met.add(next(rule for rule in rules if rule.fits(facts)).batch)
        assert (route.way in {Way.COLLECT, Way.JOIN}) is facts.one_transaction
        if facts.arrived is not None:
            assert route.way is facts.arrived
        if facts.keeps_state and route.way is Way.JOIN:
            assert route.keeps_rows
        if route.look_up is LookUp.INSIDE:
            assert facts.one_transaction
        if route.by_ends:
            assert not facts.keeps_state
            assert facts.arrived is None
    assert met == {rule.batch for rule in (*ONE_TRANSACTION, *SEVERAL_TRANSACTIONS)}


def test_failures_end():
    """A batch never takes one route twice, whatever fails."""
    for facts in every_combination():
        pending, steps = [facts], 0
        while pending:
            known = pending.pop()
            route = choose_route(known)
            steps += 1
            assert steps < 40
            for failure in Failure:
                then = known.after(route, failure, "why")
                if then is not None:
                    assert choose_route(then) != route
                    pending.append(then)
