"""The model itself: what it says about the cluster and the search, before it is believed elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from tests.model.continuations import Continuations, Script
from tests.model.explore import Explorer
from tests.model.scenario import Faults, Scenario
from tests.model.scenarios import NO_QUEUE, ROW

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


@pytest.mark.parametrize("fault", ["crash", "requests", "refusals", "unknown", "errors"])
def test_each_fault_adds_executions(fault: str) -> None:
    """No kind of fault is without effect."""
    off = dict.fromkeys(("crash", "requests", "refusals", "unknown"), False)
    only = Scenario(name=fault, plans=(ROW,), budget=1, faults=Faults(**{**off, fault: True}))
    assert Explorer(only).explore().executions > 1


def test_a_program_that_is_not_deterministic_is_noticed() -> None:
    """A history says nothing about code that does something else the next time."""
    requests = iter(range(10))

    def fickle(_key: Any, script: Script) -> None:
        script.ask(next(requests))

    programs = Continuations(fickle)
    start = programs.start("key")
    with pytest.raises(AssertionError):
        programs.resume(start, "answer")
