"""The runner's side of a driver: start it, tell it, strike it, and listen to it on a thread.

What drivers tell goes into one inbox, so that everything is decided on one thread.
"""

import contextlib
import json
import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any

from tests.chaos.messages import DO, DRAIN, QUERY, RESTART, START, DriverOptions, RoundTask
from yt_exactly_once.testing.child import Child, session_members
from yt_exactly_once.testing.nursery import NAME

_MODULE = "tests.chaos.driver"
_LISTEN_SECONDS = 3600.0
_PROC = Path("/proc")

Inbox = queue.SimpleQueue[tuple["Driver", dict[str, Any] | None]]
"""What drivers told; `None` for one that has ended."""


class Driver(Child):
    """One Spark driver, from its start to its end.

    Args:
        folder: for its log and its temporary files.
        **options: see `DriverOptions`.

    Attributes:
        commits: batches it has committed or skipped in this round.
        ready: whether its session has come up.
        wanted: whether its end would be a surprise.
    """

    def __init__(self, number: int, folder: Path, inbox: Inbox, **options: Any) -> None:
        self.number = number
        self.commits = 0
        self.ready = False
        self.wanted = True
        self.log = folder / f"driver-{number:04}.log"
        scratch = str(folder / "scratch")
        super().__init__(
            _MODULE,
            lambda report: DriverOptions(scratch=scratch, report=report, **options).dump(),
            self.log,
        )
        self._inbox = inbox
        self._relay = threading.Thread(target=self._tell, daemon=True)
        self._relay.start()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def start(self, task: RoundTask) -> None:
        """Let it run the queries of a round, as soon as it can."""
        self.commits = 0
        self.send(json.dumps({DO: START, "round": task.to_json()}))

    def restart(self, query: str) -> None:
        """Let it start a query that has failed."""
        self.send(json.dumps({DO: RESTART, QUERY: query}))

    def drain(self) -> None:
        """Let it take what is left in the queue."""
        self.send(json.dumps({DO: DRAIN}))

    def stop(self) -> None:
        """Stop every process of it, to be woken later."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it with all it has started, and forget it."""
        self.wanted = False
        self.close()
        self._relay.join()

    def python_processes(self) -> list[int]:
        """Return the Python processes that Spark has started: workers, their daemons, source runners."""
        found = []
        for member in session_members(self.pid):
            with contextlib.suppress(OSError):
                if Path(_PROC, str(member), "comm").read_text().strip() == NAME:
                    found.append(member)
        return sorted(found)

    def _signal(self, number: signal.Signals) -> None:
        for member in session_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, number)

    def _tell(self) -> None:
        try:
            while True:
                event = self.next_event(_LISTEN_SECONDS)
                if event is not None:
                    self._inbox.put((self, event))
        except EOFError:
            self._inbox.put((self, None))


class Fleet:
    """All drivers: the one at work, one that stands by, and those that were replaced.

    Args:
        **options: see `DriverOptions`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        self.inbox: Inbox = queue.SimpleQueue()
        self.current: Driver | None = None
        self.replaced: list[Driver] = []
        self.started = 0
        self._spare: Driver | None = None
        self._folder = folder
        self._options = options
        folder.mkdir(parents=True, exist_ok=True)

    def stand_by(self) -> None:
        """Boot a driver ahead of need."""
        if self._spare is None:
            self._spare = self._boot()

    def employ(self, task: RoundTask) -> Driver:
        """Put a driver to work; the one at work before must have been taken away."""
        driver, self._spare = self._spare or self._boot(), None
        driver.start(task)
        self.current = driver
        return driver

    def replace(self) -> Driver | None:
        """Take the driver at work away, without ending it."""
        driver, self.current = self.current, None
        if driver is not None:
            self.replaced.append(driver)
        return driver

    def reinstate(self, driver: Driver) -> None:
        """Put a driver that was replaced back to work."""
        self.replaced.remove(driver)
        self.current = driver

    def dismiss(self, driver: Driver) -> None:
        """End a driver, whatever its place."""
        driver.end()
        if driver is self.current:
            self.current = None
        elif driver is self._spare:
            self._spare = None
        elif driver in self.replaced:
            self.replaced.remove(driver)

    def dismiss_replaced(self) -> None:
        """End the drivers that were replaced."""
        for driver in list(self.replaced):
            self.dismiss(driver)

    def rest(self) -> None:
        if self._spare is None:
            self._spare, self.current = self.current, None
        elif self.current is not None:
            self.dismiss(self.current)

    def close(self) -> None:
        for driver in [self.current, self._spare, *self.replaced]:
            if driver is not None:
                driver.end()
        self.current = self._spare = None
        self.replaced.clear()

    def _boot(self) -> Driver:
        self.started += 1
        return Driver(self.started, self._folder, self.inbox, **self._options)
