"""Scenarios: what happens to rows when drivers die, answers get lost, tasks fail and rows are trimmed.

Every scenario is a function of a `Stage` and a `Contender` that ends with a `Verdict`. All are the same
for both sides, except for the moment of death between the two commits: see `Trial.die_between`.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.spyt.trials import Contender, Stage, Trial, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS = 15
"""Of `random_kills`, at most."""

_BATCH = 100
_SEED = 20


def random_kills(stage: Stage, contender: Contender) -> Verdict:
    """Copy with `max_rows_per_partition`; up to 15 SIGKILLs at moments that nobody chose."""
    chance = random.Random(_SEED)
    with Trial(stage, contender, limit=_BATCH) as trial:
        for _ in range(KILLS):
            while trial.queues[0].unread() < 20 * _BATCH:
                trial.append(20 * _BATCH)
            with trial.driver() as driver:
                driver.wait(lambda: driver.last("batch", "idle", "failed"))
                if driver.last("idle", "failed"):
                    break
                time.sleep(chance.uniform(0, 2))
        return trial.verdict(trial.run())


def kill_copy(stage: Stage, contender: Contender) -> Verdict:
    """Copy without a limit; the driver is killed between the two commits, then more rows come."""
    with Trial(stage, contender) as trial:
        trial.append(200)
        trial.run()
        trial.append(200)
        trial.die_between()
        trial.append(200)
        return trial.verdict(trial.run())


def kill_dedup(stage: Stage, contender: Contender) -> Verdict:
    """`dropDuplicates`; the driver is killed between the two commits, then more rows come."""
    with Trial(stage, contender, "dedup") as trial:
        trial.append(200)
        trial.run()
        trial.append(200)
        trial.die_between()
        trial.append(200)
        return trial.verdict(trial.run())


def kill_two(stage: Stage, contender: Contender) -> Verdict:
    """Union of two queues; killed between the two commits, then more rows come to one of them."""
    with Trial(stage, contender, queues=2) as trial:
        trial.append(200)
        trial.run()
        trial.append(200)
        trial.die_between()
        trial.queues[0].append(200)
        return trial.verdict(trial.run())


def replay_agg(stage: Stage, contender: Contender) -> Verdict:
    """Count per window; Spark's note of the last batch is gone, so the batch is replayed."""
    with Trial(stage, contender, "windows") as trial:
        trial.append(600)
        trial.run()
        trial.append(600)
        trial.run()
        trial.forget_last_batch()
        trial.append(600)
        return trial.verdict(trial.run())


def lost_agg(stage: Stage, contender: Contender) -> Verdict:
    """Count per window; a commit is applied and its answer is lost, then the driver is restarted."""
    with Trial(stage, contender, "windows") as trial:
        trial.append(600)
        trial.run()
        trial.append(600)
        stage.cluster.inject("lose_answer", "commit_transaction", writes_to="*")
        trial.run()
        trial.append(600)
        return trial.verdict(trial.run())


def fail_once(stage: Stage, contender: Contender) -> Verdict:
    """Copy through a Python function that fails once, after 5 000 of 8 000 rows; Spark retries the task."""
    with Trial(stage, contender, "fail_once", cores="local[2,4]", poison=5_000) as trial:
        trial.append(8_000)
        return trial.verdict(trial.run(marker=str(trial.folder / "failed")))


def foreach(stage: Stage, contender: Contender) -> Verdict:
    """Copy in a foreachBatch function; the driver is killed when it has returned."""
    with Trial(stage, contender, in_function=True) as trial:
        trial.append(200)
        trial.run()
        trial.append(200)
        with trial.driver(pause_after=trial.next_batch()) as driver:
            driver.wait(lambda: driver.last("paused"))
        return trial.verdict(trial.run())


def oversized(stage: Stage, contender: Contender) -> Verdict:
    """Copy of 120 000 rows in one batch into a target of one tablet, over the server's limit of 100 000."""
    sink = {"sink": {"split_oversized": True}} if contender.is_ours else {}
    with Trial(stage, contender, **sink) as trial:
        trial.append(120_000)
        trial.run()
        return trial.verdict(trial.run())


def trimmed(stage: Stage, contender: Contender) -> Verdict:
    """Copy; while the query is down, 200 rows that it has not read are trimmed."""
    with Trial(stage, contender) as trial:
        trial.append(200)
        trial.run()
        trial.append(400)
        stage.client.trim_rows(trial.queues[0].path, 0, 400)
        return trial.verdict(trial.run())


def order(stage: Stage, contender: Contender) -> Verdict:
    """Copy of one partition whose rows lie in two chunks, so that a batch takes two pulls."""
    with Trial(stage, contender) as trial:
        trial.append(200)
        trial.queues[0].flush()
        trial.append(200)
        return trial.verdict(trial.run())


@dataclass(frozen=True)
class Scenario:
    """One way to break a query.

    Attributes:
        run: breaks it.
        must_be: the verdict that keeps the promise of exactly-once.
    """

    run: Callable[[Stage, Contender], Verdict]
    must_be: str = "exact"

    @property
    def name(self) -> str:
        """What it is called by."""
        return self.run.__name__

    @property
    def text(self) -> str:
        """What happens in it."""
        return (self.run.__doc__ or "").strip()


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(kill_copy),
        Scenario(random_kills),
        Scenario(kill_dedup),
        Scenario(kill_two),
        Scenario(replay_agg),
        Scenario(lost_agg),
        Scenario(fail_once),
        Scenario(foreach),
        Scenario(oversized),
        # Rows that are gone cannot be written; what counts is that the query says so.
        Scenario(trimmed, must_be="stopped"),
        Scenario(order),
    )
}
