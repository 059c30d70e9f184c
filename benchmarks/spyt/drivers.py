"""A driver as a child process: started, listened to, killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spyt.environments import Environment
from yt_exactly_once.testing.child import kill_session

Event = dict[str, Any]

_JOB = Path(__file__).with_name("job.py")
_LOOK_SECONDS = 0.005
_PATIENCE_SECONDS = 300
_SHOWN = 3000


class Driver(contextlib.AbstractContextManager["Driver"]):
    """One life of a driver; leaving the block kills it.

    Args:
        environment: where it runs.
        spec: what it does, see `job`.
        folder: for the spec and the log; the log goes on.

    Attributes:
        events: what it has said.
        began: when it was started.
    """

    def __init__(self, environment: Environment, spec: dict[str, Any], folder: Path) -> None:
        told = folder / "spec.json"
        told.write_text(json.dumps(spec))
        self.events: list[Event] = []
        self.began = time.time()
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(environment.python), "-P", str(_JOB), str(told)],
                env=environment.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=folder,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id of its Python; the JVM is a child of it."""
        return self._process.pid

    def kill(self) -> None:
        """End Python, the JVM and all workers with SIGKILL.

        Raises:
            RuntimeError: a process is still there.
        """
        if survivors := kill_session(self._process):
            message = f"Processes survived SIGKILL: {survivors}"
            raise RuntimeError(message)
        self._reader.join()

    def wait(self, condition: Callable[[], Any], seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until something has happened.

        Raises:
            RuntimeError: the driver ended before, or time ran out.
        """
        end = time.monotonic() + seconds
        while not condition():
            ended = not self._reader.is_alive()
            if (ended and not condition()) or time.monotonic() > end:
                message = f"The driver {'ended' if ended else 'was too slow'}:\n{self.tail()}"
                raise RuntimeError(message)
            time.sleep(_LOOK_SECONDS)

    def finish(self) -> Event:
        """Wait until it has nothing to do or has failed, and return that event."""
        self.wait(lambda: self.last("idle", "failed") is not None)
        ended = self.last("idle", "failed")
        assert ended is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self.kill()
        return ended

    def last(self, *names: str) -> Event | None:
        """Return the last event of these names."""
        return next((event for event in reversed(self.events) if event["event"] in names), None)

    def batches(self) -> list[Event]:
        """Return the batches it has told of."""
        return [event for event in self.events if event["event"] == "batch"]

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-_SHOWN:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                self.events.append(json.loads(line))
