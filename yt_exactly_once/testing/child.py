"""A driver as a child process: told its work, listened to, and killed with everything it has started.

The demo kills drivers, and so do tests, also those of users. A Spark driver is several processes: Python, the
JVM, and the daemon of the Python workers, which makes itself a process group of its own. The session they
share is what is killed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yt_exactly_once
from yt_exactly_once.errors import ExactlyOnceError

EVENT = "event"
QUERY = "query"
SESSION_READY = "session.ready"
"""Told once per life, when Spark is up."""
QUERY_FAILED = "query.failed"
"""The last thing a life tells that did not end by a kill; carries the error."""
ERROR = "error"
BUSY = "Python worker failed to connect back"
"""What Spark says when a Python process took more than ten seconds to start. No setting makes it longer."""

_PROC = Path("/proc")
_DEATH_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_SHOWN_LINES = 25


class ChildFailedError(ExactlyOnceError):
    """The child ended or fell silent by itself."""


class Child(contextlib.AbstractContextManager["Child"]):
    """One life of a driver.

    Args:
        argument: makes its argument from the file descriptor to tell events on.
    """

    def __init__(self, module: str, argument: Callable[[int], str], log: Path) -> None:
        self._log = log
        self._events, report = Pipe(duplex=False)
        with log.open("ab") as output, report:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, argument(report.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                pass_fds=[report.fileno()],
                start_new_session=True,
            )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave no process behind, however the block ended."""
        self.kill()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._events.close()

    @property
    def pid(self) -> int:
        """Id of its process, its process group and its session."""
        return self._process.pid

    def send(self, line: str) -> None:
        """Write a line to its standard input; if it has ended, the next event says so."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def next_event(self, timeout: float) -> dict[str, Any] | None:
        """Return what the child tells next, or `None` after that many seconds of silence.

        Raises:
            EOFError: it has ended and told all.
        """
        if not self._events.poll(max(timeout, 0.0)):
            return None
        try:
            event: dict[str, Any] = self._events.recv()
        except OSError as error:
            # It was killed in the middle of its last one.
            raise EOFError from error
        return event

    def require_success(self) -> None:
        """Wait for the end of a child; raise `ChildFailedError` unless its exit code is 0."""
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self.failure("The queries ended, and their process did not") from error
        if code:
            raise self.failure(f"The queries failed, exit code {code}")

    def failure(self, what: str, error: str | None = None) -> ChildFailedError:
        """Return an error that shows what the child has said: its own error, or the end of its log."""
        if error is None:
            with self._log.open(errors="replace") as file:
                error = "".join(deque(file, _SHOWN_LINES))
        remedy = (
            f"Its log is {self._log}; the demo keeps it with --data-dir. Its last lines are below"
        )
        lines = error.rstrip().splitlines()[-_SHOWN_LINES:]
        return ChildFailedError(what, remedy=remedy, details=lines)

    def kill(self) -> None:
        """End the child and all it has started with SIGKILL; raise `ChildFailedError` if one is left."""
        if survivors := kill_session(self._process):
            raise self.failure(f"Processes survived SIGKILL: {survivors}")


def kill_session(leader: subprocess.Popen[Any]) -> list[int]:
    """End all processes of a session with SIGKILL; return those that are left after half a minute.

    Args:
        leader: a child that was started with a session of its own.
    """
    deadline = time.monotonic() + _DEATH_SECONDS
    if leader.poll() is None:
        os.killpg(leader.pid, signal.SIGKILL)
    while members := session_members(leader.pid):
        if time.monotonic() > deadline:
            return members
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    leader.wait()
    return []


def session_members(session: int) -> list[int]:
    """Return the living processes of a session; none where there is no /proc to tell.

    Without it the daemon of the workers is not found, and ends because the JVM is gone.
    """
    members = []
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            status = entry.read_text()
        except OSError:
            # It ended since the directory was listed.
            continue
        # The name, in parentheses, may contain anything.
        state, _parent, _group, its_session = status.rpartition(")")[2].split()[:4]
        if int(its_session) == session and state != "Z":
            members.append(int(entry.parent.name))
    return members


def _environment() -> dict[str, str]:
    """Return an environment in which driver and workers import this very package."""
    root = str(Path(yt_exactly_once.__file__).parents[1])
    inherited: Sequence[str] = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([root, *inherited]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Report:
    """Tells the parent what happens, by a pipe that the JVM does not inherit."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = Connection(descriptor, readable=False)
        self._lock = threading.Lock()

    def send(self, event: str, **fields: Any) -> None:
        """Send one event; each query tells from a thread of its own."""
        with self._lock:
            self._pipe.send({EVENT: event, **fields})


def orders() -> queue.SimpleQueue[str]:
    """Return the lines of the parent; end this process and its JVM when they end, as the parent is gone."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watch() -> None:
        for line in sys.stdin:
            lines.put(line)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return lines
