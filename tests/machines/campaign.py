"""One campaign: kill executors and workers under load, lose shuffle files, then compare every target."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.machines.history import History, read_history
from tests.machines.stage import BATCH_ROWS, FLOWS, Stage, open_stage
from yt_exactly_once.child import ChildFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXECUTOR, WORKER, FILES = "executor", "worker", "shuffle files"

_PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = (0.3, 3.0)
_LOSS_SECONDS = 1.5
_IDLE_SECONDS = 60.0
_ROWS = BATCH_ROWS
_EXECUTORS_AT_MOST = 4


@dataclass
class Result:
    """What a campaign found.

    Attributes:
        done: how often an executor or a worker was killed, and how often shuffle files were lost.
        batches: newest batch of each flow.
        failures: of queries, which the driver started again: the flow and the first line of the error.
        rows: in the queue.
        history: what Spark did about it.
        violations: what differs in the targets.
    """

    done: Counter[str] = field(default_factory=Counter)
    batches: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    history: History = field(default_factory=History)
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all of it for `json.dumps`."""
        return {**vars(self), "history": asdict(self.history)}


def run(
    folder: Path,
    *,
    executors: int,
    workers: int,
    losses: int,
    seed: int,
    say: Callable[[str], None] = print,
) -> Result:
    """Run one campaign.

    Args:
        folder: for all files; must be there.
        executors: how many to kill.
        workers: how many to kill, with their executors; each is replaced.
        losses: how often to lose shuffle files until Spark runs a stage again.
        seed: of the order and the moments.
        say: gets a line per blow.
    """
    chance = random.Random(seed)
    blows = [EXECUTOR] * executors + [WORKER] * workers + [FILES] * losses
    chance.shuffle(blows)
    with open_stage(folder) as stage:
        campaign = _Campaign(stage, chance)
        campaign.feed()
        campaign.await_true(lambda: set(campaign.result.batches) == set(FLOWS), "a batch per flow")
        for number, blow in enumerate(blows):
            before = dict(campaign.result.batches)
            campaign.feed()
            # Otherwise they only hit executors that have no task yet.
            campaign.await_true(partial(campaign.has_new_batches, before), "batch")
            campaign.listen(chance.uniform(*_PAUSE_SECONDS))
            campaign.strike(blow)
            say(f"{number + 1}: {blow}")
        return campaign.finish()


class _Campaign:
    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.result = Result()
        self._stage = stage
        self._chance = chance

    def feed(self) -> None:
        """Put a batch of rows into every partition."""
        for part in range(len(self._stage.queue.rows)):
            self._stage.queue.append(_ROWS, part)

    def has_new_batches(self, before: dict[str, int]) -> bool:
        """Tell whether a flow has come further."""
        return self.result.batches != before

    def listen(self, seconds: float) -> None:
        """Take what the driver tells for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            event = self._stage.driver.next_event(left)
            if event is None:
                return
            if event["event"] == "failed":
                self.result.failures[f"{event['flow']}: {event['error'].splitlines()[0]}"] += 1
            else:
                self.result.batches[event["flow"]] = event["batch"]

    def await_true(self, holds: Callable[[], bool], what: str) -> None:
        """Listen until something holds, as long as there are batches."""
        batches, deadline = dict(self.result.batches), time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            if self.has_new_batches(batches):
                batches, deadline = dict(self.result.batches), time.monotonic() + _PATIENCE_SECONDS
            if time.monotonic() > deadline:
                raise self._stage.driver.failure(
                    f"No {what}, and no batch for minutes: {self.result}"
                )
            self.listen(_LOOK_SECONDS)

    def strike(self, blow: str) -> None:
        """Do one of them."""
        machines = self._stage.machines
        if blow == EXECUTOR:
            self.await_true(
                lambda: machines.kill_executor(self._chance.randrange(_EXECUTORS_AT_MOST)),
                "executor",
            )
        elif blow == WORKER:
            machines.kill_worker()
            machines.start_worker()
        else:
            before = read_history(self._stage.history).stages_run_again
            self.await_true(lambda: self._stage_runs_again(before), "stage that runs again")
        self.result.done[blow] += 1

    def _stage_runs_again(self, before: int) -> bool:
        self.feed()
        self._stage.machines.lose_shuffle_files(_LOSS_SECONDS)
        return read_history(self._stage.history).stages_run_again > before

    def _await_release(self) -> None:
        """Give dynamic allocation the time to find executors without work."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while time.monotonic() < deadline:
            if read_history(self._stage.history).executors_released:
                return
            self.listen(_LOOK_SECONDS)

    def finish(self) -> Result:
        """Wait until the targets hold what they must, end the driver, and compare what is left."""
        try:
            self.await_true(lambda: not self._stage.wrong(), "target that is complete")
        except ChildFailedError:
            self.result.violations = self._stage.wrong()
        self._await_release()
        # What a task writes in the end is seen too.
        self._stage.driver.kill()
        self.result.violations = self.result.violations or self._stage.wrong()
        self.result.rows = len(self._stage.queue.all_rows())
        self.result.history = read_history(self._stage.history)
        return self.result
