"""Latency by percentile: many small batches of one query, and what the slow ones waited for.

Run it as `python -m benchmarks.network.latency`. The rows come from a queue and the link has no delay.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.modes.points import FLOOR, IDEMPOTENT, MODES, Point
from benchmarks.modes.session import session
from benchmarks.modes.stage import Stage
from benchmarks.modes.turns import Turn
from benchmarks.page import put, rig
from yt_exactly_once import register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

_WARM = 50
_AROUND = "Spark around the sink"
SLOW = 1.5
"""A batch is slow that takes more than so many times the median."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.latency", description=__doc__
    )
    parser.add_argument("--batches", type=positive, default=2_000, help="measured, of each")
    parser.add_argument("--rows", type=positive, default=100)
    parser.add_argument("--partitions", type=positive, default=4, help="of the queue")
    who = (FLOOR, *MODES, IDEMPOTENT)
    parser.add_argument("--contenders", nargs="+", choices=who, default=(FLOOR, MODES[1]))
    parser.add_argument("--json", type=Path, help="file for what was measured")
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    point = Point("latency", rows=options.rows, partitions=options.partitions, source="queue")
    measured: dict[str, list[Turn]] = {name: [] for name in options.contenders}
    with LocalCluster() as cluster, session() as spark, tempfile.TemporaryDirectory() as folder:
        register_source(spark)
        with Stage(point, spark, cluster, Path(folder), _WARM + options.batches) as stage:
            contenders = [stage.contender(name) for name in options.contenders]
            for number in range(_WARM + options.batches):
                for contender in contenders:
                    turn = contender.turn()
                    if number >= _WARM:
                        measured[contender.name].append(turn)
    if options.json:
        told = {name: [vars(turn) for turn in turns] for name, turns in measured.items()}
        options.json.write_text(json.dumps(told) + "\n")
    lines = [
        "| writes | p50, ms | p95, ms | p99, ms | max, ms | p99 / p50 | slow | these waited for |",
        "|---" * 8 + "|",
        *(f"| {name} | {' | '.join(_row(turns))} |" for name, turns in measured.items()),
    ]
    print("\n".join(lines))
    if options.page:
        put("latency", [*lines, "", f"{options.batches} batches of {options.rows} rows. {rig()}."])
    return 0


def _row(turns: Sequence[Turn]) -> Iterator[str]:
    cuts = statistics.quantiles((turn.seconds for turn in turns), n=100, method="inclusive")
    middle, last = cuts[49], cuts[98]
    times = (middle, cuts[94], last, max(turn.seconds for turn in turns))
    yield from (f"{seconds * 1000:.0f}" for seconds in times)
    yield f"{last / middle:.2f}"
    causes = reasons(turns)
    yield str(sum(causes.values()))
    yield ", ".join(f"{step}: {count}" for step, count in causes.most_common()) or "-"


def reasons(turns: Sequence[Turn]) -> Counter[str]:
    """Return how many slow batches lost most of their time in which step, against its median."""
    parts = [{**turn.steps, _AROUND: turn.seconds - sum(turn.steps.values())} for turn in turns]
    usual = {
        step: statistics.median(one.get(step, 0.0) for one in parts)
        for step in parts[0] | parts[-1]
    }
    limit = SLOW * statistics.median(turn.seconds for turn in turns)
    return Counter(
        max(one, key=lambda step: one[step] - usual.get(step, 0.0))
        for turn, one in zip(turns, parts, strict=True)
        if turn.seconds > limit
    )


if __name__ == "__main__":
    raise SystemExit(main())
