"""Scenarios of the comparison with SPYT that no other test has, on our side.

The others name the test that shows the same (`benchmarks/spyt/holes.py`).
"""

import pytest

from benchmarks.spyt import environments
from benchmarks.spyt.holes import SCENARIOS
from benchmarks.spyt.trials import CONTENDERS, Stage

# Unit tests have the order of pulls; tests/integration has two queues, of which one is idle.
pytestmark = pytest.mark.nightly

OURS = [contender for contender in CONTENDERS if contender.is_ours]
ONLY_HERE = [each for each in SCENARIOS.values() if not each.covered_by]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("contender", OURS, ids=lambda each: each.backend)
@pytest.mark.parametrize("scenario", ONLY_HERE, ids=lambda each: each.name)
def test_our_side_of_a_scenario_is_exact(cluster, tmp_path, scenario, contender):
    """Rows lost, doubled, wrong and out of order are counted from the rows of the queue alone."""
    if contender.backend == "rpc":
        pytest.importorskip("yt_driver_rpc_bindings")
    stage = Stage(cluster, environments.DEFAULT_CACHE, tmp_path, hurried=True)
    verdict = scenario.run(stage, contender)
    assert verdict.word == scenario.must_be, verdict
