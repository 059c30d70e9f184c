"""The independent computation: right answers on data small enough to check by hand."""

import pandas as pd
import pytest
from yt.yson import YsonUint64

from yt_exactly_once.demo.layout import DELAYS_TYPES
from yt_exactly_once.demo.verify import canonical, expected_delays, expected_flights, read_source

_NONE = float("nan")


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
