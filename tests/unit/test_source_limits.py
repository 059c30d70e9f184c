"""Fitting a batch into a data weight by probing single rows."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yt_exactly_once.spark.source.offsets import end_within


class Rows:
    """Rows of given weights; counts how often it is asked."""

    def __init__(self, weights):
        self.cumulative = list(accumulate(weights))
        self.probes = 0

    def weight_until(self, row):
        self.probes += 1
        return self.cumulative[row]

    def between(self, first, last):
        """Weight of the rows after `first` up to `last`."""
        return self.cumulative[last] - self.cumulative[first]


def test_even_rows_are_found_in_a_few_probes():
    """A look at a queue of a million rows must stay cheap."""
    rows = Rows([100] * 1_000_000)
    end = end_within(rows.weight_until, 0, 1_000_000, 50_000)
    assert 470 <= end <= 501
    assert rows.probes <= 6


@given(
    weights=st.lists(st.integers(1, 10**6), min_size=1, max_size=300),
    limit=st.integers(1, 10**7),
    data=st.data(),
)
def test_limit_is_never_exceeded_and_progress_is_always_made(weights, limit, data):
    """Whatever the rows weigh: at least one row, and at most the limit beyond the first."""
    rows = Rows(weights)
    start = data.draw(st.integers(0, len(weights) - 1))
    end = end_within(rows.weight_until, start, len(weights), limit)
    assert start < end <= len(weights)
    assert rows.between(start, end - 1) <= limit


@pytest.mark.parametrize("heavy_at", [0, 1, 50, 98, 99])
def test_one_heavy_row_does_not_break_the_search(heavy_at):
    """Interpolation between uneven rows still ends."""
    weights = [1] * 100
    weights[heavy_at] = 10**9
    rows = Rows(weights)
    end = end_within(rows.weight_until, 0, 100, 1000)
    assert end == (100 if heavy_at == 0 else heavy_at)
    assert rows.probes <= 26
