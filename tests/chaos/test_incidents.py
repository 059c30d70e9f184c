"""What the chaos runner does to its drivers, acted out with dummies and a clock that is set by hand."""

from __future__ import annotations

import json
import sched
from types import SimpleNamespace

import pytest

from tests.chaos import incidents
from tests.chaos.checkpoint import read_cuts, twin
from tests.chaos.drivers import Fleet
from tests.chaos.incidents import Incidents
from tests.chaos.plan import Incident, Kind
from tests.flows import Entry

LONG = 60.0
QUEUE = "//queue"


class Dummy:
    """A driver that does nothing."""

    def __init__(self, number):
        self.number = number
        self.commits = 0
        self.ready = self.wanted = self.is_alive = True
        self.log = "driver.log"
        self.did = []

    def start(self, task):
        self.did.append(task)

    def stop(self):
        self.did.append("stop")

    def wake(self):
        self.did.append("wake")

    def restart(self, query):
        self.did.append(f"restart {query}")

    def end(self):
        self.is_alive = False


class DummyFleet(Fleet):
    """A fleet of dummies."""

    def _boot(self):
        self.started += 1
        return Dummy(self.started)


class Theatre:
    """One query with a checkpoint that has planned a batch, and its drivers."""

    def __init__(self, folder, monkeypatch):
        self.checkpoint = folder / "checkpoint"
        self.plan(self.checkpoint, 10)
        (self.checkpoint / "metadata").touch()
        (folder / "trouble").mkdir()
        self.entry = None
        monkeypatch.setattr(
            incidents, "ledger_entries", lambda *_: [self.entry] if self.entry else []
        )
        monkeypatch.setattr(incidents.time, "sleep", lambda _: None)
        subject = SimpleNamespace(name="query", checkpoint=self.checkpoint, ledger="//ledger")
        stage = SimpleNamespace(
            subjects=(subject,),
            trouble=folder / "trouble",
            queue=SimpleNamespace(path=QUEUE),
            task=lambda _, copies=False: SimpleNamespace(copies=copies, queries=(subject,)),
        )
        self.now = 0.0
        self.agenda = sched.scheduler(lambda: self.now)
        self.fleet = DummyFleet(folder / "drivers")
        network = SimpleNamespace(note=lambda *_, **__: None)
        self.incidents = Incidents(stage, self.fleet, network, None, "proxy", self.agenda)
        self.incidents.begin()

    def plan(self, checkpoint, *ends):
        """Write the offset log of one partition."""
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        for number, end in enumerate(ends):
            offset = json.dumps({"partitions": {"0": end}})
            (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}")

    def happen(self, kind):
        """Let something happen to a driver that has committed a batch; return it."""
        driver = self.fleet.current
        driver.commits = 1
        self.incidents.happen(Incident(self.now, kind, 1.0, 0.0, "", early=False))
        self.incidents.told("")
        return driver

    def pass_time(self, seconds):
        """Set the clock forward, and do what is due."""
        for _ in range(int(seconds)):
            self.now += 1
            self.agenda.run(blocking=False)


@pytest.fixture
def theatre(tmp_path, monkeypatch):
    """A query at work."""
    return Theatre(tmp_path, monkeypatch)


def test_killed_driver_is_replaced(theatre):
    """By one on the same checkpoints."""
    victim = theatre.happen(Kind.DRIVER_KILL)
    assert not victim.is_alive
    assert theatre.fleet.current.is_alive
    assert (theatre.incidents.kills, theatre.incidents.stops) == (1, 0)


def test_stopped_driver_is_woken(theatre):
    """It stays at work."""
    driver = theatre.happen(Kind.DRIVER_STOP)
    assert driver.did[1:] == ["stop"]
    theatre.pass_time(2)
    assert driver.did[1:] == ["stop", "wake"]
    assert theatre.fleet.current is driver


def test_kill_goes_before_the_stops_that_wait(theatre):
    """A slow driver would otherwise never be killed."""
    stop = Incident(theatre.now, Kind.DRIVER_STOP, 1.0, 0.0, "", early=False)
    for _ in range(9):
        theatre.incidents.happen(stop)
    victim = theatre.happen(Kind.DRIVER_KILL)
    assert not victim.is_alive
    assert theatre.incidents.stops == 0


def test_sleeper_wakes_only_after_its_successor_has_got_on(theatre):
    """And is killed some time later."""
    sleeper = theatre.happen(Kind.TAKEOVER)
    theatre.pass_time(5)
    assert sleeper.did[1:] == ["stop"]
    theatre.fleet.current.commits = 1
    theatre.pass_time(1)
    assert sleeper.did[1:] == ["stop", "wake"]
    theatre.pass_time(LONG)
    assert not sleeper.is_alive
    assert theatre.fleet.current.is_alive


def test_one_of_two_rivals_is_killed(theatre):
    """The other one works on."""
    old = theatre.happen(Kind.RIVAL)
    rival = theatre.fleet.current
    theatre.pass_time(LONG)
    assert [old.is_alive, rival.is_alive] == [False, True]
    assert theatre.fleet.current is rival


@pytest.mark.parametrize(("end", "copied"), [(15, False), (18, True)])
def test_after_a_duel_work_continues_from_the_checkpoint_in_the_ledger(theatre, end, copied):
    """Whichever driver has committed, both are killed and nothing of the other one is left."""
    old = theatre.happen(Kind.COPY)
    rival = theatre.fleet.current
    assert old.did[1:] == ["stop", "wake"]
    assert rival.did[0].copies
    theatre.plan(theatre.checkpoint, 10, 15)
    theatre.plan(twin(theatre.checkpoint), 10, 18)
    theatre.entry = Entry(1, {}, {QUEUE: {0: end}}, {}, "t", 0, part=1, part_count=1)
    rival.commits = 1
    theatre.pass_time(LONG)
    assert [old.is_alive, rival.is_alive] == [False, False]
    assert read_cuts(theatre.checkpoint)[-1] == {0: 18 if copied else 15}
    assert not twin(theatre.checkpoint).exists()
    heir = theatre.fleet.current
    assert heir.is_alive
    assert not heir.did[0].copies
    assert theatre.incidents.kills == 2


@pytest.mark.parametrize("who", [0, 1])
def test_duel_ends_with_a_driver_that_ends_by_itself(theatre, who):
    """No driver goes on without knowing whose checkpoint is right."""
    drivers = [theatre.happen(Kind.COPY), theatre.fleet.current]
    theatre.incidents.lost(drivers[who])
    assert theatre.fleet.current is None
    theatre.pass_time(LONG)
    assert theatre.fleet.current not in [None, *drivers]
    assert not twin(theatre.checkpoint).exists()


@pytest.mark.parametrize("seconds", [0, 25, 30])
def test_round_that_ends_during_a_duel_leaves_one_driver(theatre, seconds):
    """On the right checkpoint, at any moment of the duel."""
    theatre.happen(Kind.COPY)
    theatre.plan(twin(theatre.checkpoint), 10, 18)
    theatre.entry = Entry(1, {}, {QUEUE: {0: 18}}, {}, "t", 0, part=1, part_count=1)
    theatre.pass_time(seconds)
    survivor = theatre.incidents.settle()
    assert survivor is theatre.fleet.current
    assert not survivor.did[0].copies
    assert theatre.fleet.replaced == []
    assert read_cuts(theatre.checkpoint)[-1] == {0: 18}


def test_driver_that_cannot_start_ends_the_run(theatre):
    """The next one could not either."""
    driver = theatre.fleet.current
    driver.ready = False
    with pytest.raises(RuntimeError, match=r"driver\.log"):
        theatre.incidents.lost(driver)
