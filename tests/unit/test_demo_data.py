"""The data set in the queue, the right answers computed independently of it, and the check of results.

The answers are right on data small enough to check by hand, and the check can fail: each kind of
damage to a result table is found and counted as what it is.
"""

import pandas as pd
import pyarrow as pa
import pytest
from yt.yson import YsonUint64

from yt_exactly_once.demo import data
from yt_exactly_once.demo.layout import DELAYS_KEY, DELAYS_TYPES, FLIGHT_TYPES, IDENTITY
from yt_exactly_once.demo.verify import (
    Outcome,
    canonical,
    compare,
    expected_delays,
    expected_flights,
    read_source,
)

_NONE = float("nan")
ROWS = 500


def test_flights_have_the_columns_of_the_queue_and_its_gaps():
    """Every column arrives."""
    flights = data.read_flights()
    assert flights.num_rows == 336_776
    assert flights.column_names == list(FLIGHT_TYPES)
    assert flights["dep_delay"].null_count


def test_payload_deals_flights_out_over_the_partitions_from_where_the_last_one_ended():
    """The partition follows from the number of the flight alone."""
    flights = data.read_flights(10)
    rows = pa.ipc.open_stream(data.arrow_payload(flights.slice(3, 6), 3)).read_all()
    assert rows["$tablet_index"].to_pylist() == [3, 0, 1, 2, 3, 0]
    assert rows["tailnum"].to_pylist() == flights["tailnum"].to_pylist()[3:9]


def _source(**columns):
    """Return the first flights of the file with some columns replaced."""
    count = len(next(iter(columns.values())))
    return read_source(count).assign(**columns)


def _statistic(frame, key):
    return frame.set_index("key").loc[key].to_dict()


def test_statistics_of_a_few_flights_are_those_computed_by_hand():
    """Flights that never left count as flights, and as nothing else."""
    found = expected_delays(
        _source(
            carrier=["AA", "AA", "AA", "UA"],
            origin=["JFK"] * 4,
            dest=["MIA", "MIA", "BOS", "BOS"],
            dep_delay=[-3.0, 10.0, _NONE, _NONE],
            arr_delay=[5.0, _NONE, _NONE, _NONE],
        )
    )
    assert list(found["key"]) == ["AA", "UA", "JFK-BOS", "JFK-MIA"]
    assert _statistic(found, "AA") == {
        "kind": "carrier",
        "flights": 3,
        "departed": 2,
        "dep_delay_sum": 7,
        "dep_delay_min": -3,
        "dep_delay_max": 10,
        "arrived": 1,
        "arr_delay_sum": 5,
        "arr_delay_min": 5,
        "arr_delay_max": 5,
    }
    never_left = _statistic(found, "JFK-BOS")
    assert never_left["flights"] == 2
    assert never_left["departed"] == 0
    assert all(pd.isna(never_left[f"dep_delay_{what}"]) for what in ("sum", "min", "max"))


@pytest.mark.parametrize(
    ("delay", "name"),
    [
        (-5.0, "on time"),
        (0.0, "on time"),
        (1.0, "a little late"),
        (14.0, "a little late"),
        (15.0, "late"),
        (59.0, "late"),
        (60.0, "very late"),
        (_NONE, "cancelled"),
    ],
)
def test_delay_class_changes_at_its_borders(delay, name):
    """Each class includes its lower border and not its upper one."""
    assert list(expected_flights(_source(dep_delay=[delay]))["delay_class"]) == [name]


def test_first_flight_is_enriched_as_computed_by_hand():
    """Name of the airline, 1400 miles in 227 minutes, and the instant in microseconds.

    Flight number n is row n // 4 of partition n % 4.
    """
    found = expected_flights(read_source(6))
    assert list(found["queue_partition"]) == [0, 1, 2, 3, 0, 1]
    assert list(found["queue_row"]) == [0, 0, 0, 0, 1, 1]
    first = found.iloc[0]
    assert first["carrier_name"] == "United Air Lines Inc."
    assert first["speed_mph"] == 1400 * 60.0 / 227
    assert first["time_hour"] == 1_357_034_400_000_000


def test_values_of_the_client_and_of_pandas_become_the_same():
    """A value that is equal must not differ by the type it came in."""
    row = dict.fromkeys(DELAYS_TYPES, YsonUint64(7)) | {"kind": "route", "key": "JFK-BOS"}
    read = pd.DataFrame.from_records([row, row | {"dep_delay_sum": None}])
    computed = pd.DataFrame.from_records([row, row]).assign(dep_delay_sum=[7.0, _NONE])
    pd.testing.assert_frame_equal(canonical(read, DELAYS_TYPES), canonical(computed, DELAYS_TYPES))


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
