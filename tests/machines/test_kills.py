"""A long campaign, for the night: it takes minutes, and seven JVMs."""

import pytest

from tests.machines.campaign import EXECUTOR, FILES, WORKER, run

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nightly]


@pytest.mark.timeout(1_800)
def test_killed_machines_and_lost_files_lose_and_repeat_no_row(tmp_path):
    """In all modes, with speculation and dynamic allocation."""
    result = run(tmp_path, executors=10, workers=2, losses=2, seed=7)
    assert not result.violations, result
    assert result.done == {EXECUTOR: 10, WORKER: 2, FILES: 2}
    # Otherwise the blows have hit nothing.
    assert result.history.tasks_lost, result
    assert result.history.stages_run_again >= 2, result
    assert result.history.speculative_tasks, result
    assert result.history.executors_released, result
