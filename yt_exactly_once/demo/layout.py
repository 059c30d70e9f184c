"""Where the demo keeps what: Cypress paths and table schemas; and what a child is ordered.

Both the queries and the check after them read it. It computes nothing, so the check shares no logic with
what it checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

PARTITIONS = 4
"""Partitions of the queue, and tablets of the ordered target."""

ROOT = "//home/demo"
QUEUE = f"{ROOT}/flights"
ENRICHED = f"{ROOT}/flights_enriched"
DELAYS = f"{ROOT}/delays"


FLIGHT_TYPES = {
    **dict.fromkeys(("month", "day", "hour", "minute"), pa.int8()),
    **dict.fromkeys(("year", "dep_time", "sched_dep_time", "dep_delay", "arr_time"), pa.int16()),
    **dict.fromkeys(("sched_arr_time", "arr_delay", "air_time"), pa.int16()),
    **dict.fromkeys(("flight", "distance"), pa.int32()),
    **dict.fromkeys(("carrier", "tailnum", "origin", "dest"), pa.string()),
    "time_hour": pa.timestamp("us", tz="UTC"),
}
"""Columns of the data set; any may have missing values."""

IDENTITY = ("queue_partition", "queue_row")
"""Columns that name one flight: where it stands in the queue."""

ENRICHED_TYPES = {
    **dict.fromkeys(IDENTITY, pa.int64()),
    **FLIGHT_TYPES,
    **dict.fromkeys(("carrier_name", "delay_class"), pa.string()),
    "speed_mph": pa.float64(),
}

DELAYS_KEY = ("kind", "key")
"""What a statistic is about: `carrier` and its code, or `route` and its two airports."""

DELAYS_TYPES = {
    **dict.fromkeys(DELAYS_KEY, pa.string()),
    **dict.fromkeys(("flights", "departed", "arrived"), pa.int64()),
    **dict.fromkeys(("dep_delay_sum", "dep_delay_min", "dep_delay_max"), pa.int64()),
    **dict.fromkeys(("arr_delay_sum", "arr_delay_min", "arr_delay_max"), pa.int64()),
}


@dataclass(frozen=True)
class Query:
    """One of the two queries of the child."""

    name: str
    consumer: str
    target: str


FLIGHTS = Query("flights", f"{ROOT}/flights_consumer", ENRICHED)
STATISTICS = Query("delays", f"{ROOT}/delays_consumer", DELAYS)
QUERIES = (FLIGHTS, STATISTICS)


@dataclass
class Work:
    """What a child does, as a line on its standard input. Before it, the child knows no cluster."""

    mode: str
    backend: str
    rows_per_partition: int
    proxies: Sequence[str] = ()
