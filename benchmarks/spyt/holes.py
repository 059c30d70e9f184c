"""Scenarios: what happens to rows when drivers die, answers get lost, tasks fail and rows are trimmed.

Every scenario is a function of a `Stage` and a `Contender` that ends with a `Verdict`. All are the same
for both sides, except for the moment of death between the two commits: see `Trial.die_between`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.spyt.trials import Contender, Stage, Trial, Verdict

KILLS = 10
"""Of `random_kills`, at most."""

_BATCH = 100
_SEED = 20


def random_kills(stage: Stage, contender: Contender) -> Verdict:
    """Copy with `max_rows_per_partition`; up to 10 SIGKILLs at moments that nobody chose."""
    return _killed_at_random(stage, contender)


def receiver(stage: Stage, contender: Contender) -> Verdict:
    """The same into a target sorted by where its rows come from: SPYT's idempotent receiver."""
    sink = {"sink": {"mode": "idempotent"}} if contender.is_ours else {}
    return _killed_at_random(stage, contender, is_sorted=True, **sink)


def _killed_at_random(stage: Stage, contender: Contender, **options: Any) -> Verdict:
    chance = random.Random(_SEED)
    with Trial(stage, contender, limit=_BATCH, **options) as trial:
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
        return _killed_between(trial)


def kill_dedup(stage: Stage, contender: Contender) -> Verdict:
    """`dropDuplicates`; the driver is killed between the two commits, then more rows come."""
    with Trial(stage, contender, "dedup") as trial:
        return _killed_between(trial)


def kill_two(stage: Stage, contender: Contender) -> Verdict:
    """Union of two queues; killed between the two commits, then more rows come to one of them."""
    with Trial(stage, contender, queues=2) as trial:
        return _killed_between(trial)


def _killed_between(trial: Trial) -> Verdict:
    """Kill the driver between the two commits of a second batch; then rows come to the first queue."""
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
        covered_by: the test that shows the same of our sink; empty where this scenario is the test.
        must_be: the verdict that keeps the promise of exactly-once.
    """

    run: Callable[[Stage, Contender], Verdict]
    covered_by: str = ""
    must_be: str = "exact"

    @property
    def name(self) -> str:
        """What it is called by."""
        return self.run.__name__


_KILLED = "crash/test_crash_points.py::test_query_killed_at_every_crash_point_ends_exactly_right"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(kill_copy, _KILLED),
        Scenario(
            receiver, "integration/test_batch_writer.py::test_tasks_write_a_job_into_a_sorted_table"
        ),
        Scenario(random_kills, _KILLED),
        Scenario(kill_dedup, _KILLED),
        Scenario(kill_two),
        Scenario(
            replay_agg,
            "integration/test_sink_replay.py"
            "::test_batch_without_its_commit_log_entry_is_replayed_without_effect",
        ),
        Scenario(
            lost_agg, "integration/test_sink_commit_faults.py::test_lossy_network_changes_nothing"
        ),
        Scenario(
            fail_once,
            "integration/test_sink_tasks.py"
            "::test_task_broken_down_in_the_middle_leaves_an_ordered_target_right",
        ),
        Scenario(foreach, _KILLED),
        Scenario(
            oversized,
            "integration/test_sink_oversized.py::test_oversized_batch_is_written_in_parts_on_request",
        ),
        # Rows that are gone cannot be written; what counts is that the query says so.
        Scenario(
            trimmed,
            "integration/test_source.py::test_trimmed_rows_stop_the_query",
            must_be="stopped",
        ),
        Scenario(order),
    )
}
