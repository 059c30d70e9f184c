"""The real protocol, explored: no interleaving of crash, loss, delay and a second driver breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.model.explore import Explorer
from tests.model.scenarios import (
    SCENARIOS,
    SHARED_CONSUMER,
    TRIMMED_UNDER_A_REPLAY,
    bounded,
    is_deep,
)

if TYPE_CHECKING:
    from tests.model.scenario import Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_execution_breaks_an_invariant(scenario: Scenario) -> None:
    """Every row has its effect exactly once, whatever happens in whatever order, up to the bound."""
    report = Explorer(bounded(scenario, deep=is_deep())).explore()
    assert report.violation is None, str(report)
    assert report.executions > 1000, "The scenario has become too small to prove anything"


def test_the_newest_run_survives_a_late_commit_that_lets_its_rows_be_trimmed() -> None:
    """A commit that lands late costs the next run of the query a look-up, not its life."""
    report = Explorer(TRIMMED_UNDER_A_REPLAY).explore()
    assert report.violation is None, str(report)


def test_two_stateful_checkpoints_in_step_on_one_consumer_are_the_known_limit() -> None:
    """They do not notice each other, as docs/explanation/limits.md says; this finds out if they do."""
    report = Explorer(SHARED_CONSUMER).explore()
    assert "a row has its effect twice" in str(report.violation)
