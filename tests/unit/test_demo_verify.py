"""The check can fail: each kind of damage to a result table is found and counted as what it is."""

import pandas as pd
import pytest

from yt_exactly_once.demo.layout import DELAYS_KEY, IDENTITY
from yt_exactly_once.demo.verify import (
    Outcome,
    compare,
    expected_delays,
    expected_flights,
    read_source,
)

ROWS = 500


@pytest.fixture(scope="module")
def expected():
    return expected_flights(read_source(ROWS))


def _with(rows, *more):
    return pd.concat([rows, *more], ignore_index=True)


def _set(column, value):
    def change(rows):
        rows.loc[5, column] = value
        return rows

    return change


@pytest.mark.parametrize(
    ("damage", "found", "lost", "duplicated", "wrong"),
    [
        (lambda rows: rows, 0, 0, 0, 0),
        (lambda rows: rows.drop(index=[3, 50, 51]), -3, 3, 0, 0),
        (lambda rows: rows.head(0), -ROWS, ROWS, 0, 0),
        (lambda rows: _with(rows, rows.iloc[[1, 2, 2]]), 3, 0, 3, 0),
        # As many rows as expected can still be wrong rows.
        (lambda rows: _with(rows.drop(index=7), rows.iloc[[8]]), 0, 1, 1, 0),
        (_set("queue_row", 1_000_000), 0, 1, 0, 1),
        # Every column is compared, and a missing value is a value.
        (_set("distance", 1), 0, 0, 0, 1),
        (_set("carrier_name", "Nobody"), 0, 0, 0, 1),
        (_set("carrier_name", None), 0, 0, 0, 1),
        (_set("speed_mph", 1e-9), 0, 0, 0, 1),
        (_set("time_hour", 0), 0, 0, 0, 1),
        (_set("delay_class", ""), 0, 0, 0, 1),
    ],
    ids=range(12),
)
def test_damage_is_counted_as_what_it_is(expected, damage, found, lost, duplicated, wrong):
    """In whatever order the rows come; a row nobody asked for counts, and its twin as lost."""
    actual = damage(expected.sample(frac=1, random_state=1).reset_index(drop=True))
    outcome = compare(actual, expected, IDENTITY)
    assert outcome == Outcome(
        expected=ROWS, found=ROWS + found, lost=lost, duplicated=duplicated, wrong=wrong
    )
    assert outcome.exact is not any((lost, duplicated, wrong))


def test_value_where_none_belongs_is_wrong(expected):
    """A flight that never arrived must not get a delay."""
    never_arrived = expected["arr_delay"].isna()
    assert never_arrived.any()
    actual = expected.copy()
    actual.loc[never_arrived, "arr_delay"] = 0
    assert compare(actual, expected, IDENTITY).wrong == never_arrived.sum()


def test_statistic_that_counted_a_batch_twice_is_wrong():
    """The damage that an update query without the ledger would do."""
    expected = expected_delays(read_source(ROWS))
    actual = expected.copy()
    actual.loc[2, "flights"] += 1
    assert compare(actual, expected, DELAYS_KEY).wrong == 1
    assert compare(expected, expected, DELAYS_KEY).exact
