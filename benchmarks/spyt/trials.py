"""A trial: one scenario on one contender, with its queues, its target and its checkpoint."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spyt import environments, work
from benchmarks.spyt.drivers import Driver

if TYPE_CHECKING:
    from yt.wrapper import YtClient

    from benchmarks.spyt.environments import Environment
    from yt_exactly_once.local import LocalCluster

CORES = 2
_APART = 1_000_000
"""Between the ids of two queues."""


@dataclass(frozen=True)
class Contender:
    """Who does the work.

    Attributes:
        name: as reports have it.
        is_ours: whether it is our sink.
        backend: protocol that our sink and source speak.
        transactional: whether SPYT's transactional mode is on.
        spyt: version of SPYT.
        pyspark: version that SPYT runs on; empty for the one that is installed here.
    """

    name: str
    is_ours: bool
    backend: str = "rpc"
    transactional: bool = False
    spyt: str = environments.SPYT
    pyspark: str = environments.PYSPARK


CONTENDERS = (
    Contender("SPYT transactional", is_ours=False, transactional=True),
    Contender("SPYT default", is_ours=False),
    Contender("ours over HTTP", is_ours=True, backend="http", pyspark=""),
    Contender("ours over RPC", is_ours=True, pyspark=""),
)
"""Who takes part where nobody is named."""

OTHER_VERSIONS = (
    Contender(
        "SPYT transactional, PySpark 4.2",
        is_ours=False,
        transactional=True,
        pyspark=environments.NEWEST_PYSPARK,
    ),
    Contender("SPYT default, PySpark 4.2", is_ours=False, pyspark=environments.NEWEST_PYSPARK),
    Contender(
        "SPYT alpha transactional", is_ours=False, transactional=True, spyt=environments.SPYT_ALPHA
    ),
)
"""SPYT in versions that show what has been fixed, and what depends on Spark."""

SAME_SPARK = (
    *(who for who in OTHER_VERSIONS if who.pyspark == environments.NEWEST_PYSPARK),
    Contender(
        "ours over HTTP, PySpark 4.2",
        is_ours=True,
        backend="http",
        pyspark=environments.NEWEST_PYSPARK,
    ),
)
"""Who is measured: what differs between them is not Spark's."""

ALL_CONTENDERS = (*CONTENDERS, *OTHER_VERSIONS, *SAME_SPARK[-1:])


@dataclass
class Stage:
    """What all trials share.

    Attributes:
        cluster: the embedded cluster.
        cache: where SPYT's environment is.
        folder: for logs, specs and checkpoints.
        hurried: whether JVMs are to start quickly rather than run fast.
    """

    cluster: LocalCluster
    cache: Path
    folder: Path
    hurried: bool = False
    client: YtClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.cluster.client()

    def environment(self, contender: Contender) -> Environment:
        """Return where the drivers of a contender run."""
        made = (
            environments.ours(self.cache, contender.pyspark)
            if contender.is_ours
            else environments.spyt(self.cache, contender.spyt, contender.pyspark)
        )
        if self.hurried:
            made.variables["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        return made


@dataclass(frozen=True)
class Verdict:
    """What came of a trial.

    Attributes:
        word: `exact`, `wrong`, `stuck` (the query runs and reads no more) or `stopped` (by an error).
        difference: of the target and what it must hold.
        unread: rows that the consumers have before them.
        drivers: how many there were.
        error: first line of what the last driver failed with.
    """

    word: str
    difference: work.Difference
    unread: int
    drivers: int
    error: str = ""


class Trial(AbstractContextManager["Trial"]):
    """One query of one contender; leaving the block clears the faults of the cluster.

    Args:
        stage: where it happens.
        contender: who.
        shape: what is computed, see `job`.
        queues: how many queues of one partition are made and read.
        queue: the one to read instead.
        limit: `max_rows_per_partition`.
        tablets: of an ordered target.
        is_sorted: whether the target is sorted by where its rows come from.
        cores: Spark's master, where two cores are not what is wanted.
        spec: what else the drivers are told.
    """

    def __init__(
        self,
        stage: Stage,
        contender: Contender,
        shape: str = "copy",
        *,
        queues: int = 1,
        queue: work.Queue | None = None,
        limit: int | None = None,
        tablets: int = 1,
        is_sorted: bool = False,
        cores: str = f"local[{CORES}]",
        **spec: Any,
    ) -> None:
        self.stage = stage
        self.contender = contender
        self.shape = shape
        self.queues = [
            queue or work.Queue.create(stage.client, first=number * _APART)
            for number in range(queues)
        ]
        self.target = f"//home/spyt/{uuid.uuid4().hex}/target"
        types = work.TARGET_TYPES[shape]
        if is_sorted:
            types, keys = {**work.SERVICE_TYPES, **types}, tuple(work.SERVICE_TYPES)
            work.create_table(stage.client, self.target, types, keys)
        else:
            work.create_table(stage.client, self.target, types, tablet_count=tablets)
        self.folder = Path(tempfile.mkdtemp(dir=stage.folder))
        self.checkpoint = self.folder / "checkpoint"
        self.drivers = 0
        self._in_order = queues == 1 and shape == "copy"
        self._is_sorted = is_sorted
        self._options: dict[str, Any] = {"include_service_columns": is_sorted}
        if limit is not None:
            self._options["max_rows_per_partition"] = limit
        self._cores = cores
        self._spec = spec

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stage.cluster.clear_faults()
        if kind is None:
            shutil.rmtree(self.folder)

    def append(self, count: int) -> None:
        """Add so many rows to every partition of every queue."""
        for queue in self.queues:
            queue.append(count)

    def driver(self, **spec: Any) -> Driver:
        """Start a driver on the checkpoint."""
        self.drivers += 1
        environment = self.stage.environment(self.contender)
        told = {
            "is_ours": self.contender.is_ours,
            "backend": self.contender.backend,
            "proxy": self.stage.cluster.proxy_urls[0],
            "conf": self._conf(),
            "sources": [{"queue": q.path, "consumer": q.consumer} for q in self.queues],
            "options": self._options,
            "shape": self.shape,
            "window_seconds": work.WINDOW_SECONDS,
            "target": self.target,
            "checkpoint": str(self.checkpoint),
            "patience": 4,
        }
        return Driver(environment, {**told, **self._spec, **spec}, self.folder)

    def run(self, **spec: Any) -> dict[str, Any]:
        """Let a driver run until it has nothing to read, or fails; return that event."""
        with self.driver(**spec) as driver:
            return driver.finish()

    def die_between(self) -> None:
        """Kill a driver between its two commits: the one on the cluster, and Spark's note of the batch.

        Our sink commits first, so it is killed when it has returned. SPYT commits after Spark's note, so
        it is killed when the request for the commit is on its way; the request is never executed.
        """
        batch = self.next_batch()
        if self.contender.is_ours:
            with self.driver(pause_after=batch) as driver:
                driver.wait(lambda: driver.last("paused"))
            return
        cluster = self.stage.cluster
        for action in ("delay", "lose_request"):
            cluster.inject(action, "commit_transaction", writes_to="*", seconds=600)
        with self.driver() as driver:
            driver.wait(lambda: cluster.faults()[0]["hits"])
        cluster.clear_faults()
        assert self.has_logged(batch), (
            "SPYT commits before Spark's note: the scenario is out of date"
        )

    def next_batch(self) -> int:
        """Return the batch that a new driver begins with."""
        return max(self._logged(), default=-1) + 1

    def has_logged(self, batch: int) -> bool:
        """Tell whether Spark has noted that a batch is complete."""
        return batch in self._logged()

    def forget_last_batch(self) -> None:
        """Remove Spark's note of the last batch, as a crash of its disk would."""
        last = max(self._logged())
        for name in (str(last), f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def verdict(self, ended: dict[str, Any]) -> Verdict:
        """Judge what is there after the last driver has ended in that way."""
        client = self.stage.client
        compared = work.difference(
            work.found(client, self.target, self.shape, is_sorted=self._is_sorted),
            work.expected(self.shape, self.queues),
            in_order=self._in_order,
        )
        unread = sum(queue.unread() for queue in self.queues)
        error = ""
        word = "exact" if compared.is_exact else "wrong"
        if ended["event"] == "failed":
            word, error = "stopped", _short(ended["error"])
        elif unread and compared.lost:
            word = "stuck"
        return Verdict(word, compared, unread, self.drivers, error)

    def _logged(self) -> list[int]:
        return [int(p.name) for p in (self.checkpoint / "commits").glob("*") if p.name.isdigit()]

    def _conf(self) -> dict[str, str]:
        conf = {
            "spark.master": self._cores,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.sql.session.timeZone": "UTC",
        }
        if not self.contender.is_ours:
            conf |= {
                "spark.hadoop.yt.proxy": self.stage.cluster.proxy_urls[0].removeprefix("http://"),
                "spark.hadoop.yt.user": "root",
                "spark.hadoop.yt.token": "none",
                "spark.yt.streaming.transactional": str(self.contender.transactional).lower(),
                "spark.ytsaurus.rpc.job.proxy.enabled": "false",
            }
        return conf


def _short(error: str) -> str:
    """Return the part of an error that says what happened."""
    named = re.search(r"[\w.]*(?:DataLossError|Transaction affects too many rows)[^\n]*", error)
    return (named.group() if named else error.splitlines()[0])[:300]
