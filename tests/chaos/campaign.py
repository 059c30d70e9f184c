"""A run: rounds of every mode asked for, one after the other, on one embedded cluster."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.drivers import Fleet
from tests.chaos.network import Network
from tests.chaos.plan import Rates, RoundPlan
from tests.chaos.report import Progress, say
from tests.chaos.round import Arena, Round, Verdict
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.compat.java import require_java

PROXIES = 3


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What to run.

    Attributes:
        minutes: for the whole run, without the last drain of a mode.
        seed: of everything that is left to chance.
        modes: one after the other, in equal shares of the time.
        round_seconds: how long the faults of a round last.
        only_round: run this round of each mode and no other; `None` runs all.
        parent: where the working folder is made; `None` is the system's place.
        keep: keep the working folder of a good run too.
        by_tasks: see `DriverOptions`.
    """

    minutes: float
    seed: int
    modes: tuple[DeliveryMode, ...]
    rates: Rates = field(default_factory=Rates)
    round_seconds: float = 180.0
    only_round: int | None = None
    parent: Path | None = None
    keep: bool = False
    backend: str = "http"
    by_tasks: bool = False


def run(options: RunOptions, save: Callable[[Sequence[Verdict]], None]) -> list[Verdict]:
    """Run all rounds and return their verdicts.

    Args:
        save: given the verdicts so far after every round: an hour is long, and may end early.
    """
    require_java()
    folder = Path(tempfile.mkdtemp(prefix="yt-chaos-", dir=options.parent))
    say(f"Seed {options.seed}; working folder {folder}")
    verdicts: list[Verdict] = []
    try:
        _run_in(folder, options, verdicts, save)
    finally:
        bad = [verdict for verdict in verdicts if verdict.violations]
        if bad or not verdicts or options.keep:
            say(f"Kept for inspection: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return verdicts


def _run_in(
    folder: Path,
    options: RunOptions,
    verdicts: list[Verdict],
    save: Callable[[Sequence[Verdict]], None],
) -> None:
    fleet = Fleet(folder / "drivers", backend=options.backend, by_tasks=options.by_tasks)
    with LocalCluster(folder / "cluster", proxies=PROXIES) as cluster:
        network = Network(cluster, folder / "faults.jsonl")
        try:
            arena = Arena(cluster, network, fleet, folder, Progress(), options.keep)
            for mode in options.modes:
                for verdict in _rounds(arena, mode, options):
                    verdicts.append(verdict)
                    save(verdicts)
        finally:
            fleet.close()
            network.close()


def _rounds(arena: Arena, mode: DeliveryMode, options: RunOptions) -> Iterator[Verdict]:
    began, share = time.monotonic(), options.minutes * 60 / len(options.modes)
    number = options.only_round or 0
    while (left := began + share - time.monotonic()) > 0:
        plan = RoundPlan.draw(options.seed, mode, number, options.rates)
        # Two rounds at least, or one that takes all that is left.
        seconds = left if left < 1.5 * options.round_seconds else options.round_seconds
        say(
            f"Round {plan.seed}: {', '.join(query.name for query in plan.queries)}; "
            f"{plan.partitions} partitions, {plan.rows_per_partition} rows each per batch"
        )
        verdict = Round(arena, plan, seconds).run()
        numbers = verdict.tally.numbers
        say(
            f"  {'VIOLATED' if verdict.violations else 'kept'}: {verdict.tally.faults.total()} faults, "
            f"{numbers['rows_in']} rows in, {numbers['rows_out']} out, {numbers['lost']} lost, "
            f"{numbers['duplicated']} duplicated, {numbers['wrong']} wrong, "
            f"{numbers['partial_batches_seen']} partial batches seen"
        )
        for violation in verdict.violations:
            say(f"  {violation}")
        yield verdict
        number += 1
        if options.only_round is not None:
            return
