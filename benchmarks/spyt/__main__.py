"""Compare with SPYT: the same work and the same faults on SPYT's unmodified jars and on our sink.

The first run installs SPYT and the PySpark that it runs on into the cache folder. Results go to one JSON
file per command. `docs/explanation/compared-with-spyt.md` says what the runs of 2026-11-22 and 23 found.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.freshness import percentiles
from benchmarks.modes.machine import stamp
from benchmarks.spyt import environments
from benchmarks.spyt.holes import SCENARIOS
from benchmarks.spyt.latency import wait_for_rows
from benchmarks.spyt.speed import SIZES, measure
from benchmarks.spyt.trials import ALL_CONTENDERS, CONTENDERS, SAME_SPARK, Contender, Stage
from yt_exactly_once.local import LocalCluster

_FOLDER = Path("benchmark-results") / "spyt"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    LOGGER.setLevel(logging.CRITICAL)
    # Drivers have sessions of their own; they are killed where blocks are left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.folder.mkdir(parents=True, exist_ok=True)
    usual = CONTENDERS if options.command == "holes" else SAME_SPARK
    contenders = [
        contender
        for contender in (ALL_CONTENDERS if options.contenders else usual)
        if options.side in (None, "ours" if contender.is_ours else "spyt")
        and contender.name in (options.contenders or [contender.name])
    ]
    if not environments.has_rpc_driver():
        print(f"Ours over RPC is left out: {environments.DRIVER} is not installed")
        contenders = [who for who in contenders if not (who.is_ours and who.backend == "rpc")]
    if options.command == "holes":
        return _holes(options, contenders)
    (_speed if options.command == "speed" else _latency)(options, contenders)
    return 0


@contextmanager
def _stage(options: argparse.Namespace, *, hurried: bool = False) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="spyt-") as folder, LocalCluster() as cluster:
        yield Stage(cluster, options.cache, Path(folder), hurried=hurried)


def _latency(options: argparse.Namespace, contenders: Sequence[Contender]) -> None:
    """Measure one after the other."""
    with _stage(options) as stage:
        waited = {
            who.name: wait_for_rows(stage, who, options.seconds, options.pause / 1000)
            for who in contenders
        }
    (options.folder / "latency.json").write_text(json.dumps({"run": stamp(), "ms": waited}) + "\n")
    print("\n".join(percentiles(["query"], (([name], some) for name, some in waited.items()))))


def _speed(options: argparse.Namespace, contenders: Sequence[Contender]) -> None:
    """Measure turn by turn."""
    with _stage(options) as stage:
        versions = {who.name: stage.environment(who).versions for who in contenders}
        turns: list[dict[str, Any]] = []
        expected = len(contenders) * len(options.rows) * options.rounds
        result = {"run": stamp(), "versions": versions, "shape": options.shape, "turns": turns}

        def keep(turn: dict[str, Any]) -> None:
            turns.append(turn)
            (options.folder / "speed.json").write_text(json.dumps(result, indent=1) + "\n")
            median = statistics.median(turn["batches"])
            print(
                f"{len(turns):>3} of {expected}: {turn['contender']:<19} {turn['rows']:>7} rows, round"
                f" {turn['round']}: start {turn['start']:5.1f} s, first {turn['first']:5.2f} s, then"
                f" {median:5.2f} s; CPU {turn['spark']:5.2f} s Spark, {turn['cluster']:5.2f} s cluster",
                flush=True,
            )

        measure(stage, contenders, options.rows, options.rounds, keep, options.shape)


def _holes(options: argparse.Namespace, contenders: Sequence[Contender]) -> int:
    """Run the scenarios; return 1 when ours broke its promise."""
    kept: list[dict[str, Any]] = []
    broken = 0
    with _stage(options, hurried=True) as stage:
        for name in options.only or SCENARIOS:
            for contender in contenders:
                scenario, began = SCENARIOS[name], time.monotonic()
                verdict = scenario.run(stage, contender)
                seconds = time.monotonic() - began
                kept.append(
                    {
                        "scenario": name,
                        "contender": contender.name,
                        "seconds": round(seconds, 1),
                        "versions": stage.environment(contender).versions,
                        "run": stamp(),
                        **asdict(verdict),
                    }
                )
                (options.folder / "holes.json").write_text(json.dumps(kept, indent=1) + "\n")
                broken += contender.is_ours and verdict.word != scenario.must_be
                found = verdict.difference
                print(
                    f"{name:<13} {contender.name:<19} {verdict.word:<8} of {found.rows:>6}: lost"
                    f" {found.lost}, doubled {found.doubled}, wrong {found.wrong}, disordered"
                    f" {found.disordered}; {verdict.drivers} drivers, {seconds:.0f} s {verdict.error}",
                    flush=True,
                )
    return int(broken > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spyt",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=environments.DEFAULT_CACHE,
        help="where SPYT is installed, default: %(default)s",
    )
    parser.add_argument(
        "--folder", type=Path, default=_FOLDER, help="for results, default: %(default)s"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    texts = {
        "holes": "break both, and count rows",
        "speed": "measure both, in turns",
        "latency": "from `insert_rows` into a queue until a row is in the target",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--side", choices=["ours", "spyt"], help="only this side")
        command.add_argument(
            "--contenders",
            nargs="+",
            choices=[contender.name for contender in ALL_CONTENDERS],
            metavar="NAME",
            help="only these; other versions of SPYT take part where they are named. All of them: "
            + ", ".join(contender.name for contender in ALL_CONTENDERS),
        )
        if name == "speed":
            command.add_argument("--rounds", type=positive, default=3)
            command.add_argument(
                "--rows", type=int, nargs="+", choices=SIZES, default=list(SIZES), help="of a batch"
            )
            command.add_argument(
                "--shape",
                choices=["copy", "composite"],
                default="copy",
                help="composite: rows with a struct and a list",
            )
        elif name == "latency":
            command.add_argument("--seconds", type=positive, default=600, help="of each side")
            command.add_argument("--pause", type=positive, default=50, help="ms from row to row")
        else:
            command.add_argument("--only", nargs="+", choices=list(SCENARIOS), metavar="NAME")
    return parser


if __name__ == "__main__":
    sys.exit(main())
