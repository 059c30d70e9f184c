"""Incidents: drivers, workers, proxies and tables that are killed, stopped, doubled or taken away.

Incidents that strike the driver wait for their turn, and most of them for a sign of life since the last one:
a driver that never lived long enough to commit would prove nothing.
"""

import contextlib
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from sched import scheduler

from yt.wrapper import YtClient

from tests.chaos.checkpoint import copy, is_usable, keep_true_one, twin
from tests.chaos.drivers import Driver, Fleet
from tests.chaos.network import Network
from tests.chaos.plan import DRIVER_KINDS, Incident, Kind
from tests.chaos.stage import Stage
from tests.chaos.trouble import FAIL, KILL, Trouble
from tests.chaos.weather import LONGEST_HOLD
from tests.flows import ledger_entries

_TRIGGER_PATIENCE = 8.0
"""Seconds after which a driver is struck although the event to strike at has not come."""

_LIFE_PATIENCE = 90.0
"""Seconds after which a driver is struck although it has not committed anything since the last time."""

_SUCCESSOR_PATIENCE = 20.0
_ZOMBIE_SECONDS = 6.0
_RIVAL_SECONDS = 3.0
_LOOK_SECONDS = 0.25


class Incidents:
    """Carries out the incidents of a round.

    Args:
        agenda: for what must follow later; its time is that of the round.

    Attributes:
        counts: incidents carried out, by kind.
    """

    def __init__(
        self,
        stage: Stage,
        fleet: Fleet,
        network: Network,
        client: YtClient,
        proxy: str,
        agenda: scheduler,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.kills = 0
        self.stops = 0
        self._stage = stage
        self._fleet = fleet
        self._network = network
        self._client = client
        self._task = stage.task(proxy)
        self._task_on_copies = stage.task(proxy, copies=True)
        self._agenda = agenda
        self._trouble = Trouble(str(stage.trouble))
        self._waiting: deque[Incident] = deque()
        self._struck = 0.0
        self._ready: float | None = None
        self._busy = False
        self._duel: tuple[Driver, Driver] | None = None
        self._unmounted: set[str] = set()

    def begin(self) -> None:
        """Put the first driver to work."""
        self._employ()

    def happen(self, incident: Incident) -> None:
        """Carry out an incident, or let it wait for its turn."""
        if incident.kind is Kind.DRIVER_STOP:
            self._waiting.append(incident)
            return
        if incident.kind in DRIVER_KINDS:
            # A driver cannot take all that is planned; the many stops must not crowd the kills out.
            self._waiting.appendleft(incident)
            return
        carry_out = {
            Kind.WORKER_KILL: self._kill_worker,
            Kind.TASK_FAILURE: self._fail_task,
            Kind.TASK_KILL: self._fail_task,
            Kind.PROXY_KILL: self._kill_proxy,
            Kind.UNMOUNT: self._unmount,
            Kind.TRIM: self._trim,
        }[incident.kind]
        carry_out(incident)

    def told(self, event: str) -> None:
        """Take what the driver at work has told; strike it if this is the moment."""
        driver = self._fleet.current
        if not self._waiting or self._busy or driver is None:
            return
        incident, now = self._waiting[0], self._agenda.timefunc()
        if not driver.commits and not incident.early and now - self._struck < _LIFE_PATIENCE:
            return
        if self._ready is None:
            self._ready = now
        if incident.trigger not in {"", event} and now - self._ready < _TRIGGER_PATIENCE:
            return
        self._waiting.popleft()
        self._ready, driver.commits = None, 0
        if incident.kind is Kind.COPY and not self._has_checkpoints():
            return
        self._strike(incident, driver)
        self._struck = self._agenda.timefunc()

    def lost(self, driver: Driver) -> None:
        """Replace a driver that has ended by itself.

        Raises:
            RuntimeError: it never came up, so the next one would not either.
        """
        self._network.note("driver ended", driver=driver.number)
        if not driver.ready:
            raise RuntimeError(f"A driver could not start a session, see {driver.log}")
        if self._duel is not None and driver in self._duel:
            self._end_duel(self._duel)
            return
        was_at_work = driver is self._fleet.current
        self._fleet.dismiss(driver)
        if was_at_work:
            self._employ()

    def settle(self) -> Driver:
        """Undo what can be undone, and return the one driver that goes on."""
        self._waiting.clear()
        for event in self._agenda.queue:
            self._agenda.cancel(event)
        if self._duel is not None:
            self._separate(self._duel)
        if any(twin(one.checkpoint).exists() for one in self._stage.subjects):
            time.sleep(LONGEST_HOLD)
            self._keep_true_checkpoints()
        self._fleet.dismiss_replaced()
        if self._fleet.current is not None:
            self._fleet.current.wake()
        for path in list(self._unmounted):
            self._mount(path)
        for order in self._stage.trouble.iterdir():
            with contextlib.suppress(FileNotFoundError):
                order.unlink()
                self.counts[
                    Kind.TASK_KILL if order.name.startswith(KILL) else Kind.TASK_FAILURE
                ] -= 1
        return self._fleet.current or self._employ()

    def _employ(self) -> Driver:
        return self._fleet.employ(self._task)

    def _count(self, incident: Incident, **details: object) -> None:
        self.counts[incident.kind] += 1
        self._network.note(incident.kind.value, planned=round(incident.at, 3), **details)

    def _has_checkpoints(self) -> bool:
        return all(is_usable(one.checkpoint) for one in self._stage.subjects)

    def _strike(self, incident: Incident, driver: Driver) -> None:
        self._count(incident, driver=driver.number, trigger=incident.trigger)
        if incident.kind is Kind.DRIVER_KILL:
            self.kills += 1
            self._fleet.dismiss(driver)
            self._employ()
        elif incident.kind is Kind.DRIVER_STOP:
            self.stops += 1
            self._busy = True
            driver.stop()
            self._agenda.enter(incident.seconds, 0, lambda: self._wake(driver))
        elif incident.kind is Kind.TAKEOVER:
            self.stops += 1
            self._busy = True
            driver.stop()
            self._fleet.replace()
            successor = self._employ()
            self._await_successor(successor, lambda: self._wake_replaced(driver))
        elif incident.kind is Kind.RIVAL:
            self._busy = True
            self._fleet.replace()
            rival = self._employ()
            loser = driver if incident.choice < 0.5 else rival
            self._rival(incident, rival, lambda: self._end_rivalry(driver, rival, loser))
        else:
            self._busy = True
            driver.stop()
            for one in self._stage.subjects:
                copy(one.checkpoint)
            self._fleet.replace()
            rival = self._fleet.employ(self._task_on_copies)
            driver.wake()
            self._duel = duel = (driver, rival)
            self._rival(incident, rival, lambda: self._end_duel(duel))

    def _wake(self, driver: Driver) -> None:
        driver.wake()
        self._busy = False

    def _rival(self, incident: Incident, rival: Driver, end: Callable[[], None]) -> None:
        seconds = _RIVAL_SECONDS * (1 + incident.seconds)
        self._await_successor(rival, lambda: self._agenda.enter(seconds, 0, end))

    def _await_successor(self, successor: Driver, then: Callable[[], None]) -> None:
        """Do something once another driver has got on, or has had its time."""
        deadline = self._agenda.timefunc() + _SUCCESSOR_PATIENCE

        def look() -> None:
            if successor.commits or self._agenda.timefunc() > deadline:
                then()
            else:
                self._agenda.enter(_LOOK_SECONDS, 0, look)

        look()

    def _wake_replaced(self, sleeper: Driver) -> None:
        sleeper.wake()
        self._agenda.enter(_ZOMBIE_SECONDS, 0, lambda: self._end_takeover(sleeper))

    def _end_takeover(self, sleeper: Driver) -> None:
        if sleeper in self._fleet.replaced:
            self._fleet.dismiss(sleeper)
        self._busy = False

    def _end_rivalry(self, old: Driver, rival: Driver, loser: Driver) -> None:
        self._busy = False
        if rival is not self._fleet.current or old not in self._fleet.replaced:
            return
        self.kills += 1
        self._fleet.dismiss(loser)
        if loser is rival:
            self._fleet.reinstate(old)
            for query in self._task.queries:
                old.restart(query.name)

    def _end_duel(self, duel: tuple[Driver, Driver]) -> None:
        """Kill both, and go on from the checkpoints that the ledgers speak of."""
        if self._duel is not duel:
            return
        self._separate(duel)
        # A commit that was held back may still decide for one of them.
        self._agenda.enter(LONGEST_HOLD, 0, self._go_on)

    def _separate(self, duel: tuple[Driver, Driver]) -> None:
        for driver in duel:
            self.kills += driver.is_alive
            self._fleet.dismiss(driver)
        self._duel = None

    def _go_on(self) -> None:
        self._keep_true_checkpoints()
        self._employ()
        self._busy = False

    def _keep_true_checkpoints(self) -> None:
        for path in list(self._unmounted):
            self._mount(path)
        for one in self._stage.subjects:
            entry = next(iter(ledger_entries(self._client, one.ledger)), None)
            won = keep_true_one(one.checkpoint, self._stage.queue.path, entry)
            self._network.note("checkpoint kept", query=one.name, copy=won)

    def _kill_worker(self, incident: Incident) -> None:
        driver = self._fleet.current
        alive = driver is not None and (driver.commits or incident.early)
        victims = driver.python_processes() if driver and alive else []
        if victims:
            victim = victims[int(incident.choice * len(victims))]
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                self._count(incident)

    def _fail_task(self, incident: Incident) -> None:
        driver = self._fleet.current
        if driver is None or not (driver.commits or incident.early):
            return
        kind = FAIL if incident.kind is Kind.TASK_FAILURE else KILL
        self._count(incident)
        self._trouble.order(kind, self.counts[incident.kind])

    def _kill_proxy(self, incident: Incident) -> None:
        self._count(incident, proxy=self._network.kill_proxy(incident.choice))

    def _unmount(self, incident: Incident) -> None:
        tables = self._stage.movable
        path = tables[int(incident.choice * len(tables))]
        if path in self._unmounted or not self._client.exists(path):
            return
        self._client.unmount_table(path, sync=True)
        self._unmounted.add(path)
        self._count(incident, path=path)
        self._agenda.enter(incident.seconds * 0.3, 0, lambda: self._mount(path))

    def _mount(self, path: str) -> None:
        self._client.mount_table(path, sync=True)
        self._unmounted.discard(path)

    def _trim(self, incident: Incident) -> None:
        """Trim what every consumer has passed, as the queue agent does with vital ones."""
        stage = self._stage
        if self._unmounted:
            return
        passed = [stage.queue.stored(one.consumer) for one in stage.subjects]
        trimmed = {
            partition: min(offsets.get(partition, 0) for offsets in passed)
            for partition in stage.queue.ends()
        }
        for partition, row in trimmed.items():
            if row:
                self._client.trim_rows(stage.queue.path, partition, row)
        if any(trimmed.values()):
            self._count(incident, rows=trimmed)
