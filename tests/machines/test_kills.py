"""A long campaign and a duel, for the night: they take minutes, and a dozen JVMs."""

import pytest

from tests.machines.campaign import SHORT, USUAL, duel, run
from tests.machines.stage import BY_TASKS, FLOWS

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nightly]


@pytest.mark.timeout(3_600)
def test_whatever_is_killed_every_row_counts_once(tmp_path):
    """In targets and in state, in all modes, with speculation and dynamic allocation; no log is torn."""
    result = run(tmp_path, USUAL, seed=7)
    assert not result.violations, result
    assert result.done == USUAL
    # Otherwise the blows have hit nothing.
    assert result.history.tasks_lost, result
    assert result.senders["one-transaction by tasks"], result
    assert result.history.stages_run_again >= 2, result
    assert result.history.speculative_tasks, result
    assert result.history.executors_released, result


@pytest.mark.timeout(3_600)
def test_rows_that_tasks_send_count_once_whatever_is_killed(tmp_path):
    """Of plans with a shuffle or a state, by both doors. Most batches of each query leave from tasks."""
    result = run(tmp_path, SHORT, seed=7, flows=BY_TASKS)
    assert not result.violations, result
    assert result.done == SHORT
    assert result.history.tasks_lost, result
    for flow in BY_TASKS:
        assert result.senders[f"{flow} by tasks"] > result.senders[f"{flow} by driver"], result


@pytest.mark.timeout(1_800)
def test_one_of_two_drivers_on_a_checkpoint_wins(tmp_path):
    """Of each query one fails, with an error that says so; the other one continues, exact."""
    lost, violations = duel(tmp_path)
    assert not violations
    assert sorted(lost) == sorted(FLOWS)
