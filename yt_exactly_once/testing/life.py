"""One life of a driver, from its start to SIGKILL, with the jobs that it runs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from yt_exactly_once.testing.attacks import Attack, Manner
from yt_exactly_once.testing.child import ERROR, EVENT, SESSION_READY, Child
from yt_exactly_once.testing.driver import ENDED, TRIAL, Order, Setup
from yt_exactly_once.testing.gate import Gate
from yt_exactly_once.testing.steps import ONE_TASK_LEFT
from yt_exactly_once.testing.trial import Trial

PATIENCE_SECONDS = 180.0
"""Longest silence of a driver that is healthy."""

_HELD_UP_SECONDS = 40.0
"""Longest silence before a trial counts as held up by those that are held."""

_LOOK_SECONDS = 0.02
_MODULE = "yt_exactly_once.testing.driver"


class HeldUpError(Exception):
    """A trial does not continue: what is held beside it has a thread or a lock that it needs."""


class Life(contextlib.AbstractContextManager["Life"]):
    """A driver. Leaving the block kills it, and all that it has started.

    Args:
        folder: for its log and its temporary files.
        conf: of Spark.
        copies: see `Setup`.

    Attributes:
        gate: which its steps pass.
        errors: of the trials that have ended, by name; empty texts where a job has ended as it should.
        running: names of the trials that have not ended; some may be held.
    """

    def __init__(
        self, folder: Path, conf: Mapping[str, str], *, copies: tuple[str, str] | None = None
    ) -> None:
        self.errors: dict[str, str] = {}
        self.running: set[str] = set()
        self._is_ready = False
        self.gate = Gate()

        def argument(report: int) -> str:
            scratch = str(folder / "scratch")
            setup = Setup(scratch, self.gate.address, report, dict(conf), sys.path, copies)
            return json.dumps(asdict(setup))

        self._child = Child(_MODULE, argument, folder / "driver.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()
        self.gate.close()

    @property
    def pid(self) -> int:
        """Id of the driver's process, and of its process group."""
        return self._child.pid

    def start(
        self, trial: Trial, job: Path, *, batch: int = -1, attack: Attack | None = None
    ) -> None:
        """Start a job; its steps in that batch are counted, and no longer those of others."""
        self.gate.watch(trial, batch, attack)
        keeps_a_task = attack is not None and attack.step == ONE_TASK_LEFT
        order = Order((trial.name, str(trial.folder)), str(job), batch, keeps_a_task)
        self.running.add(trial.name)
        self._child.send(order.dump())

    def run(self, trial: Trial, job: Path, *, batch: int, attack: Attack | None = None) -> bool:
        """Run a job until the attack holds it, or it has ended; return whether the attack was carried out.

        Raises:
            HeldUpError: it does not continue, and other trials are held.
        """
        self.start(trial, job, batch=batch, attack=attack)
        kills = attack is not None and attack.manner in {Manner.KILL, Manner.KILL_LATER}
        arrived = self.gate.arrived
        self.wait(lambda: trial.name in self.errors or (kills and arrived.is_set()))
        if attack and arrived.is_set():
            time.sleep(attack.seconds)
        return arrived.is_set()

    def wait_until_ready(self) -> None:
        """Wait until Spark is up, and what is copied has been."""
        self.wait(lambda: self._is_ready)

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until something is so; raise `ChildFailedError` if the driver ends or is silent; see `run`."""
        heard, last = time.monotonic(), 0
        while not done():
            try:
                event = self._child.next_event(_LOOK_SECONDS)
            except EOFError:
                raise self._child.failure("The driver ended by itself") from None
            if event:
                self._note(event)
            if event or self.gate.asked != last:
                heard, last = time.monotonic(), self.gate.asked
            elif time.monotonic() - heard > _HELD_UP_SECONDS and self.gate.holds:
                raise HeldUpError
            elif time.monotonic() - heard > PATIENCE_SECONDS:
                raise self._child.failure(f"No step for {PATIENCE_SECONDS:g} s")

    def _note(self, event: Mapping[str, Any]) -> None:
        self._is_ready |= event[EVENT] == SESSION_READY
        if event[EVENT] == ENDED:
            self.errors[event[TRIAL]] = event[ERROR]
            self.running.discard(event[TRIAL])
