"""Measure batches over links with a round trip, and count the requests that wait for each other.

Every mode writes the same batches one at a time, in changing order, over a link to the embedded cluster.
The delay is that of the link; Spark and the cluster are on this machine. The last condition is for counting:
its round trip is long beside what Spark does between two requests, so that these follow each other only if
the later one needs the earlier one. "Behind each other" is the longest row of requests that passed the link
of which none overlap. "Waited" is how much longer a batch takes than over the first link, in round trips.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt.logger import LOGGER
from yt.wrapper import YtClient

from benchmarks.arguments import positive
from benchmarks.modes.points import FLOOR, IDEMPOTENT, LIMIT, MODES, Point
from benchmarks.modes.session import session
from benchmarks.modes.stage import Stage
from benchmarks.network.link import Conditions, Link, Request, chain
from benchmarks.page import put, rig
from yt_exactly_once import register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from benchmarks.modes.turns import Contender

_WARM = 2
_COUNTED = 3
"""Turns over the last link, at most: counts vary little."""

_WHO = (FLOOR, *MODES, IDEMPOTENT, LIMIT)

POINTS = (
    Point("one-row", rows=1, partitions=1),
    Point("1000-rows", rows=1_000),
    Point("100000-rows", rows=100_000),
    Point("queue-one-row", rows=1, partitions=1, source="queue"),
    Point("queue-1000-rows", rows=1_000, source="queue"),
    Point("queue-10000-rows", rows=10_000, source="queue"),
    Point("queue-16-partitions", rows=16_000, partitions=16, source="queue"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__)
    parser.add_argument("--round-trips", type=float, nargs="+", default=[0, 1, 5, 20], help="ms")
    parser.add_argument("--bandwidth", type=float, help="MB per second of each connection")
    parser.add_argument("--turns", type=positive, default=7, help="measured batches of each")
    parser.add_argument(
        "--counted-at", type=float, default=300, help="ms; requests are counted there"
    )
    parser.add_argument("--points", nargs="+", choices=[point.name for point in POINTS])
    parser.add_argument("--contenders", nargs="+", choices=_WHO, default=_WHO)
    parser.add_argument("--json", type=Path, help="file for what was measured")
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    limit = options.bandwidth and options.bandwidth * 1e6
    trips = [*options.round_trips, options.counted_at]
    conditions = [Conditions(trip / 1000, limit) for trip in trips]
    chosen = [point for point in POINTS if point.name in (options.points or point.name)]
    found: list[Series] = []
    with LocalCluster() as cluster, session() as spark:
        register_source(spark)
        heading = [*(f"{trip:g} ms" for trip in trips), "waited", "behind each other", "requests"]
        lines = [f"| batch | writes | {' | '.join(heading)} |", "|---" * (len(heading) + 2) + "|"]
        print("\n".join(lines))
        for point in chosen:
            taken = replace(point, contenders=tuple(options.contenders))
            for series in measure(spark, cluster, taken, conditions, options.turns):
                found.append(series)
                lines.append(series.row())
                print(lines[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps([vars(series) for series in found], indent=1) + "\n")
    if options.page:
        put("network", [*lines, "", f"Milliseconds: medians of {options.turns} batches. {rig()}."])
    return 0


@dataclass
class Series:
    """The batches of one contender at one point.

    Attributes:
        point: of the benchmark.
        contender: who wrote.
        seconds: of each batch, by the milliseconds of the round trip.
        behind: requests that followed each other, per batch over the last link.
        requests: all requests of these batches.
        commands: those of the last batch, in the order in which they began.
    """

    point: str
    contender: str
    seconds: dict[float, list[float]] = field(default_factory=dict)
    behind: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    @property
    def waited(self) -> float:
        """How many round trips longer a batch takes over the last link than over the first."""
        (first, short), *_, (last, long) = self.seconds.items()
        return (statistics.median(long) - statistics.median(short)) * 1000 / (last - first)

    def row(self) -> str:
        """Return a row of the table: medians."""
        times = [f"{statistics.median(batches) * 1000:,.0f}" for batches in self.seconds.values()]
        counts = [f"{statistics.median(counted):g}" for counted in (self.behind, self.requests)]
        waited = f"{self.waited:.1f}"
        return f"| {' | '.join([self.point, self.contender, *times, waited, *counts])} |"


class Linked:
    """An embedded cluster as a client over a link sees it."""

    def __init__(self, address: str) -> None:
        self.proxy_urls = [f"http://{address}"]

    def client(self, **config: Any) -> YtClient:
        """Return a client that knows the link only."""
        return YtClient(self.proxy_urls[0], config=config)


def measure(
    spark: SparkSession,
    cluster: LocalCluster,
    point: Point,
    conditions: Sequence[Conditions],
    turns: int,
) -> Iterator[Series]:
    """Let all contenders write batches under each of the conditions."""
    upstream = cluster.proxy_urls[0].removeprefix("http://")
    with ExitStack() as stack:
        link = stack.enter_context(Link(upstream))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        linked: Any = Linked(link.address)
        batches = _WARM + len(conditions) * (1 + turns)
        stage = stack.enter_context(Stage(point, spark, linked, folder, batches))
        contenders = [stage.contender(name) for name in point.contenders]
        found = {who.name: Series(point.name, who.name) for who in contenders}
        for _ in range(_WARM):
            for who in contenders:
                _turn(who, link)
        for condition in conditions:
            link.become(condition)
            measured = min(turns, _COUNTED) if condition is conditions[-1] else turns
            for number in range(1 + measured):
                for who in random.sample(contenders, len(contenders)):
                    seconds, requests = _turn(who, link)
                    series = found[who.name]
                    if number:  # the first one learns how long a batch takes now
                        taken = series.seconds.setdefault(condition.round_trip * 1000, [])
                        taken.append(seconds)
                        if condition is conditions[-1]:
                            series.behind.append(chain(requests))
                            series.requests.append(len(requests))
                            ordered = sorted(requests, key=lambda one: one.begin)
                            series.commands = [one.command for one in ordered]
        link.become(Conditions())
        yield from found.values()


def _turn(who: Contender, link: Link) -> tuple[float, list[Request]]:
    who.prepare()
    link.requests()
    began = time.monotonic()
    turn = who.turn()
    return turn.seconds, [one for one in link.requests() if one.begin >= began]


if __name__ == "__main__":
    raise SystemExit(main())
