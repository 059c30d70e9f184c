"""What holds of a checkpoint on YTsaurus when processes die, and when two drivers have it."""

import pytest

from tests.checkpoints.campaign import run
from tests.checkpoints.duel import fight


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_state_and_output_agree_whatever_is_killed(tmp_path):
    """Both state stores, killed drivers, gateways and proxies: every row counts once, no log is torn."""
    result = run(tmp_path, kills=100, seed=100)
    assert not result.violations, result
    assert sum(result.kills.values()) == 100


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_one_of_two_drivers_wins(tmp_path):
    """Of each query one fails, with an error that says so; the other one goes on, exact."""
    result = fight(tmp_path)
    assert not result.violations, result
    lost = sorted(failed["query"] for failed in result.first + result.second)
    assert lost == ["aggregation", "dedup"], result
