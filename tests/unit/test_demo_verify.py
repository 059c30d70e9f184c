"""The check can fail: each kind of damage to a result table is found and counted as what it is."""

from __future__ import annotations

import pandas as pd
import pytest

from yt_exactly_once.demo.expected import expected_delays, expected_flights, read_source
from yt_exactly_once.demo.layout import DELAYS_KEY, IDENTITY
from yt_exactly_once.demo.verify import Outcome, compare

_ROWS = 500


@pytest.fixture(scope="module")
def expected():
    return expected_flights(read_source(_ROWS))


@pytest.fixture
def actual(expected):
    return expected.sample(frac=1, random_state=1).reset_index(drop=True)


def test_same_rows_in_another_order_are_exact(actual, expected):
    """The order of rows in a table does not matter."""
    found = compare(actual, expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=_ROWS, lost=0, duplicated=0, wrong=0)
    assert found.exact


def test_missing_rows_are_lost(actual, expected):
    """Each flight that is not there counts."""
    found = compare(actual.drop(index=[3, 50, 51]), expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=_ROWS - 3, lost=3, duplicated=0, wrong=0)
    assert not found.exact


def test_empty_table_has_lost_everything(actual, expected):
    """Nothing there is not the same as nothing wrong."""
    found = compare(actual.head(0), expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=0, lost=_ROWS, duplicated=0, wrong=0)


def test_rows_written_twice_are_duplicated(actual, expected):
    """Every copy beyond the first counts."""
    twice = pd.concat([actual, actual.iloc[[1, 2, 2]]], ignore_index=True)
    found = compare(twice, expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=_ROWS + 3, lost=0, duplicated=3, wrong=0)
    assert not found.exact


def test_duplicate_does_not_make_up_for_a_lost_row(actual, expected):
    """As many rows as expected can still be wrong rows."""
    found = compare(
        pd.concat([actual.drop(index=7), actual.iloc[[8]]], ignore_index=True), expected, IDENTITY
    )
    assert found == Outcome(expected=_ROWS, found=_ROWS, lost=1, duplicated=1, wrong=0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("distance", 1),
        ("carrier_name", "Nobody"),
        ("carrier_name", None),
        ("speed_mph", 1e-9),
        ("time_hour", 0),
        ("delay_class", ""),
    ],
)
def test_row_with_another_value_is_wrong(actual, expected, column, value):
    """Every column is compared, and a missing value is a value."""
    actual.loc[5, column] = value
    found = compare(actual, expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=_ROWS, lost=0, duplicated=0, wrong=1)
    assert not found.exact


def test_value_where_none_belongs_is_wrong(actual, expected):
    """A flight that never arrived must not get a delay."""
    never_arrived = actual["arr_delay"].isna()
    assert never_arrived.any()
    actual.loc[never_arrived, "arr_delay"] = 0
    assert compare(actual, expected, IDENTITY).wrong == never_arrived.sum()


def test_row_nobody_asked_for_is_wrong(actual, expected):
    """A flight with an identity that does not exist counts, its twin as lost."""
    actual.loc[5, "queue_row"] = 1_000_000
    found = compare(actual, expected, IDENTITY)
    assert found == Outcome(expected=_ROWS, found=_ROWS, lost=1, duplicated=0, wrong=1)


def test_statistic_that_counted_a_batch_twice_is_wrong():
    """The damage that an update query without the ledger would do."""
    expected = expected_delays(read_source(_ROWS))
    actual = expected.copy()
    actual.loc[2, "flights"] += 1
    assert compare(actual, expected, DELAYS_KEY).wrong == 1
    assert compare(expected, expected, DELAYS_KEY).exact
