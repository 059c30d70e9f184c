"""What the campaigns run on: a cluster, a queue, targets, a gateway that dies, and drivers."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.checkpoints.driver import STORES
from tests.flows import QUERIES, Queue, Rows, differences
from yt_exactly_once.child import Child
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

FOLDER = "//home/checkpoints"
"""Of everything in Cypress."""

_PATIENCE_SECONDS = 300.0
_SILENCE_SECONDS = 0.05
_ROUND_SECONDS = 1.0
_ROWS_PER_ROUND = 60
_GATEWAY_STARTS = 10
_IS_SORTED = {"aggregation": True, "dedup": False}


class Driver(Child):
    """One life of the driver, and what it told.

    Args:
        plan: of the driver.
        folder: for its log and its temporary files.

    Attributes:
        batches: the last batch of each query that it has told.
        failures: of its queries.
        states: rows in the state of each query, once they were asked for.
    """

    def __init__(self, plan: dict[str, Any], folder: Path) -> None:
        super().__init__(
            "tests.checkpoints.driver",
            lambda report: json.dumps({**plan, "report": report}),
            folder / "driver.log",
        )
        self.batches: dict[str, int] = {}
        self.failures: list[dict[str, str]] = []
        self.states: dict[str, Rows] = {}

    def listen(self, seconds: float) -> set[str]:
        """Take what it tells for a while; return which queries ended a batch."""
        deadline = time.monotonic() + seconds
        moved = set()
        while (left := deadline - time.monotonic()) > 0:
            event = self.next_event(min(left, _SILENCE_SECONDS))
            if event is None:
                continue
            if event["event"] == "failed":
                self.failures.append({"query": event["query"], "error": event["error"]})
            elif event["event"] == "state":
                self.states[event["query"]] = sorted(tuple(row) for row in event["rows"])
            else:
                self.batches[event["query"]] = event["batch"]
                moved.add(event["query"])
        return moved

    def await_batches(self) -> None:
        """Wait until each query has run a batch in this life."""
        self._await(lambda: set(self.batches) == set(STORES), "No batch")

    def ask_for_states(self) -> dict[str, Rows]:
        """Return what Spark reads from the state stores."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"state\n")
        self._process.stdin.flush()
        self._await(lambda: set(self.states) == set(STORES), "No state")
        return self.states

    def _await(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise self.failure(f"{what} in {_PATIENCE_SECONDS:g} s: {self.failures[-2:]}")
            self.listen(_SILENCE_SECONDS)


class Gateway:
    """The command `checkpoints`, which keeps its port and its secret through every death.

    Args:
        folder: for its secret and its log.
        proxy: of the cluster.

    Attributes:
        location: that it prints.
    """

    def __init__(self, folder: Path, proxy: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._command = [sys.executable, "-m", "yt_exactly_once", "checkpoints", "--proxy", proxy]
        self._command += ["--port", str(port), "--root", FOLDER]
        self._command += ["--secret-file", str(folder / "secret")]
        self._log = folder / "gateway.log"
        self.location = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it serves; a proxy that comes up late may stop it at first."""
        for _ in range(_GATEWAY_STARTS):
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    self._command, stdout=subprocess.PIPE, stderr=log, text=True
                )
            assert self._process.stdout is not None
            line = self._process.stdout.readline().split()
            if line:
                self.location = line[1]
                return
            self.kill()
        raise AssertionError(f"The gateway does not start: see {self._log}")

    def kill(self) -> None:
        """Kill it at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Stage:
    """Everything that runs, with one driver at a time, or two.

    Attributes:
        folder: for all files.
        cluster: with two proxies.
        gateway: for the checkpoints.
        queue: read by both queries.
        plan: of every driver.
        drivers: how many were started.
    """

    folder: Path
    cluster: LocalCluster
    gateway: Gateway
    queue: Queue
    plan: dict[str, Any]
    drivers: int = field(default=0)

    @contextmanager
    def driver(self, *, restarts: bool = True) -> Iterator[Driver]:
        """Run a driver until the end of the block; `restarts` says whether it starts failed queries again."""
        self.drivers += 1
        folder = self.folder / f"driver-{self.drivers:03}"
        folder.mkdir()
        with Driver({**self.plan, "restarts": restarts, "scratch": str(folder)}, folder) as driver:
            yield driver

    @property
    def client(self) -> Any:
        """A client that knows no proxy that has died."""
        return self.cluster.client()

    def feed(self) -> None:
        """Put rows into the queue."""
        self.queue.client = self.client
        for partition in range(len(self.queue.rows)):
            self.queue.append(_ROWS_PER_ROUND, partition)

    def checkpoint(self, name: str) -> str:
        """Return the Cypress path of the checkpoint of a query."""
        return f"{FOLDER}/checkpoint/{name}"

    def must_hold(self) -> dict[str, Rows]:
        """Return what the target of each query must hold."""
        return {
            name: QUERIES[name].must_hold(self.queue, _ROWS_PER_ROUND, is_sorted=_IS_SORTED[name])
            for name in STORES
        }

    def await_results(self, *drivers: Driver) -> list[str]:
        """Wait until the targets hold what they must; return what differs when no batch comes any more."""
        must = self.must_hold()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            client = self.client
            wrong = {
                name: differences(QUERIES[name].found(client, target), must[name])
                for name, target in self.plan["targets"].items()
            }
            if not any(wrong.values()):
                return []
            if time.monotonic() > deadline:
                return [f"target of {name}: {what}" for name, what in wrong.items() if what]
            moved = [driver.listen(_ROUND_SECONDS) for driver in drivers]
            if any(moved):
                deadline = time.monotonic() + _PATIENCE_SECONDS


@contextmanager
def open_stage(folder: Path) -> Iterator[Stage]:
    """Start cluster and gateway, and fill the queue, or find what an earlier stage has left in the folder."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(folder / "cluster", proxies=2))
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        consumers = {name: f"{FOLDER}/{name}_consumer" for name in STORES}
        targets = {name: f"{FOLDER}/{name}_target" for name in STORES}
        if client.exists(FOLDER):
            queue = Queue.found(client, FOLDER)
        else:
            queue = Queue.filled(client, FOLDER, _ROWS_PER_ROUND)
            for name in STORES:
                queue.add_consumer(consumers[name])
                QUERIES[name].create_target(client, targets[name], is_sorted=_IS_SORTED[name])
        gateway = stack.enter_context(Gateway(folder, proxy))
        plan = {
            "proxy": proxy,
            "location": f"{gateway.location}/checkpoint",
            "queue": queue.path,
            "consumers": consumers,
            "targets": targets,
        }
        drivers = sum(1 for _ in folder.glob("driver-*"))
        yield Stage(folder, cluster, gateway, queue, plan, drivers)
