"""Where the demo keeps what: Cypress paths, table schemas, and the files of a data directory.

Both the queries and the check after them read it. It computes nothing, so the check shares no logic with
what it checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTITIONS = 4
"""Partitions of the queue, and tablets of the ordered target."""

ROOT = "//home/demo"
QUEUE = f"{ROOT}/flights"
ENRICHED = f"{ROOT}/flights_enriched"
DELAYS = f"{ROOT}/delays"


def _types(columns: str) -> dict[str, str]:
    return dict(column.split() for column in columns.split(", "))


FLIGHT_TYPES = _types(
    "year int16, month int8, day int8, dep_time int16?, sched_dep_time int16, dep_delay int16?, "
    "arr_time int16?, sched_arr_time int16, arr_delay int16?, carrier utf8, flight int32, "
    "tailnum utf8?, origin utf8, dest utf8, air_time int16?, distance int32, hour int8, "
    "minute int8, time_hour timestamp"
)
"""Columns of the data set; `?` marks those with missing values."""

IDENTITY = ("queue_partition", "queue_row")
"""Columns that name one flight: where it stands in the queue."""

ENRICHED_TYPES = {
    **_types("queue_partition int64, queue_row int64"),
    **FLIGHT_TYPES,
    **_types("carrier_name utf8?, delay_class utf8, speed_mph double?"),
}

DELAYS_KEY = ("kind", "key")
"""What a statistic is about: `carrier` and its code, or `route` and its two airports."""

DELAYS_TYPES = _types(
    "kind utf8, key utf8, flights int64, departed int64, dep_delay_sum int64?, "
    "dep_delay_min int64?, dep_delay_max int64?, arrived int64, arr_delay_sum int64?, "
    "arr_delay_min int64?, arr_delay_max int64?"
)

QUEUE_SERVICE_COLUMNS = [
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


@dataclass(frozen=True)
class Query:
    """One of the two queries of the child."""

    name: str
    consumer: str
    target: str


FLIGHTS = Query("flights", f"{ROOT}/flights_consumer", ENRICHED)
STATISTICS = Query("delays", f"{ROOT}/delays_consumer", DELAYS)
QUERIES = (FLIGHTS, STATISTICS)


def table_schema(types: dict[str, str], keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the schema to create a table with."""
    columns: list[dict[str, Any]] = []
    for name, given in types.items():
        item = given.removesuffix("?")
        logical: Any = {"type_name": "optional", "item": item} if item != given else item
        column = {"name": name, "type_v3": logical}
        if name in keys:
            column["sort_order"] = "ascending"
        columns.append(column)
    return columns


@dataclass(frozen=True)
class DataDir:
    """The files of one demo.

    Attributes:
        path: the directory; the embedded cluster keeps its store in it too.
    """

    path: Path

    @property
    def log(self) -> Path:
        """What the child and its JVM print, over all its lives."""
        return self.path / "queries.log"

    @property
    def scratch(self) -> Path:
        """Temporary files of Spark, which a killed process leaves behind."""
        return self.path / "scratch"

    def checkpoint(self, query: Query) -> Path:
        """Return the checkpoint of a query."""
        return self.path / "checkpoints" / query.name
