"""Run the drivers in turns, and print what each part of a start took."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import positive
from benchmarks.processes import cpu_seconds
from benchmarks.spyt import work
from benchmarks.start.job import PARTITIONS, ROWS
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.child import kill_session, session_members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yt.wrapper import YtClient

Times = dict[str, float]

_ROOT = Path(__file__).parents[2]
_JOB = Path(__file__).with_name("job.py")
_CORES = 2
_SHOWN = 3_000

MEASURES: dict[str, Callable[[Times], float]] = {
    "the process, until there is a session": lambda at: at["session"] - at["began"],
    "`register_source`, `load()` and the sink": lambda at: at["loaded"] - at["session"],
    "`start()`": lambda at: at["running"] - at["loaded"],
    "until the function is called": lambda at: at["started"] - at["running"],
    "the function, until the commit": lambda at: at["committed"] - at["started"],
    "**from `start()` to the commit**": lambda at: at["committed"] - at["loaded"],
    "**from the session to the commit**": lambda at: at["committed"] - at["session"],
    "CPU of all processes, from the session on": lambda at: at["cpu"],
    "CPU of the cluster": lambda at: at["cluster"],
}


LIVES = ("a new query", "the same query, started again")


@dataclass(frozen=True)
class Contender:
    """Who starts.

    Attributes:
        name: as the table has it.
        kind: which query, see `job.KINDS`.
        root: checkout whose package it imports.
    """

    name: str
    kind: str
    root: Path = _ROOT


OURS = Contender("queue to table", "queue")
FLOOR = [Contender("plain Python source", "plain"), Contender("`rate`", "rate")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in the same rounds")
    parser.add_argument("--no-floor", action="store_true", help="leave Spark's own queries out")
    parser.add_argument("--new-only", action="store_true", help="do not start a query again")
    parser.add_argument("--json", type=Path, help="write what each driver said here as well")
    options = parser.parse_args(arguments)
    contenders = [OURS, *([] if options.no_floor else FLOOR)]
    if options.beside is not None:
        contenders.append(Contender("other checkout", "queue", options.beside.resolve()))
    lives = LIVES[: 1 if options.new_only else None]
    starts = measure(contenders, options.rounds, lives)
    if options.json is not None:
        options.json.write_text(json.dumps(starts, indent=1) + "\n")
    print("\n\n".join(table(starts, contenders, life) for life in lives))
    return 0


def measure(
    contenders: Sequence[Contender], rounds: int, lives: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what the drivers said, of a new query each and of the same query started again."""
    chance = random.Random(1)
    starts = []
    for root in {contender.root for contender in contenders}:
        # As pip does. Where Python is told to write no bytecode, each process would compile the checkout.
        compileall.compile_dir(root / "yt_exactly_once", quiet=1)
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as scratch:
        client = cluster.client()
        queue = work.Queue.create(client, PARTITIONS)
        # A batch for either life of a query.
        queue.append(2 * ROWS)
        # The first round fills the caches of the machine, and does not count.
        for number in range(rounds + 1):
            for contender in chance.sample(contenders, len(contenders)):
                spec = _query(client, queue, contender.kind, Path(scratch))
                for life in lives:
                    at = _start(
                        contender, {**spec, "proxy": cluster.proxy_urls[0]}, cluster.proxy_pids
                    )
                    if number:
                        starts.append({"contender": contender.name, "life": life, "at": at})
                        print(json.dumps(starts[-1]), file=sys.stderr, flush=True)
    return starts


def _query(client: YtClient, queue: work.Queue, kind: str, scratch: Path) -> dict[str, Any]:
    """Return the specification of a new query, with a table of its own to write to."""
    name = uuid.uuid4().hex
    target = f"//home/start/{name}/target"
    consumer = None
    if kind == "queue":
        work.create_table(client, target, work.QUEUE_TYPES, tablet_count=PARTITIONS)
        consumer = queue.for_another().consumer
    return {
        "kind": kind,
        "queue": queue.path,
        "consumer": consumer,
        "target": target,
        "checkpoint": str(scratch / name),
        "conf": {
            "spark.master": f"local[{_CORES}]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(_CORES),
        },
    }


def _start(contender: Contender, spec: dict[str, Any], proxies: list[int]) -> Times:
    """Start a driver, kill it after its first batch, and return when it said what."""
    at = {"began": time.time()}
    cluster = cpu_seconds(proxies)
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, "-P", str(_JOB), json.dumps(spec)],
            env={**os.environ, "PYTHONPATH": str(contender.root), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            # Python workers of Spark import from the folder that the driver runs in, first of all.
            cwd=Path(spec["checkpoint"]).parent,
        ) as driver,
    ):
        assert driver.stdout is not None
        try:
            for line in driver.stdout:
                if not line.startswith('{"event"'):
                    continue
                said = json.loads(line)
                at.setdefault(said["event"], said["at"])
                if said["event"] == "session":
                    at["cpu"] = -cpu_seconds(session_members(driver.pid))
                if said["event"] == "committed":
                    break
            else:
                log.seek(0)
                raise RuntimeError(f"{contender.name} did not commit:\n{log.read()[-_SHOWN:]}")
            at["cpu"] += cpu_seconds(session_members(driver.pid))
            at["cluster"] = cpu_seconds(proxies) - cluster
        finally:
            kill_session(driver)
    return at


def table(starts: list[dict[str, Any]], contenders: Sequence[Contender], life: str) -> str:
    """Return medians and quartiles as Markdown; ratios are taken within a round."""
    lines = [f"| {life}, seconds | {' | '.join(who.name for who in contenders)} |"]
    lines.append("|---" * (len(contenders) + 1) + "|")
    for name, seconds in MEASURES.items():
        values = {
            who.name: [
                seconds(start["at"])
                for start in starts
                if (start["contender"], start["life"]) == (who.name, life)
            ]
            for who in contenders
        }
        cells = [_summary(each) for each in values.values()]
        if contenders[-1].root != _ROOT:
            pairs = zip(values[OURS.name], values[contenders[-1].name], strict=True)
            cells[0] += f"; ratio {_summary([one / other for one, other in pairs])}"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _summary(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
