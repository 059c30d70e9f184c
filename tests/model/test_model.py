"""The model itself: what it says about the cluster and the search, before it is believed elsewhere."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.model.cluster import (
    CLUSTER,
    CONSUMER,
    Append,
    ModelCluster,
    ModelTransaction,
    Put,
    Rows,
    Snapshot,
    conflicts,
    consumer_value,
    offset_in,
    put,
)
from tests.model.continuations import NO_FAILURE, Asking, Continuations, Raised, Returned, Script
from tests.model.explore import Explorer
from tests.model.scenario import Faults, Scenario
from tests.model.scenarios import NO_QUEUE, ROW
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.errors import TransactionLostError

SMALL = (
    Scenario(name="one batch", plans=(ROW,), budget=1),
    Scenario(name="one batch, stateful", plans=(ROW,), budget=2, stateful=True),
    Scenario(name="two drivers", plans=(NO_QUEUE,), budget=0, slots=(0, 0)),
)


@pytest.mark.further
@pytest.mark.parametrize("scenario", SMALL, ids=lambda scenario: scenario.name)
def test_merging_equal_states_loses_no_execution(scenario: Scenario) -> None:
    """Walking every execution ends in the same states, and counts as many as the graph has paths."""
    report = Explorer(scenario).explore()
    count, last = Explorer(scenario).walk()
    assert report.violation is None
    assert report.executions == count > 10
    assert report.last == last


def test_two_explorations_are_the_same() -> None:
    """The exploration is deterministic: same states, same steps, same runs of the code."""
    first, second = (Explorer(SMALL[0]).explore() for _ in range(2))
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)


def test_without_faults_one_driver_has_one_execution() -> None:
    """Nothing but faults and other drivers makes a run go another way."""
    report = Explorer(Scenario(name="calm", plans=(ROW,) * 3, budget=0)).explore()
    assert (report.executions, report.violation, report.failures) == (1, None, {})


@pytest.mark.parametrize("fault", ["crash", "requests", "refusals", "unknown"])
def test_each_fault_adds_executions(fault: str) -> None:
    """No kind of fault is without effect."""
    off = dict.fromkeys(("crash", "requests", "refusals", "unknown"), False)
    only = Scenario(name=fault, plans=(ROW,), budget=1, faults=Faults(**{**off, fault: True}))
    assert Explorer(only).explore().executions > 1


def test_a_commit_conflicts_when_a_row_it_writes_has_changed() -> None:
    """The first committer wins, row by row."""
    rows = ((0, ""), (0, ""))
    changed = put(rows, [Put(0, "value")])
    assert changed == ((1, "value"), (0, ""))
    assert conflicts(changed, ((0, 0),))
    assert not conflicts(changed, ((1, 0),))


def test_appends_never_conflict() -> None:
    """Ordered targets lock nothing."""
    rows = ((3, "value"),)
    assert put(rows, [Append("//out", (b"row",))]) == rows


def opened(rows: Rows, failing: int = NO_FAILURE) -> ModelTransaction:
    index = {(CONSUMER, (CLUSTER, "//queue", 0)): 0}
    cluster = ModelCluster(Script([Snapshot("1", rows, failing)]), index)
    return cluster.begin(timedelta(seconds=60))


def test_a_transaction_reads_its_snapshot_and_not_its_own_writes() -> None:
    """Writes show at the commit, to the transaction itself too."""
    transaction = opened(((1, consumer_value(5)),))
    key = {"queue_cluster": CLUSTER, "queue_path": "//queue", "partition_index": 0}
    transaction.insert(CONSUMER, [{**key, "offset": 7}])
    assert transaction.lookup(CONSUMER, [key]) == [{"offset": 5}]


def test_a_consumer_without_a_row_is_at_zero() -> None:
    """As the server has it."""
    assert offset_in(((0, ""),), 0) == 0


def test_a_call_inside_a_transaction_fails_where_it_was_told_to() -> None:
    """Every call of a transaction can be the one that fails."""
    transaction = opened(((0, ""),), failing=3)  # the second call, in the second way
    transaction.write("//out", [Payload(1, b"row")], "yson")
    with pytest.raises(TransactionLostError):
        transaction.write("//out", [Payload(1, b"row")], "yson")


def asking_twice(_key: Any, script: Script) -> None:
    if script.ask("first") + script.ask("second") > 2:
        raise ValueError


def test_a_program_is_resumed_where_it_asked() -> None:
    """A continuation is the history of the answers, and nothing else."""
    programs = Continuations(asking_twice)
    start = programs.start("key")
    middle = programs.resume(start, 1)
    assert programs.outcome(start) == Asking("first", local_calls=0)
    assert programs.outcome(middle) == Asking("second", local_calls=0)
    assert programs.outcome(programs.resume(middle, 1)) == Returned(local_calls=0)
    assert isinstance(programs.outcome(programs.resume(middle, 2)), Raised)
    assert programs.resume(start, 1) == middle


def test_a_program_that_is_not_deterministic_is_noticed() -> None:
    """A history says nothing about code that does something else the next time."""
    requests = iter(range(10))

    def fickle(_key: Any, script: Script) -> None:
        script.ask(next(requests))

    programs = Continuations(fickle)
    start = programs.start("key")
    with pytest.raises(AssertionError):
        programs.resume(start, "answer")
