"""Run the queries of Nexmark from queues to tables, kill their driver, and compare every row with DuckDB.

Each query runs in all modes that take it, side by side, and their driver is killed with SIGKILL at random
moments. Then each is timed, beside Spark's `noop` sink and Delta Lake. Progress goes to the standard error,
the tables to the standard output. The exit code is 1 if a mode has broken its promise. At-least-once mode may
double rows.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

from yt.logger import LOGGER

from benchmarks import page
from benchmarks.arguments import positive
from benchmarks.modes.machine import stamp
from benchmarks.modes.session import session
from benchmarks.nexmark.events import Events, generate
from benchmarks.nexmark.kills import DRIVER, Survival, survive
from benchmarks.nexmark.queries import BY_NAME, LEFT_OUT, QUERIES, Query
from benchmarks.nexmark.report import kills_table, left_out, times_table, to_json
from benchmarks.nexmark.stage import fill_queues
from benchmarks.nexmark.timing import Times, Timing
from yt_exactly_once import register_source
from yt_exactly_once.demo.supervision import Supervision
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME
from yt_exactly_once.spark.compat.java import require_java

_PAGE = page.PAGE.with_name("nexmark.md")
_HEAD = 2
"""Lines of a table before its rows."""


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the table."""
    options = _parser().parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    logging.getLogger(LOGGER_NAME).setLevel(logging.ERROR)
    require_java()
    chosen = [query for query in QUERIES if query.name in (options.queries or BY_NAME)]
    survivals, times = run(
        chosen, options.events, kills=options.kills, rounds=options.rounds, seed=options.seed
    )
    tables = {"kills": list(kills_table(survivals)), "times": list(times_table(times))}
    tables = {name: lines for name, lines in tables.items() if len(lines) > _HEAD}
    print("\n\n".join("\n".join(lines) for lines in tables.values()))
    if options.json is not None:
        found = {"run": stamp(), **vars(options), **to_json(survivals, times)}
        options.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
    if options.page:
        told = f"{options.events:,} events. {page.rig()}."
        for name, lines in tables.items():
            page.put(name, [*lines, "", told], _PAGE)
        page.put("left out", left_out(), _PAGE)
    return int(not all(one.kept for one in survivals))


def run(
    queries: list[Query], count: int, *, kills: int, rounds: int, seed: int
) -> tuple[list[Survival], list[Times]]:
    """Return what is left after the kills, and the times.

    Args:
        count: of events.
        kills: of each query; 0 judges nothing.
        rounds: that count; 0 measures no times.
    """
    events = generate(count, seed)
    with tempfile.TemporaryDirectory(prefix="nexmark-", ignore_cleanup_errors=True) as folder:
        survivals = _survivals(queries, events, folder, kills, seed) if kills else []
        times = _times(queries, events, folder, rounds, seed) if rounds else []
    return survivals, times


def _survivals(
    queries: list[Query], events: Events, folder: str, kills: int, seed: int
) -> list[Survival]:
    with (
        Supervision(DRIVER, Path(folder), _say) as supervision,
        LocalCluster(Path(folder) / "cluster") as cluster,
    ):
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        fill_queues(client, proxy, events)
        return survive(
            queries,
            events,
            client,
            supervision,
            proxy=proxy,
            folder=folder,
            kills=kills,
            seed=seed,
            say=_say,
        )


def _times(
    queries: list[Query], events: Events, folder: str, rounds: int, seed: int
) -> list[Times]:
    with LocalCluster(Path(folder) / "timed") as cluster, session() as spark:
        register_source(spark)
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        fill_queues(client, proxy, events)
        timing = Timing(spark, client, proxy, Path(folder), events, _say)
        return timing.measure(queries, rounds, seed)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    reasons = "\n".join(f"{name} is left out: {reason}" for name, reason in LEFT_OUT.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=__doc__,
        epilog=reasons,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--queries", nargs="+", choices=list(BY_NAME), metavar="NAME", help="only these"
    )
    parser.add_argument("--events", type=positive, default=100_000, help="default: %(default)s")
    parser.add_argument(
        "--kills", type=int, default=3, help="of each query, 0: none; default: %(default)s"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="that are timed, 0 for none, default: %(default)s"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of events and kills, default: %(default)s"
    )
    parser.add_argument("--json", type=Path, help="write all that was found there as well")
    parser.add_argument("--page", action="store_true", help=f"write the tables of {_PAGE.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
