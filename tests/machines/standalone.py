"""A Spark Standalone cluster from the pip package: a master, workers, and the executors that they start."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Self

import pyspark

from yt_exactly_once.testing.child import kill_session, session_members
from yt_exactly_once.testing.session import SHORT_LIVED

ON_WORKER = "MACHINES_ON_WORKER"
"""Environment variable that executors, and their Python, have and the driver has not."""

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_LOSS_SECONDS = 0.01


class Standalone:
    """A master and workers of two cores each.

    Args:
        folder: for logs and the files of the workers.
        workers: how many.
        bare: do not tell them where this process finds its packages.
    """

    def __init__(self, folder: Path, workers: int = 2, *, bare: bool = False) -> None:
        self._folder = folder
        self._files = folder / "files"
        self._count = workers
        self._bare = bare
        with (
            socket.create_server(("127.0.0.1", 0)) as one,
            socket.create_server(("127.0.0.1", 0)) as two,
        ):
            self._port, self._ui = one.getsockname()[1], two.getsockname()[1]
        self.url = f"spark://127.0.0.1:{self._port}"
        self._hosts = count(2)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = ExitStack()

    def __enter__(self) -> Self:
        master = ["Master", "--host", "127.0.0.1", "--port", str(self._port)]
        self._start("master", *master, "--webui-port", str(self._ui))
        self._await(lambda alive: alive == 0)
        for _ in range(self._count):
            self.start_worker()
        self._await(lambda alive: alive == self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        self._started.close()

    def start_worker(self) -> None:
        """Start a worker; it registers by itself."""
        # An address of its own: Spark runs no two copies of a task on one host.
        host = f"127.0.0.{next(self._hosts)}"
        worker = ["Worker", "--host", host, "--webui-port", "0", "--cores", "2"]
        worker += ["--memory", "2g", "--work-dir", str(self._folder / "work"), self.url]
        self._workers.append(self._start("worker", *worker, host=host))

    def kill_worker(self) -> None:
        """Kill the oldest worker with its executors, as the loss of a machine does."""
        survivors = kill_session(self._workers.pop(0))
        assert not survivors, survivors

    def kill_executor(self, number: int) -> bool:
        """Kill an executor that has run Python, whose workers end with it; return whether there was one."""
        pids = [pid for worker in self._workers for pid in session_members(worker.pid)]
        found = [pid for pid in sorted(_parents(pids)) if _EXECUTOR in _command_line(pid)]
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            # Dynamic allocation may have been faster.
            os.kill(found[number % len(found)], signal.SIGKILL)
            return True
        return False

    def lose_shuffle_files(self, seconds: float) -> None:
        """Remove every shuffle file as soon as it is there, for a while: a disk that forgets."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Executors remove their folders meanwhile.
            for folder, _, names in os.walk(self._files, onerror=lambda _error: None):
                for name in names:
                    if name.startswith("shuffle_"):
                        Path(folder, name).unlink(missing_ok=True)
            time.sleep(_LOSS_SECONDS)

    def _start(
        self, name: str, kind: str, *arguments: str, host: str = _LOOPBACK
    ) -> subprocess.Popen[bytes]:
        command = [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}.{kind}", *arguments]
        environment = {**os.environ, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": host}
        environment["SPARK_DAEMON_MEMORY"] = "256m"
        environment["SPARK_DAEMON_JAVA_OPTS"] = SHORT_LIVED
        environment["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
        environment[ON_WORKER] = "1"
        if self._bare:
            environment.pop("PYTHONPATH", None)
        environment["SPARK_LOCAL_DIRS"] = str(self._files)
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._started.callback(kill_session, process)
        return process

    def _await(self, holds: Callable[[int], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self._ui}/json/", timeout=10
                ) as page:
                    if holds(json.load(page)["aliveworkers"]):
                        return
            except OSError:
                pass
            time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"Spark Standalone does not start: see {self._folder}")


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parents(pids: list[int]) -> set[int]:
    """Return the processes that have started one of these."""
    parents = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            # The name, in parentheses, may contain anything.
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            parents.add(int(status.split()[1]))
    return parents
