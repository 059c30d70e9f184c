"""`python -m tests.chaos`: the command line of the chaos runner."""

import argparse
import json
import logging
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from yt.logger import LOGGER

from tests.chaos.campaign import RunOptions, run
from tests.chaos.plan import Rates
from tests.chaos.report import say, summary, to_json
from tests.chaos.round import Verdict
from yt_exactly_once.config import DeliveryMode

ALL = "all"


def main(arguments: list[str] | None = None) -> int:
    """Run chaos; return 1 when a promise was broken."""
    options = _parse(arguments)
    # Whoever ends us ends the processes we have stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # What the client warns of is meant.
    LOGGER.setLevel(logging.CRITICAL)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    modes = tuple(DeliveryMode) if options.mode == ALL else (DeliveryMode(options.mode),)

    def save(verdicts: Sequence[Verdict]) -> None:
        if options.json is not None:
            report = to_json(seed, verdicts)
            options.json.write_text(json.dumps(report, indent=2, default=str) + "\n")

    verdicts = run(
        RunOptions(
            minutes=options.minutes,
            seed=seed,
            modes=modes,
            rates=Rates(options.kills_per_minute, options.stops_per_minute),
            round_seconds=options.round_seconds,
            only_round=options.round,
            parent=options.folder,
            keep=options.keep,
            backend=options.backend,
            by_tasks=options.by_tasks,
        ),
        save,
    )
    say("\n" + summary(to_json(seed, verdicts)))
    violated = [verdict for verdict in verdicts if verdict.violations]
    for verdict in violated:
        say(
            f"\nVIOLATED in round {verdict.plan.seed}; replay it with: python -m tests.chaos "
            f"--seed {seed} --mode {verdict.plan.mode.value} --round {verdict.plan.number}"
        )
        for violation in verdict.violations:
            say(f"  {violation}")
    if not violated:
        say(f"\nEvery promise was kept; seed {seed}")
    return int(bool(violated))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    rates = Rates()
    parser.add_argument("--minutes", type=float, default=3.0, help="for all modes together")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--mode", choices=[*DeliveryMode, ALL], default=ALL)
    parser.add_argument("--json", type=Path, help="file for the report, written after every round")
    parser.add_argument("--kills-per-minute", type=float, default=rates.kills)
    parser.add_argument("--stops-per-minute", type=float, default=rates.stops)
    parser.add_argument(
        "--round-seconds", type=float, default=180.0, help="how long the faults of a round last"
    )
    parser.add_argument("--round", type=int, help="run this round of each mode and no other")
    parser.add_argument("--folder", type=Path, help="where the working folder is made")
    parser.add_argument("--keep", action="store_true", help="keep the working folder in any case")
    parser.add_argument(
        "--backend", choices=["http", "rpc"], default="http", help="protocol of sources and sinks"
    )
    parser.add_argument(
        "--by-tasks",
        action="store_true",
        help="let tasks send the rows of transactional mode wherever they may, also of small batches",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
