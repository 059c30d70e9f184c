"""A server of Spark Connect in a process of its own, and its clients."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tests.flows import Query, Queue, differences
from yt_exactly_once.testing.child import kill_session

ROWS_PER_PARTITION = 500
_START_SECONDS = 180
_LOOK_SECONDS = 0.2


class Server(AbstractContextManager["Server"]):
    """A server as `sbin/start-connect-server.sh` starts it, which only some versions bring.

    Args:
        folder: its working folder, with its log.
        settings: of Spark, beside the usual ones.
    """

    def __init__(self, folder: Path, interpreter: str, **settings: Any) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        home = Path(pyspark.__file__).parent
        self.environment = {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(home),
            "SPARK_LOG_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": interpreter,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        settings = {
            "spark.connect.grpc.binding.port": self._port,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": folder,
            **settings,
        }
        self._command = ["bash", str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        self._command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        self._command += [
            part for name, value in settings.items() for part in ("--conf", f"{name}={value}")
        ]
        self._clients: list[Client] = []
        self.log = folder / "server.log"
        self.start()

    @property
    def address(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, again where it was killed."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(_LOOK_SECONDS)
            else:
                return
        raise AssertionError(f"The server does not listen:\n{self.log.read_text()[-3_000:]}")

    def client(self) -> Client:
        """Start a client, which works in another folder."""
        number = len(self._clients)
        folder = self.folder / f"client-{number}"
        folder.mkdir()
        self._clients.append(Client(self, folder))
        return self._clients[-1]

    def kill(self) -> None:
        """Kill it with all processes that it has started."""
        assert kill_session(self._process) == []

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.kill()
        self.kill()


class Client:
    """A process that has queries on the server; see `tests.integration.connect`."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._log = folder / "client.log"
        self.address = server.address
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.connect", server.address],
                env=server.environment,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

    def kill(self) -> None:
        """Kill it; the server is not told."""
        self._process.kill()
        self._process.communicate()

    def ask(self, do: str, **asked: Any) -> None:
        self._process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> tuple[str, str]:
        """Return the error of the call and its class; empty for none."""
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()[-3_000:]
        error, kind = json.loads(answer)
        return error, kind

    def call(self, do: str, **asked: Any) -> tuple[str, str]:
        self.ask(do, **asked)
        return self.answer()


@dataclass
class Flow:
    """A query of a known kind between a queue and a target, run on the server.

    Attributes:
        held: event at which the sink waits, and the folder of `tests.integration.connect.Held`.
        settings: of the session, while the query starts.
        source_name: of the source; empty without one.
    """

    client: Client
    queue: Queue
    query: Query
    is_sorted: bool
    target: str
    proxy: str
    checkpoint: str
    output_mode: str
    held: tuple[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    source_name: str = ""

    def asked(self, way: str, *, numbered: bool = False, **options: Any) -> dict[str, Any]:
        """Return what `Queries.start` takes."""
        if way != "format":
            options = {"checkpoint_location": self.checkpoint, **options}
        return {
            "way": way,
            "kind": self.query.name,
            "queue": self.queue.path,
            "consumer": self.queue.consumer,
            "target": self.target,
            "proxy": self.proxy,
            "checkpoint": self.checkpoint,
            "rows_per_partition": ROWS_PER_PARTITION,
            "output_mode": self.output_mode,
            "numbered": numbered,
            "options": self.options | options,
            "settings": self.settings,
            "source_name": self.source_name,
            "held": self.held,
        }

    def run(self, way: str, **given: Any) -> tuple[str, str]:
        """Run it to the end of its queue; return the error and its class."""
        return self.client.call("run", **self.asked(way, **given))

    def wrong(self) -> str:
        """Compare the target with the queue; empty when it is exactly right."""
        expected = self.query.must_hold(self.queue, ROWS_PER_PARTITION, is_sorted=self.is_sorted)
        return differences(self.query.found(self.queue.client, self.target), expected)

    def assert_exact(self) -> None:
        assert self.wrong() == ""
