"""Rows of a batch in one table and in many: requests, and time by the round trip to the proxy, in turns.

Run it as `python -m benchmarks.network.fan_out`. The engine writes given rows: Spark is in no figure.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType
from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.network.link import Conditions, Link, chain
from benchmarks.page import put, rig
from yt_exactly_once import SinkOptions, Target, create_table
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME
from yt_exactly_once.spark.doors.batch_writer import NothingLogged
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.engine.run import Rows
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.spark.query.offset_log import RunningBatch
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.ytsaurus.client import Connection

_WARM = 2
_PARTITIONS = 4
_SCHEMA = StructType([StructField("shop", StringType()), StructField("amount", LongType())])


class Given(Rows):
    """Rows of four Spark partitions, which name so many tables in turns."""

    schema = _SCHEMA

    def __init__(self, rows: int, tables: int) -> None:
        self._rows, self._tables = rows // _PARTITIONS, tables

    def schema_for(self, target: Target) -> StructType:  # noqa: ARG002 - the interface
        """Return the same columns for every target."""
        return self.schema

    def compute(self, assignment: object) -> list[pa.RecordBatch]:  # noqa: ARG002 - the interface
        """Return the rows with their Spark partitions."""
        names = pa.array([f"s{number % self._tables}" for number in range(self._rows)])
        columns = {"shop": names, "amount": np.arange(self._rows)}
        return [
            pa.record_batch({**columns, PARTITION_COLUMN: np.full(self._rows, number, np.int32)})
            for number in range(_PARTITIONS)
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.fan_out", description=__doc__
    )
    parser.add_argument("--batches", type=positive, default=20, help="measured, of each")
    parser.add_argument("--rows", type=positive, default=10_000)
    parser.add_argument("--tables", type=positive, default=200)
    parser.add_argument("--round-trips", type=float, nargs="+", default=(0.0, 2.0), metavar="MS")
    parser.add_argument("--connections", type=positive, nargs="+", default=(4, 16))
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    logging.getLogger(LOGGER_NAME).setLevel(logging.ERROR)
    times: dict[tuple[float, int, int], list[float]] = defaultdict(list)
    chains: dict[tuple[float, int, int], list[int]] = defaultdict(list)
    requests: dict[int, int] = {}
    with LocalCluster() as cluster, Link(cluster.proxy_urls[0].removeprefix("http://")) as link:
        create_table("//home/all", _SCHEMA, proxy=cluster.proxy_urls[0])
        for trip in options.round_trips:
            link.become(Conditions(round_trip=trip / 1000))
            engines = {
                (count, width): _engine(link.address, count, width)
                for width in options.connections
                for count in (1, options.tables)
            }
            for number in range(_WARM + options.batches):
                for key, engine in engines.items():
                    rows = Given(options.rows, options.tables)
                    link.requests()
                    began = time.perf_counter()
                    engine.deliver(_running(number, f"{key} {trip}"), rows)
                    took = time.perf_counter() - began
                    sent = link.requests()
                    if number >= _WARM:
                        times[trip, *key].append(took)
                        chains[trip, *key].append(chain(sent))
                        requests[key[0]] = len(sent)
    lines = [
        "| round trip | `connections` | tables | requests | one after the other | ms | times one table |",
        "|---" * 7 + "|",
    ]
    for (trip, count, width), taken in times.items():
        row = statistics.median(chains[trip, count, width])
        middle = statistics.median(taken) * 1000
        # Of the same round: a busy machine is as busy for both.
        pairs = zip(taken, times[trip, 1, width], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        cells = (f"{trip:g} ms", width, count, requests[count], f"{row:.0f}", f"{middle:.0f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {ratio:.1f} |")
    print("\n".join(lines))
    if options.page:
        put(
            "fan-out",
            [*lines, "", f"Medians of {options.batches} batches of {options.rows} rows. {rig()}."],
        )
    return 0


def _running(number: int, query: str) -> RunningBatch:
    return RunningBatch(query, "run", number, NothingLogged("append"))


def _engine(proxy: str, count: int, width: int) -> Engine:
    several = Target("//home/shops/{shop}", create={})
    options = SinkOptions(
        Target("//home/all") if count == 1 else several, proxy=proxy, connections=width
    )
    return Engine(mode_of(options, Connection(options.cluster)))


if __name__ == "__main__":
    raise SystemExit(main())
