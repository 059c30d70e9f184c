"""One campaign: kill processes under load, lose shuffle files, then compare every target, log and state."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.machines.history import History, read_history
from tests.machines.judge import damages, wrong_states
from tests.machines.stage import FLOWS, Driver, Flow, Stage, open_stage
from yt_exactly_once.testing.child import ChildFailedError

EXECUTOR, WORKER, FILES = "executor", "worker", "shuffle files"
DRIVER, GATEWAY, PROXY = "driver", "gateway", "proxy"

USUAL = {EXECUTOR: 10, WORKER: 2, FILES: 2, DRIVER: 4, GATEWAY: 16, PROXY: 16}
"""How often each is hit: a new driver costs a JVM, and its executors."""

SHORT = {EXECUTOR: 10, WORKER: 1, FILES: 1, DRIVER: 3, PROXY: 1}
"""Of queries whose tasks send the rows: a few of each."""

_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = (0.3, 3.0)
_LONGEST_ABSENCE_SECONDS = 1.0
_LOSS_SECONDS = 1.5
_IDLE_SECONDS = 60.0
_EXECUTORS_AT_MOST = 4
_NEWEST = 3
_ROUNDS = 300


@dataclass
class Result:
    """What a campaign found.

    Attributes:
        done: how often each kind of process was killed, and how often shuffle files were lost.
        batches: newest batch of each flow.
        failures: of queries, which the driver started again: the flow and the first line of the error.
        senders: see `Stage.senders`.
        violations: what differs in the targets, the logs and the state.
    """

    done: Counter[str] = field(default_factory=Counter)
    batches: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    senders: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    history: History = field(default_factory=History)
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "history": asdict(self.history)}


def run(
    folder: Path,
    blows: dict[str, int],
    seed: int,
    flows: Mapping[str, Flow] = FLOWS,
    *,
    say: Callable[[str], None] = print,
) -> Result:
    """Run one campaign.

    Args:
        folder: for all files; must be there.
        blows: how often each of them; a killed worker takes its executors with it.
        say: gets a line per blow.
    """
    chance = random.Random(seed)
    order = list(Counter(blows).elements())
    chance.shuffle(order)
    with open_stage(folder, flows) as stage, _Campaign(stage, chance) as campaign:
        for number, blow in enumerate(order):
            campaign.strike(blow)
            say(f"{number + 1}: {blow}, {campaign.driver.batches}")
        return campaign.finish()


class _Campaign:
    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.result = Result()
        self._stage = stage
        self._chance = chance
        self._lives = ExitStack()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_error: object) -> None:
        self._lives.close()

    def _begin(self) -> None:
        self.driver: Driver = self._lives.enter_context(self._stage.driver())
        self._stage.feed()
        self.driver.await_batches()

    def _end(self) -> None:
        self._lives.close()
        for flow, error in self.driver.failures:
            self.result.failures[f"{flow}: {error.splitlines()[0]}"] += 1
        self.result.batches |= self.driver.batches

    def strike(self, blow: str) -> None:
        """Do it in the middle of a batch, and look at the logs of the checkpoints."""
        stage, driver, chance = self._stage, self.driver, self._chance
        before = dict(driver.batches)
        stage.feed()
        # Otherwise they only hit executors that have no task yet.
        driver.await_true(lambda: driver.batches != before, "batch")
        driver.listen(chance.uniform(*_PAUSE_SECONDS))
        match blow:
            case "executor":
                number = chance.randrange(_EXECUTORS_AT_MOST)
                driver.await_true(lambda: stage.machines.kill_executor(number), "executor")
            case "worker":
                stage.machines.kill_worker()
                stage.machines.start_worker()
            case "driver":
                self._end()
                self.result.violations += damages(stage, newest=_NEWEST)
                self._begin()
            case "gateway":
                self._take_away(stage.gateway.kill, stage.gateway.start)
            case "proxy":
                number = chance.randrange(len(stage.cluster.proxy_urls))
                self._take_away(
                    partial(stage.cluster.kill_proxy, number),
                    partial(stage.cluster.restart_proxy, number),
                )
            case _:
                again = read_history(stage.history).stages_run_again
                driver.await_true(lambda: self._stage_runs_again(again), "stage that runs again")
        self.result.violations += damages(stage, newest=_NEWEST)
        self.result.done[blow] += 1

    def _take_away(self, kill: Callable[[], None], start: Callable[[], None]) -> None:
        """Kill something, and start it again after a while."""
        kill()
        self.driver.listen(self._chance.uniform(0.0, _LONGEST_ABSENCE_SECONDS))
        start()

    def _stage_runs_again(self, before: int) -> bool:
        self._stage.feed()
        self._stage.machines.lose_shuffle_files(_LOSS_SECONDS)
        return read_history(self._stage.history).stages_run_again > before

    def _await_release(self) -> None:
        """Give dynamic allocation the time to find executors without work."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while time.monotonic() < deadline:
            if read_history(self._stage.history).executors_released:
                return
            self.driver.listen(_LOOK_SECONDS)

    def finish(self) -> Result:
        """Wait until the targets hold what they must, end the driver, and compare what is left."""
        stage, result = self._stage, self.result
        try:
            self.driver.await_true(lambda: not stage.wrong(), "target that is complete")
            result.violations += wrong_states(stage, self.driver)
        except ChildFailedError as error:
            result.violations.append(str(error))
        self._await_release()
        # What a task writes in the end is seen too.
        self._end()
        result.violations += stage.wrong() + damages(stage)
        result.rows = len(stage.queue.all_rows())
        result.senders = stage.senders()
        result.history = read_history(stage.history)
        return result


def duel(folder: Path, flows: Mapping[str, Flow] = FLOWS) -> tuple[list[str], list[str]]:
    """Start a second driver while the first one runs, and feed both until one has lost each query.

    Args:
        folder: for all files; must be there.

    Returns:
        The flows that a driver has lost, and what is wrong in the end.
    """
    with open_stage(folder, flows) as stage, stage.driver(restarts=False) as first:
        stage.feed()
        first.await_batches()
        with stage.driver(restarts=False) as second:
            lost: list[str] = []
            for _ in range(_ROUNDS):
                stage.feed(60)
                for driver in (first, second):
                    driver.listen(1.0)
                lost = [flow for driver in (first, second) for flow, _ in driver.failures]
                if set(lost) == set(flows):
                    break
            # Whoever is left takes the rest of the queue.
            first.await_true(lambda: second.listen(_LOOK_SECONDS) or not stage.wrong(), "end")
            return lost, stage.wrong() + damages(stage)
