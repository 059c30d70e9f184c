"""Spark Connect: a server of its own, and a client without a JVM; what works there and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.flows import (
    AGGREGATION,
    QUEUE_TYPES,
    STATELESS,
    Query,
    Queue,
    columns,
    create_table,
    differences,
    ledger_entries,
)
from tests.integration.streams import forget_last_batch
from yt_exactly_once.demo.child import kill_session

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_200)]

BARE = """
import sys
from importlib.util import find_spec
from pyspark.sql import SparkSession
assert find_spec("yt_exactly_once") is None and find_spec("yt") is None
address, proxy, queue, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
rows = spark.readStream.format("yt").option("proxy", proxy).load(queue)
writer = rows.writeStream.format("yt").option("proxy", proxy).trigger(availableNow=True)
query = writer.option("checkpointLocation", checkpoint).start(target)
assert query.awaitTermination(280)
read = spark.read.format("yt").option("proxy", proxy).load(queue)
for _ in range(2):
    job = read.write.format("yt").option("proxy", proxy).mode("append")
    job.option("application", "bare").option("version", 1).save(target)
print(read.count())
"""
"""A client that has `pyspark-client` alone: it streams, writes a job twice, and reads."""

MODES = ["transactional", "idempotent", "at-least-once"]
ROWS_PER_PARTITION = 500
_START_SECONDS = 180
_LOOK_SECONDS = 0.2


@pytest.fixture(scope="module")
def connect(tmp_path_factory, interpreter) -> Iterator[Client]:
    """A server as `sbin/start-connect-server.sh` starts it, which only some versions bring, and a client."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "SPARK_HOME": str(home),
        "SPARK_LOG_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": interpreter,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder,
    }
    command = ["bash", str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await_port(port, server, log)
        with Client.start(f"sc://127.0.0.1:{port}", environment, folder / "client.log") as client:
            yield client
    finally:
        assert kill_session(server) == []


def _await_port(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_LOOK_SECONDS)
        else:
            return
    raise AssertionError(f"The server does not listen:\n{log.read_text()[-3_000:]}")


@dataclass
class Client(AbstractContextManager["Client"]):
    """A process that runs queries on the server; see `tests.integration.connect`."""

    process: subprocess.Popen[str]
    log: Path

    @classmethod
    def start(cls, address: str, environment: dict[str, str], log: Path) -> Client:
        with log.open("w") as output:
            return cls(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.integration.connect", address],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                ),
                log,
            )

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def run(self, **asked: Any) -> tuple[str, str]:
        """Run a query; return the error that ended it and its class, empty for the end of its queue."""
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.log.read_text()[-3_000:]
        error, kind = json.loads(answer)
        return error, kind


@dataclass
class Flow:
    """A query of a known kind between a queue and a target, run on the server."""

    connect: Client
    queue: Queue
    query: Query
    is_sorted: bool
    target: str
    proxy: str
    checkpoint: Path
    output_mode: str
    asked: dict[str, Any] = field(default_factory=dict)

    def run(self, way: str, *, numbered: bool = False, **options: Any) -> tuple[str, str]:
        """Run it to the end of its queue; return the error and its class."""
        if way == "function":
            options = {"checkpoint_location": str(self.checkpoint), **options}
        return self.connect.run(
            way=way,
            kind=self.query.name,
            queue=self.queue.path,
            consumer=self.queue.consumer,
            target=self.target,
            proxy=self.proxy,
            checkpoint=str(self.checkpoint),
            rows_per_partition=ROWS_PER_PARTITION,
            output_mode=self.output_mode,
            numbered=numbered,
            options=options,
        )

    def assert_exact_over_a_replay(self, way: str, **options: Any) -> None:
        """Run it, let Spark forget the last batch, add rows, and run it again."""
        for _ in range(2):
            assert self.run(way, **options) == ("", "")
            expected = self.query.must_hold(
                self.queue, ROWS_PER_PARTITION, is_sorted=self.is_sorted
            )
            assert differences(self.query.found(self.queue.client, self.target), expected) == ""
            forget_last_batch(self.checkpoint)
            for partition in range(len(self.queue.rows)):
                self.queue.append(ROWS_PER_PARTITION, partition)


@pytest.fixture
def flow(connect, client, cluster, tmp, tmp_path):
    """Make a flow."""

    def make(query: Query = STATELESS, *, is_sorted: bool = False, output_mode: str = "") -> Flow:
        queue = Queue.filled(client, tmp, 2 * ROWS_PER_PARTITION)
        return Flow(
            connect,
            queue,
            query,
            is_sorted,
            query.create_target(client, f"{tmp}/target", is_sorted=is_sorted),
            cluster.proxy_urls[0],
            tmp_path / "checkpoint",
            output_mode or query.output_mode,
        )

    return make


@pytest.fixture
def bare(tmp_path):
    """The interpreter of an environment with Spark's client, and nothing else.

    A client may be older than the server, and some versions of Spark have none in the registry.
    """
    venv.create(tmp_path / "client", with_pip=True)
    python = tmp_path / "client" / "bin" / "python"
    wanted = f"pyspark-client<={pyspark.__version__}"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", wanted], check=True)
    return python


def test_client_without_the_package_streams_writes_a_job_and_reads(
    connect, client, cluster, tmp, tmp_path, bare
):
    """The format is on the server."""
    queue = Queue.filled(client, tmp, rows=100, partitions=2)
    target = create_table(client, f"{tmp}/target", columns(QUEUE_TYPES))
    command = [bare, "-I", "-c", BARE, connect.process.args[-1], cluster.proxy_urls[0]]
    done = subprocess.run(
        [*command, queue.path, target, str(tmp_path / "checkpoint")],
        # The client of Spark 4.2.0 ends at once without it; any folder serves.
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.split() == ["200"]
    found = Counter(row["id"] for row in client.select_rows(f"id from [{target}]"))
    assert found == Counter({row["id"]: 2 for part in queue.rows for row in part})


@pytest.mark.parametrize("way", ["format", "function"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_exact_over_a_replay(flow, mode, way):
    """With rows that carry their source, which idempotent mode needs there."""
    flow().assert_exact_over_a_replay(way, mode=mode, numbered=True)


def test_complete_result_is_replaced_by_the_format(flow):
    """Spark tells a writer the output mode."""
    flow(AGGREGATION, is_sorted=True, output_mode="complete").assert_exact_over_a_replay(
        "format", write="replace"
    )


def test_stateful_query_is_exact_over_a_replay(flow):
    """With the sink, which evaluates the replay for its state."""
    flow(AGGREGATION, is_sorted=True).assert_exact_over_a_replay("function")


@pytest.mark.parametrize(
    ("way", "output_mode", "options", "message", "kind"),
    [
        ("function", "update", {"checkpoint_location": None}, "has no JVM to ask", "ConfigError"),
        ("function", "complete", {"write": "replace"}, "(Spark Connect)", "ConfigError"),
        ("function", "append", {"mode": "idempotent"}, "rows are shuffled", "ConfigError"),
        ("format", "update", {}, "does not support Update mode", ""),
        ("format", "append", {"dyn_batch_sise": "5"}, "Did you mean", "ConfigError"),
    ],
    ids=["no checkpoint", "replace", "unnumbered", "update", "unknown option"],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    flow, way, output_mode, options, message, kind
):
    """The error says what is missing, and what `exactly_once_error` reads from it is typed."""
    query, is_sorted = (STATELESS, False) if output_mode == "append" else (AGGREGATION, True)
    refused = flow(query, is_sorted=is_sorted, output_mode=output_mode)
    error, found = refused.run(way, **options)
    assert message in error
    assert found == kind, error
    assert query.found(refused.queue.client, refused.target) == []
    assert ledger_entries(refused.queue.client, f"{refused.target}_ledger") == []
    assert refused.queue.stored() == {}
