"""What stands on the machines: YTsaurus, Spark Standalone, and a driver with a query per flow."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.class_archive import SHORT_LIVED
from tests.flows import QUERIES, Queue, differences
from tests.machines.environment import ENVIRONMENT
from tests.machines.standalone import Standalone
from yt_exactly_once.checkpoints import checkpoints
from yt_exactly_once.child import Child
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from yt.wrapper import YtClient


@dataclass(frozen=True)
class Flow:
    """A query over the queue.

    Attributes:
        mode: of its sink.
        query: its name in `QUERIES`.
        is_sorted: whether its target has keys.
    """

    mode: str
    query: str
    is_sorted: bool


FLOWS = {
    "transactional": Flow("transactional", "stateless", is_sorted=False),
    "idempotent": Flow("idempotent", "stateless", is_sorted=False),
    # Without keys this mode may repeat rows: with them it must be exact too.
    "at-least-once": Flow("at-least-once", "stateless", is_sorted=True),
    "stateful": Flow("transactional", "aggregation", is_sorted=True),
}
"""Every mode, and a query with state and a shuffle."""

BATCH_ROWS = 400
"""Rows that a batch takes of a partition."""

_FOLDER = "//home/machines"
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


@dataclass(frozen=True)
class Stage:
    """All of it, while it runs.

    Attributes:
        client: of the cluster.
        queue: that the queries read.
        targets: of each flow.
        machines: where the tasks run.
        driver: tells `progress` with flow and batch, and `failed` with flow and error.
        history: folder of Spark's event log.
    """

    client: YtClient
    queue: Queue
    targets: dict[str, str]
    machines: Standalone
    driver: Child
    history: Path

    def wrong(self) -> list[str]:
        """Return what the targets have and must not have, or the other way round."""
        wrong = []
        for name, flow in FLOWS.items():
            query = QUERIES[flow.query]
            must = query.must_hold(self.queue, BATCH_ROWS, is_sorted=flow.is_sorted)
            differs = differences(query.found(self.client, self.targets[name]), must)
            if differs:
                wrong.append(f"{name}: {differs}")
        return wrong


@contextmanager
def open_stage(
    folder: Path, *, executor_python: Path | None = None, archive: Path | None = None
) -> Iterator[Stage]:
    """Start everything, with an empty queue; end it with the block.

    Args:
        folder: for all files; must be there.
        executor_python: interpreter of the executors; by default the driver's.
        archive: packed environment that is all that executors have; by default they have the driver's.
    """
    history = folder / "history"
    history.mkdir()
    with (
        LocalCluster(folder / "cluster", proxies=2) as cluster,
        checkpoints(proxy=cluster.proxy_urls[0]) as store,
        Standalone(folder, bare=archive is not None) as machines,
    ):
        client = cluster.client()
        queue = Queue.create(client, _FOLDER)
        targets = {
            name: QUERIES[flow.query].create_target(
                client, f"{_FOLDER}/{name}_target", is_sorted=flow.is_sorted
            )
            for name, flow in FLOWS.items()
        }
        plan: dict[str, Any] = {
            "settings": {
                **_SETTINGS,
                # No attempt finds a package that is not there.
                **({"spark.task.maxFailures": "1"} if executor_python else {}),
                **({"spark.archives": f"{archive}#{ENVIRONMENT}"} if archive else {}),
                "spark.master": machines.url,
                "spark.eventLog.dir": history.as_uri(),
            },
            "scratch": str(folder),
            "executor_python": None if executor_python is None else str(executor_python),
            "is_packed": archive is not None,
            "proxy": cluster.proxy_urls[0],
            "gateway": store.url(f"{_FOLDER}/checkpoints"),
            "checkpoints": f"{_FOLDER}/checkpoints",
            "queue": queue.path,
            "batch_rows": BATCH_ROWS,
            "flows": {
                name: {
                    "query": flow.query,
                    "mode": flow.mode,
                    "consumer": queue.add_consumer(f"{_FOLDER}/{name}_consumer"),
                    "target": targets[name],
                }
                for name, flow in FLOWS.items()
            },
        }
        with Child(
            "tests.machines.driver",
            lambda descriptor: json.dumps({**plan, "report": descriptor}),
            folder / "driver.log",
        ) as driver:
            yield Stage(client, queue, targets, machines, driver, history)
