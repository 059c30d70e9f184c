"""What stands on the machines: YTsaurus, a gateway for checkpoints, Spark Standalone, and drivers."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from tests.flows import QUERIES, Queue, Rows, differences
from tests.machines.environment import ENVIRONMENT
from tests.machines.standalone import Standalone
from yt_exactly_once.config import DEFAULT_DYN_BATCH_SIZE
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.child import Child
from yt_exactly_once.testing.session import SHORT_LIVED


@dataclass(frozen=True)
class Flow:
    """A query over the queue.

    Attributes:
        is_sorted: whether its target has keys.
        store: where it keeps its state, if it has any.
        state: what to take from its state: what its target, with keys, has in the end.
        shuffles: whether its rows are spread over other tasks before they are written.
        by_format: whether it writes with the format yt.
        rows_per_request: few, where tasks are to be killed between two of their requests.
    """

    mode: str
    query: str
    is_sorted: bool
    store: str = "HDFSBacked"
    state: tuple[str, ...] = ()
    sent_by: str = "auto"
    shuffles: bool = False
    by_format: bool = False
    rows_per_request: int = DEFAULT_DYN_BATCH_SIZE


FLOWS = {
    "transactional": Flow("transactional", "stateless", is_sorted=False),
    "idempotent": Flow("idempotent", "stateless", is_sorted=False),
    # Without keys this mode may repeat rows: with them it must be exact too.
    "at-least-once": Flow("at-least-once", "stateless", is_sorted=True),
    "one-transaction": Flow("transactional", "stateless", is_sorted=False, sent_by="tasks"),
    "totals": Flow(
        "transactional",
        "aggregation",
        is_sorted=True,
        state=("key.key", "value.count", "value.sum", "unix_micros(value.max)"),
    ),
    "dedup": Flow(
        "transactional", "dedup", is_sorted=False, store="RocksDB", state=("key.token", "key.mark")
    ),
}
"""Every mode, and queries with state and a shuffle, one for each kind of state store."""

_SHUFFLED = Flow(
    "transactional",
    "stateless",
    is_sorted=False,
    sent_by="tasks",
    shuffles=True,
    rows_per_request=5,
)
_OF_TASKS: dict[str, Any] = {"sent_by": "tasks", "rows_per_request": 5}
BY_TASKS = {
    "shuffled": _SHUFFLED,
    "shuffled-format": replace(_SHUFFLED, by_format=True),
    "totals": replace(FLOWS["totals"], **_OF_TASKS),
    "dedup-format": replace(FLOWS["dedup"], by_format=True, **_OF_TASKS),
}
"""Plans whose tasks must claim their partitions, by foreachBatch and by the format; two keep state."""

BATCH_ROWS = 400
"""Rows that a batch takes of a partition."""

FOLDER = "//home/machines"
"""Of everything in Cypress."""

_PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_GATEWAY_STARTS = 10
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    # Speculative copies of slow tasks, and executors that come and go with the load.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    "spark.dynamicAllocation.minExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "8s",
    # Killed executors fail their tasks often.
    "spark.task.maxFailures": "16",
    "spark.stage.maxConsecutiveAttempts": "64",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


class Driver(Child):
    """One life of the driver, and what it told.

    Attributes:
        batches: the last batch of each flow that it has told.
        failures: the flow and the error of each query that failed.
        states: rows in the state of each flow that has one, once they were asked for.
    """

    def __init__(self, plan: dict[str, Any], log: Path) -> None:
        super().__init__(
            "tests.machines.driver", lambda report: json.dumps({**plan, "report": report}), log
        )
        self._flows: dict[str, Any] = plan["flows"]
        self.batches: dict[str, int] = {}
        self.failures: list[tuple[str, str]] = []
        self.states: dict[str, Rows] = {}

    def listen(self, seconds: float) -> None:
        """Take what it tells for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            event = self.next_event(left)
            if event is None:
                return
            if event["event"] == "failed":
                self.failures.append((event["flow"], event["error"]))
            elif event["event"] == "state":
                self.states[event["flow"]] = sorted(tuple(row) for row in event["rows"])
            else:
                self.batches[event["flow"]] = event["batch"]

    def await_true(self, holds: Callable[[], bool], what: str) -> None:
        """Listen until something holds, as long as there are batches."""
        batches, deadline = dict(self.batches), time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            if self.batches != batches:
                batches, deadline = dict(self.batches), time.monotonic() + _PATIENCE_SECONDS
            if time.monotonic() > deadline:
                raise self.failure(f"No {what}, and no batch for minutes: {self.failures[-2:]}")
            self.listen(_LOOK_SECONDS)

    def await_batches(self) -> None:
        """Wait until each flow has run a batch in this life."""
        self.await_true(lambda: set(self.batches) == set(self._flows), "batch of each flow")

    def ask_for_states(self) -> dict[str, Rows]:
        """Return what Spark reads from the state stores."""
        stateful = {name for name, flow in self._flows.items() if flow["state"]}
        self.send("state")
        self.await_true(lambda: set(self.states) == stateful, "state")
        return self.states


class Gateway:
    """The command `checkpoints`, which keeps its port and its secret through every death."""

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

    def __exit__(self, *_error: object) -> None:
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
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Stage:
    """All of it, while it runs, with one driver at a time, or two.

    Attributes:
        flows: queries of each driver, by name.
        lives: how many drivers were started.
    """

    folder: Path
    cluster: LocalCluster
    gateway: Gateway
    queue: Queue
    machines: Standalone
    flows: Mapping[str, Flow]
    plan: dict[str, Any]
    lives: int = 0

    @contextmanager
    def driver(self, *, restarts: bool = True) -> Iterator[Driver]:
        """Run a driver until the end of the block; `restarts` says whether it starts failed queries again."""
        self.lives += 1
        log = self.folder / f"driver-{self.lives:03}.log"
        with Driver({**self.plan, "restarts": restarts}, log) as driver:
            yield driver

    @property
    def client(self) -> Any:
        """A client that knows no proxy that has died."""
        return self.cluster.client()

    @property
    def history(self) -> Path:
        """Folder of Spark's event logs."""
        return self.folder / "history"

    def feed(self, rows: int = BATCH_ROWS) -> None:
        """Put rows into every partition of the queue."""
        self.queue.client = self.client
        for partition in range(len(self.queue.rows)):
            self.queue.append(rows, partition)

    def target(self, name: str) -> str:
        return f"{FOLDER}/{name}_target"

    def checkpoint(self, name: str) -> str:
        return f"{self.plan['checkpoints']}/{name}"

    def must_hold(self, name: str, *, is_sorted: bool) -> Rows:
        """Return what a target of a flow must hold."""
        query = QUERIES[self.flows[name].query]
        return query.must_hold(self.queue, BATCH_ROWS, is_sorted=is_sorted)

    def wrong(self) -> list[str]:
        """Return what the targets have and must not have, or the other way round."""
        client, wrong = self.client, []
        for name, flow in self.flows.items():
            found = QUERIES[flow.query].found(client, self.target(name))
            if differs := differences(found, self.must_hold(name, is_sorted=flow.is_sorted)):
                wrong.append(f"{name}: {differs}")
        return wrong

    def senders(self) -> Counter[str]:
        """Return who has sent the batches of each flow that have rows and are in the history of batches."""
        query = f"target, sent_by from [{self.plan['history']}] where [rows] > 0"
        rows = self.client.select_rows(query)
        names = {self.target(name): name for name in self.flows}
        return Counter(f"{names[row['target']]} by {row['sent_by']}" for row in rows)


@contextmanager
def open_stage(
    folder: Path,
    flows: Mapping[str, Flow] = FLOWS,
    *,
    executor_python: Path | None = None,
    archive: Path | None = None,
) -> Iterator[Stage]:
    """Start everything but a driver, with an empty queue; end it with the block.

    Args:
        folder: for all files; must be there.
        flows: queries of each driver, by name.
        executor_python: interpreter of the executors; by default the driver's.
        archive: packed environment that is all that executors have; by default they have the driver's.
    """
    (folder / "history").mkdir()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(folder / "cluster", proxies=2))
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        queue = Queue.create(client, FOLDER)
        gateway = stack.enter_context(Gateway(folder, proxy))
        machines = stack.enter_context(Standalone(folder, bare=archive is not None))
        plan: dict[str, Any] = {
            "settings": {
                **_SETTINGS,
                # No attempt finds a package that is not there.
                **({"spark.task.maxFailures": "1"} if executor_python else {}),
                **({"spark.archives": f"{archive}#{ENVIRONMENT}"} if archive else {}),
                "spark.master": machines.url,
                "spark.eventLog.dir": (folder / "history").as_uri(),
            },
            "scratch": str(folder),
            "executor_python": None if executor_python is None else str(executor_python),
            "is_packed": archive is not None,
            "proxy": proxy,
            "gateway": gateway.location,
            "checkpoints": f"{FOLDER}/checkpoints",
            "history": f"{FOLDER}/batches",
            "queue": queue.path,
            "batch_rows": BATCH_ROWS,
        }
        stage = Stage(folder, cluster, gateway, queue, machines, flows, plan)
        plan["flows"] = {
            name: {
                **asdict(flow),
                "consumer": queue.add_consumer(f"{FOLDER}/{name}_consumer"),
                "target": QUERIES[flow.query].create_target(
                    client, stage.target(name), is_sorted=flow.is_sorted
                ),
            }
            for name, flow in flows.items()
        }
        yield stage
