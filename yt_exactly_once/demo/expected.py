"""What must come out, computed by pandas from the data set file: no Spark, no cluster, no codec.

The rules of the two queries are written a second time here, on purpose.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from yt_exactly_once.demo.data import MISSING, data_set_file
from yt_exactly_once.demo.layout import DELAYS_TYPES, ENRICHED_TYPES, PARTITIONS

_EPOCH = pd.Timestamp(0, tz="UTC")
_MICROSECOND = pd.Timedelta(microseconds=1)


def read_source(rows: int | None = None) -> pd.DataFrame:
    """Return the first flights of the file, or all."""
    return pd.read_csv(
        data_set_file("flights.csv.zip"), nrows=rows, keep_default_na=False, na_values=[MISSING]
    )


def expected_flights(source: pd.DataFrame) -> pd.DataFrame:
    """Return the enriched table as it must be."""
    airlines = pd.read_csv(data_set_file("airlines.csv"), keep_default_na=False)
    flights = source.reset_index(drop=True)
    number = flights.index.to_series()
    delay_class = pd.cut(
        flights["dep_delay"],
        bins=[float("-inf"), 0, 14, 59, float("inf")],
        labels=["on time", "a little late", "late", "very late"],
    )
    instant = pd.to_datetime(flights["time_hour"], utc=True)
    return canonical(
        flights.assign(
            queue_partition=number % PARTITIONS,
            queue_row=number // PARTITIONS,
            time_hour=(instant - _EPOCH) // _MICROSECOND,
            carrier_name=flights["carrier"].map(airlines.set_index("carrier")["name"]),
            delay_class=delay_class.astype("object").fillna("cancelled"),
            speed_mph=flights["distance"] * 60.0 / flights["air_time"],
        ),
        ENRICHED_TYPES,
    )


def expected_delays(source: pd.DataFrame) -> pd.DataFrame:
    """Return the statistics as they must be."""
    keys = {"carrier": source["carrier"], "route": source["origin"] + "-" + source["dest"]}
    parts = [_statistics(source, key).assign(kind=kind) for kind, key in keys.items()]
    return canonical(pd.concat(parts, ignore_index=True), DELAYS_TYPES)


def _statistics(source: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    groups = source.assign(key=key).groupby("key")
    found = groups.agg(
        flights=("year", "size"),
        departed=("dep_delay", "count"),
        dep_delay_min=("dep_delay", "min"),
        dep_delay_max=("dep_delay", "max"),
        arrived=("arr_delay", "count"),
        arr_delay_min=("arr_delay", "min"),
        arr_delay_max=("arr_delay", "max"),
    )
    # The sum of nothing is missing, as in SQL.
    sums = groups[["dep_delay", "arr_delay"]].sum(min_count=1).add_suffix("_sum")
    return found.join(sums).reset_index()


def canonical(frame: pd.DataFrame, types: dict[str, str]) -> pd.DataFrame:
    """Return the columns of a table, with values from anywhere, in one form that can be compared."""
    return pd.DataFrame(
        {name: pd.array(_plain(frame[name]), dtype=_form(kind)) for name, kind in types.items()}
    )


def _form(kind: str) -> Any:
    if kind == "utf8":
        return pd.StringDtype("python")
    return pd.Float64Dtype() if kind == "double" else pd.Int64Dtype()


def _plain(column: pd.Series) -> Any:
    """Return values that every pandas turns into its nullable types alike."""
    return column if column.dtype != object else column.where(column.notna(), None).to_numpy()
