"""The real protocol, explored: no interleaving of crash, loss, delay and a second driver breaks it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.model import network
from tests.model.explore import Explorer
from tests.model.invariants import Kind, ViolationError
from tests.model.scenario import Scenario
from tests.model.scenarios import (
    BY_TASKS,
    INTO_ONE,
    LATE_UPSERT,
    LONG,
    LONGEST,
    SCENARIOS,
    SHARED_CONSUMER,
    TRIMMED_UNDER_A_REPLAY,
    bounded,
    is_deep,
    named,
)
from tests.model.world import World


def in_tiers(scenarios: Iterable[Scenario]) -> list[Any]:
    """Return the cases of a test, of which the long ones wait."""
    waiting = dict.fromkeys(LONG, pytest.mark.further) | dict.fromkeys(LONGEST, pytest.mark.nightly)
    return [
        pytest.param(each, id=each.name, marks=[waiting[each.name]] if each.name in waiting else [])
        for each in scenarios
    ]


@pytest.mark.parametrize("scenario", in_tiers((*SCENARIOS, *INTO_ONE)))
def test_no_execution_breaks_an_invariant(scenario: Scenario) -> None:
    """Every row has its effect exactly once, whatever happens in whatever order, up to the bound."""
    report = Explorer(bounded(scenario, deep=is_deep())).explore()
    assert report.violation is None, str(report)
    assert report.executions > 50, "The scenario has become too small to prove anything"


@pytest.mark.parametrize("scenario", in_tiers(BY_TASKS))
def test_no_execution_with_writing_tasks_breaks_the_promise_of_its_mode(scenario: Scenario) -> None:
    """Tasks that die, are repeated, run twice and outlive their driver leave the promise whole."""
    report = Explorer(bounded(scenario, deep=is_deep())).explore()
    assert report.violation is None, str(report)


def test_at_least_once_writes_a_row_twice_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise is not weaker than it must be, nor stronger than it is."""

    def strict(_scenario: Scenario, world: World, query: int, place: int, row: int) -> None:
        if (query, row) in world.written[place]:
            raise ViolationError(Kind.TWICE, f"row {row}")

    monkeypatch.setattr(network, "check_written", strict)
    calm = replace(named("at-least-once"), budget=0)
    assert Explorer(calm).explore().violation is None
    assert "a row has its effect twice" in str(Explorer(named("at-least-once")).explore().violation)


@pytest.mark.further
def test_the_newest_run_survives_a_late_commit_that_lets_its_rows_be_trimmed() -> None:
    """A commit that lands late costs the next run of the query a look-up, not its life."""
    report = Explorer(TRIMMED_UNDER_A_REPLAY).explore()
    assert report.violation is None, str(report)


def test_two_stateful_checkpoints_in_lockstep_on_one_consumer_are_the_known_limit() -> None:
    """They do not notice each other, as docs/explanation/limits.md says; this finds out if they do."""
    report = Explorer(SHARED_CONSUMER).explore()
    assert "a row has its effect twice" in str(report.violation)


def test_a_late_upsert_over_a_newer_row_is_the_known_limit() -> None:
    """Keys are no fence: docs/explanation/limits.md says so; this finds out when it changes."""
    report = Explorer(LATE_UPSERT).explore()
    assert "comes over" in str(report.violation)
