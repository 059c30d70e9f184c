"""The comparison with SPYT: rows are judged right, and scenarios name what covers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.spyt.holes import SCENARIOS
from benchmarks.spyt.work import Difference, difference, known_row

TESTS = Path(__file__).parents[2] / "tests"
WANTED = [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (WANTED, Difference(3)),
        (WANTED[1:], Difference(3, lost=1)),
        ([*WANTED, WANTED[0]], Difference(3, doubled=1)),
        ([(1, "a"), (2, "x"), (3, "c")], Difference(3, wrong=1)),
        ([*WANTED, (4, "d")], Difference(3, wrong=1)),
        ([*WANTED, (3, "x")], Difference(3, doubled=1)),
        ([], Difference(3, lost=3)),
    ],
)
def test_rows_are_judged_by_their_keys(found, expected):
    """A row of a known key with other values is wrong, not lost and not new."""
    assert difference(found, WANTED, in_order=False) == expected
    assert expected.is_exact is (found == WANTED)


def test_order_counts_where_it_must_be_kept():
    """One step back for two pieces that have changed places."""
    rows = [(3, "c"), (1, "a"), (2, "b")]
    assert difference(rows, WANTED, in_order=False).is_exact
    assert difference(rows, WANTED, in_order=True) == Difference(3, disordered=1)


def test_every_second_row_repeats_a_token_of_an_earlier_batch():
    """Otherwise a scenario with dropDuplicates would have nothing to drop."""
    tokens = [known_row(number)["token"] for number in range(400)]
    assert tokens[:200] == list(range(200))
    assert [token < 200 for token in tokens[200:]] == [False, True] * 100


def test_scenarios_name_tests_that_exist():
    """What is not a test of its own must be covered by another one."""
    for scenario in SCENARIOS.values():
        if scenario.covered_by:
            file, _, name = scenario.covered_by.partition("::")
            assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), scenario.name
