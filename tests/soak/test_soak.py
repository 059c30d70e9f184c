"""Many clients at once with faults on: the short form of `python -m tests.soak`."""

from __future__ import annotations

import pytest

from tests.soak.records import ACKED
from tests.soak.runner import SoakOptions, run


@pytest.mark.further
def test_many_clients_with_faults_lose_and_double_nothing():
    """Every acknowledged row is there once, every read is of one moment, and everybody comes back."""
    verdict = run(SoakOptions(clients=20, seconds=4.0, seed=5, kill_probability=0.005))
    assert verdict.violations == []
    # A soak in which nothing happens proves nothing.
    for kind in ("append", "single", "transfer"):
        assert verdict.numbers["outcomes"][kind][ACKED] > 0
    assert verdict.numbers["pushed_rows"] > 0
    assert sum(verdict.numbers["faults"].values()) > 0
