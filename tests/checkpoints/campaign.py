"""One campaign: kill at random, look at the logs of the checkpoints after each kill, compare in the end.

What it has found is in its folder after each kill, so that a campaign that was ended may go on there.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.checkpoints.driver import STORES
from tests.checkpoints.judge import batches, damages, wrong_states
from tests.checkpoints.stage import open_stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.checkpoints.stage import Driver, Stage

_WEIGHTS = {"driver": 1, "gateway": 4, "proxy": 4}
"""How often each dies: a new driver costs a JVM."""

_LONGEST_LIFE_SECONDS = 2.0
_LONGEST_ABSENCE_SECONDS = 1.0
_NEWEST = 3
_RESULT = "result.json"


@dataclass
class Result:
    """What a campaign found.

    Attributes:
        kills: of each kind of process.
        batches: that each query has logged as done.
        failures: of queries, which the driver started again.
        rows: in the queue.
        seconds: from the first batch to the verdict.
        violations: broken promises, in words.
    """

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WEIGHTS, 0))
    batches: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return what a campaign in a folder has found so far."""
        path = folder / _RESULT
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def save(self, folder: Path) -> None:
        """Leave it for a campaign that goes on."""
        path = folder / _RESULT
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=2))
        fresh.replace(path)


def run(folder: Path, kills: int, seed: int, *, say: Any = print) -> Result:
    """Run one campaign, or go on with the one that is in the folder.

    Args:
        folder: for all files; must be there.
        kills: how many, those of an earlier run in the folder included.
        seed: of victims and moments; a campaign that goes on has others.
        say: gets a line per kill.
    """
    result = Result.load(folder)
    done = sum(result.kills.values())
    chance = random.Random(f"{seed}-{done}")
    with open_stage(folder) as stage, ExitStack() as lives:
        driver = lives.enter_context(stage.driver())
        driver.await_batches()
        started = time.monotonic() - result.seconds
        for number in range(done, kills):
            stage.feed()
            driver.listen(chance.uniform(0.0, _LONGEST_LIFE_SECONDS))
            victim = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            result.kills[victim] += 1
            if victim == "driver":
                lives.close()
                _note(driver, result)
                result.violations += damages(stage, newest=_NEWEST)
                driver = lives.enter_context(stage.driver())
                driver.await_batches()
            else:
                _kill(stage, driver, victim, chance)
            result.violations += damages(stage, newest=_NEWEST)
            result.seconds = round(time.monotonic() - started, 1)
            result.save(folder)
            say(f"{number + 1}: {victim} after {result.seconds:.0f} s, {driver.batches}")
        result.violations += stage.await_results(driver)
        result.violations += wrong_states(stage, driver)
        lives.close()
        _note(driver, result)
        result.violations += damages(stage)
        result.batches = {name: batches(stage, name) for name in STORES}
        result.rows = len(stage.queue.all_rows())
        result.seconds = round(time.monotonic() - started, 1)
    result.save(folder)
    return result


def _kill(stage: Stage, driver: Driver, victim: str, chance: random.Random) -> None:
    """Kill the gateway or a proxy, and start it again after a while."""
    absence = chance.uniform(0.0, _LONGEST_ABSENCE_SECONDS)
    if victim == "gateway":
        stage.gateway.kill()
        driver.listen(absence)
        stage.gateway.start()
    else:
        proxy = chance.randrange(len(stage.cluster.proxy_urls))
        stage.cluster.kill_proxy(proxy)
        driver.listen(absence)
        stage.cluster.restart_proxy(proxy)


def _note(driver: Driver, result: Result) -> None:
    result.failures += [f"{failed['query']}: {failed['error']}" for failed in driver.failures]
