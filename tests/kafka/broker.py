"""A real Kafka broker, alone in KRaft mode."""

import signal
import socket
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Timer
from typing import Any, Self

_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.1
_CLUSTER_ID = "eXRleGFjdGx5b25jZS0wMA"

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# What is deleted and compacted goes soon.
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=100
log.cleaner.backoff.ms=500
"""


class Broker(AbstractContextManager["Broker"]):
    """Runs until the block ends; data survive `kill` and `start`.

    Args:
        jars: folder with the JARs of Kafka.
        folder: for its data and its log.
    """

    def __init__(self, jars: Path, folder: Path) -> None:
        self._jars, self._folder = jars, folder
        port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
        self._java(
            "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", self._settings
        ).wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._java("kafka.Kafka", self._settings)
        host, _, port = self.address.partition(":")
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(_LOOK_SECONDS)
            else:
                return
        raise AssertionError((self._folder / "broker.log").read_text()[-2_000:])

    def kill(self) -> None:
        """Kill it where it stands."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def start_later(self, seconds: float) -> None:
        """Start it in the background, after so many seconds."""
        Timer(seconds, self.start).start()

    def kill_later(self, seconds: float) -> None:
        """Kill it in the background, after so many seconds, and start it again."""
        Timer(seconds, lambda: (self.kill(), self.start())).start()

    def _java(self, main: str, *arguments: Any) -> subprocess.Popen[bytes]:
        memory = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        command = ["java", *memory, "-cp", f"{self._jars}/*", main, *map(str, arguments)]
        with (self._folder / "broker.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
