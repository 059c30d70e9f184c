"""A round from its first row to its verdict: set up, let chaos have its time, drain, compare."""

from __future__ import annotations

import json
import queue
import sched
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from yt.wrapper import YtClient

from tests.chaos.drivers import Driver, Fleet
from tests.chaos.feeder import Feeder
from tests.chaos.incidents import Incidents
from tests.chaos.messages import (
    DRAINED,
    ERROR,
    EVENT,
    NOT_DRAINED,
    QUERY,
    QUERY_FAILED,
    SESSION_READY,
)
from tests.chaos.network import Network
from tests.chaos.oracle import Findings, Oracle
from tests.chaos.plan import RoundPlan
from tests.chaos.stage import Stage
from tests.chaos.tally import Tally
from tests.chaos.watcher import Watcher
from tests.chaos.weather import LONGEST_HOLD
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import Event

DRAIN_SECONDS = 600.0
"""A round whose queries have not taken the rest of the queue by then is stuck."""

_RESTART_SECONDS = 1.0
_TURN_SECONDS = 0.5


@dataclass
class Arena:
    """What rounds share.

    Attributes:
        progress: called now and then with the tally of the running round.
        keep: leave tables and files of good rounds behind too.
    """

    cluster: LocalCluster
    network: Network
    fleet: Fleet
    folder: Path
    progress: Callable[[Round], None]
    keep: bool

    def client(self, *, repeats: bool = True) -> YtClient:
        """Return a client for one thread of the runner.

        Args:
            repeats: outlive the death of a proxy; otherwise no request is ever repeated.
        """
        retries = {
            "enable": repeats,
            "count": 80,
            "backoff": {"policy": "constant_time", "constant_time": 250},
        }
        return self.cluster.client(proxy={"retries": retries}, dynamic_table_retries=retries)


@dataclass
class Verdict:
    """How a round ended.

    Attributes:
        findings: per query.
        violations: what breaks the promise of the mode, in words; empty when it was kept.
        folder: what the round has left on disk; empty when nothing.
    """

    plan: RoundPlan
    tally: Tally
    findings: dict[str, Findings] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    folder: str = ""


class Round:
    """Runs one round."""

    def __init__(self, arena: Arena, plan: RoundPlan, seconds: float) -> None:
        self.plan = plan
        self.tally = Tally()
        self._arena = arena
        self._seconds = seconds
        self._folder = arena.folder / f"{plan.mode.value}-{plan.number}"
        self._client = arena.client()
        self._stage = Stage.build(self._client, plan, self._folder)
        self._watcher = Watcher(self._stage, arena.client(repeats=False))
        self._feeder = Feeder(
            self._stage, arena.client(repeats=False), arena.client(), self._watcher.slowest
        )
        began = time.monotonic()
        self._agenda = sched.scheduler(lambda: time.monotonic() - began)
        self._incidents = Incidents(
            self._stage,
            arena.fleet,
            arena.network,
            self._client,
            arena.cluster.proxy_urls[0],
            self._agenda,
        )
        self._events = (self._folder / "events.jsonl").open("w", buffering=1)
        self._drained = False
        self._drain_error = ""

    @property
    def faults(self) -> int:
        return self._arena.network.faults.total() + self._incidents.counts.total()

    @property
    def incidents(self) -> Incidents:
        """What has befallen processes so far."""
        return self._incidents

    @property
    def elapsed(self) -> float:
        return self._agenda.timefunc()

    def run(self) -> Verdict:
        """Run it to its verdict."""
        network = self._arena.network
        network.faults.clear()
        network.note("round", seed=self.plan.seed)
        started = self._arena.fleet.started
        self._incidents.begin()
        self._feeder.start()
        self._watcher.start()
        self._suffer()
        network.change(None)
        cleared = time.monotonic()
        self._feeder.finish()
        self._drain()
        # A request that was held back may still land.
        time.sleep(max(0.0, cleared + LONGEST_HOLD - time.monotonic()))
        self._events.close()
        verdict = self._judge()
        numbers = self.tally.numbers
        numbers["rounds"] = 1
        numbers["seconds"] = round(self._agenda.timefunc())
        numbers["kills"], numbers["stops"] = self._incidents.kills, self._incidents.stops
        numbers["drivers_started"] = self._arena.fleet.started - started
        self.tally.faults.update(network.faults + self._incidents.counts)
        if verdict.violations:
            verdict.folder = str(self._folder)
        elif not self._arena.keep:
            self._clean_up()
        return verdict

    def _suffer(self) -> None:
        for incident in self.plan.incidents:
            if incident.at < self._seconds:
                self._agenda.enterabs(incident.at, 0, partial(self._incidents.happen, incident))
        moment = 0.0
        for weather in self.plan.weathers:
            if moment >= self._seconds:
                break
            self._agenda.enterabs(moment, 0, partial(self._arena.network.change, weather))
            moment += weather.seconds
        self._listen(lambda: self._agenda.timefunc() >= self._seconds)

    def _drain(self) -> None:
        driver = self._incidents.settle()
        driver.drain()
        deadline = self._agenda.timefunc() + DRAIN_SECONDS
        self._listen(lambda: self._drained or self._agenda.timefunc() > deadline, draining=True)
        self.tally.numbers["stuck"] = int(not self._drained)
        if self._drained:
            self._arena.fleet.rest()
        else:
            # One that hangs must not be given to the next round.
            self._arena.fleet.close()

    def _listen(self, done: Callable[[], bool], *, draining: bool = False) -> None:
        """Take what drivers tell and do what is due, until something is the case."""
        inbox = self._arena.fleet.inbox
        while not done():
            left = self._agenda.run(blocking=False)
            self._incidents.told("")
            turn = _TURN_SECONDS if left is None else min(left, _TURN_SECONDS)
            try:
                driver, event = inbox.get(timeout=turn)
            except queue.Empty:
                self._arena.progress(self)
                continue
            if event is not None:
                self._hear(driver, event, draining=draining)
            elif driver.wanted:
                self._incidents.lost(driver)
                if draining and self._arena.fleet.current is not None:
                    self._arena.fleet.current.drain()
            self._arena.progress(self)

    def _hear(self, driver: Driver, event: dict[str, Any], *, draining: bool) -> None:
        name = event[EVENT]
        moment = round(self._agenda.timefunc(), 3)
        self._events.write(json.dumps({"at": moment, "driver": driver.number, **event}) + "\n")
        if name == SESSION_READY:
            driver.ready = True
            return
        self.tally.hear(event)
        at_work = driver is self._arena.fleet.current
        if name in {Event.BATCH_COMMITTED, Event.BATCH_SKIPPED}:
            driver.commits += 1
            if at_work and not draining:
                # Booting takes both processors; not before the one at work has got on.
                self._arena.fleet.stand_by()
        elif name == QUERY_FAILED:
            self._arena.network.note("query failed", driver=driver.number, at_work=at_work, **event)
            if at_work and not draining:
                self._agenda.enter(
                    _RESTART_SECONDS, 0, partial(self._restart, driver, event[QUERY])
                )
        elif name == NOT_DRAINED and at_work:
            self._drain_error = event[ERROR]
            self._agenda.enter(_RESTART_SECONDS, 0, driver.drain)
        elif name == DRAINED and at_work:
            self._drained = True
        if at_work:
            self._incidents.told(name)

    def _restart(self, driver: Driver, query: str) -> None:
        if driver is self._arena.fleet.current:
            driver.restart(query)

    def _judge(self) -> Verdict:
        verdict = Verdict(self.plan, self.tally)
        numbers, mode = self.tally.numbers, self.plan.mode
        oracles = {one.name: Oracle(self._stage, one, self._client) for one in self._stage.subjects}
        self._watcher.finish({name: oracle.rows_by_batch for name, oracle in oracles.items()})
        numbers["rows_in"] = self._feeder.fed
        numbers["looks"] = self._watcher.looks
        numbers["failed_looks"] = self._watcher.failed_looks
        if not self._watcher.looks:
            verdict.violations.append("the watcher has not seen anything")
        if not self._drained:
            verdict.violations.append(f"stuck: {self._drain_error}")
        for name, oracle in oracles.items():
            found = verdict.findings[name] = oracle.judge()
            numbers["rows_out"] += found.rows
            for number in ("lost", "duplicated", "stale", "wrong", "misordered"):
                numbers[number] += getattr(found, number)
            if found.violates(mode):
                verdict.violations.append(f"{name}: {found}")
        for name, batches in self._watcher.partial.items():
            numbers["partial_batches_seen"] += len(batches)
            if mode is DeliveryMode.TRANSACTIONAL:
                verdict.violations.append(f"{name}: batches seen in part: {batches}")
        for violation in verdict.violations:
            self._arena.network.note("violation", text=violation)
        return verdict

    def _clean_up(self) -> None:
        self._client.remove(self.plan.folder, recursive=True, force=True)
        shutil.rmtree(self._folder)
