"""Scenarios of the comparison with SPYT that no other test has, on our side.

The others name the test that shows the same (`benchmarks/spyt/holes.py`).
"""

from __future__ import annotations

import pytest

from benchmarks.spyt import environments
from benchmarks.spyt.holes import SCENARIOS
from benchmarks.spyt.trials import CONTENDERS, Stage

OURS = [contender for contender in CONTENDERS if contender.is_ours]
CONTENDERS_OF_TIERS = [
    pytest.param(each, id=each.backend, marks=[pytest.mark.nightly] * (each.backend == "rpc"))
    for each in OURS
]
ONLY_HERE = [
    # A replay in which one of two queues is idle is in tests/integration/test_sink_sources.py as well.
    pytest.param(each, id=each.name, marks=[pytest.mark.nightly] * (each.name == "kill_two"))
    for each in SCENARIOS.values()
    if not each.covered_by
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("contender", CONTENDERS_OF_TIERS)
@pytest.mark.parametrize("scenario", ONLY_HERE)
def test_our_side_of_a_scenario_is_exact(cluster, tmp_path, scenario, contender):
    """Rows lost, doubled, wrong and out of order are counted from the rows of the queue alone."""
    if contender.backend == "rpc":
        pytest.importorskip("yt_driver_rpc_bindings")
    stage = Stage(cluster, environments.DEFAULT_CACHE, tmp_path, hurried=True)
    verdict = scenario.run(stage, contender)
    assert verdict.word == scenario.must_be, verdict
