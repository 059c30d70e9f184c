"""Spark Connect under attack: clients and servers die in mid-batch or take turns; every row is compared."""

from __future__ import annotations

import secrets
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.flows import STATELESS, Queue, differences, passed_on
from tests.integration.connect_server import ROWS_PER_PARTITION, Flow, Server
from yt_exactly_once.local import LocalCluster

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_200)]

PATIENCE_SECONDS = 120
LOOK_SECONDS = 0.05
HEAD_START_SECONDS = 3.0
"""For the next run to get as far as it can beside the one that is held."""

COMPUTED, COMMITTED = "batch.computed", "batch.committed"
PAGES = ("connect", "SQL", "StreamingQuery", "environment", "jobs", "api/v1/applications")
REDACTED = r'(?s)key: "(?i:token)"\s*value: "[^"]*"'
"""What docs/security.md advises for `spark.sql.redaction.string.regex`."""


@pytest.fixture(scope="module")
def server(tmp_path_factory, interpreter) -> Iterator[Server]:
    """A server that its clients outlive, and the reverse."""
    with Server(tmp_path_factory.mktemp("connect"), interpreter) as server:
        yield server


@pytest.fixture
def flow(server, cluster, tmp, tmp_path):
    """Make a flow with a client of its own."""

    def make(name: str = "a", *, target: str = "") -> Flow:
        return flow_of(server, cluster, f"{tmp}/{name}", tmp_path / name, target)

    return make


def flow_of(server: Server, cluster: LocalCluster, folder: str, files: Path, target: str) -> Flow:
    client = cluster.client()
    client.create("map_node", folder, recursive=True)
    files.mkdir()
    return Flow(
        server.client(),
        Queue.filled(client, folder, 3 * ROWS_PER_PARTITION, partitions=2),
        STATELESS,
        False,
        target or STATELESS.create_target(client, f"{folder}/target", is_sorted=False),
        cluster.proxy_urls[0],
        str(files / "checkpoint"),
        "append",
    )


@dataclass
class Hold:
    """Holds the sink of a flow at an event, from the start of the flow on."""

    flow: Flow
    event: str

    def start(self, way: str = "function", **options: object) -> Hold:
        """Start the flow, and wait until its sink is held."""
        self._folder = Path(self.flow.checkpoint).parent
        self.flow.held = str(self._folder), self.event
        (self._folder / "hold").touch()
        given = self.flow.asked(way, numbered=True, **options)
        assert self.flow.client.call("start", **given) == ("", "")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (self._folder / "held").exists():
            assert time.monotonic() < deadline
            time.sleep(LOOK_SECONDS)
        return self

    def release(self) -> None:
        """Let the sink go on."""
        (self._folder / "hold").unlink()


@pytest.mark.parametrize(
    ("mode", "event"),
    [("transactional", COMPUTED), ("transactional", COMMITTED), ("idempotent", COMPUTED)],
)
@pytest.mark.parametrize("end", ["stop", "close", "kill client", "kill server"])
def test_run_that_ends_in_mid_batch_is_repeated_by_another_client(server, flow, mode, event, end):
    """The next run begins while the sink of the old one is held, and may go on after it."""
    ended = flow()
    hold = Hold(ended, event).start(mode=mode)
    match end:
        case "stop":
            ended.client.ask("stop", checkpoint=ended.checkpoint)
        case "close":
            ended.client.ask("close")
        case "kill client":
            ended.client.kill()
        case "kill server":
            server.kill()
            server.start()
    again = replace(ended, client=server.client(), held=None)
    again.client.ask("run", **again.asked("function", numbered=True, mode=mode))
    time.sleep(HEAD_START_SECONDS)
    hold.release()
    assert again.client.answer() == ("", "")
    again.assert_exact()


@pytest.mark.parametrize("way", ["function", "format"])
@pytest.mark.parametrize("shared", ["target", "checkpoint"])
def test_two_clients_at_once(flow, shared, way):
    """Two queries may write one target. Of one query the later start ends the earlier one."""
    one = flow("a")
    two = flow("b", target=one.target)
    rows = passed_on(one.queue) + passed_on(two.queue)
    if shared == "checkpoint":
        two, rows = replace(one, client=two.client), passed_on(one.queue)
    for each in (one, two):
        each.client.ask("run", **each.asked(way, numbered=True))
    assert [each.client.answer() for each in (one, two)] == [("", "")] * 2
    assert two.run(way, numbered=True) == ("", "")
    assert differences(STATELESS.found(one.queue.client, one.target), sorted(rows)) == ""


def test_two_modes_in_one_session(flow):
    """The processes of two queries know nothing of each other."""
    one = flow("a")
    two = replace(flow("b"), client=one.client)
    for each, mode in ((one, "transactional"), (two, "idempotent")):
        given = each.asked("function", numbered=True, mode=mode)
        assert one.client.call("start", **given) == ("", "")
    for each in (one, two):
        assert one.client.call("finish", checkpoint=each.checkpoint) == ("", "")
        each.assert_exact()


@pytest.mark.parametrize("mode", ["transactional", "idempotent"])
def test_swallowed_error_stops_the_next_client(server, flow, mode):
    """The note of the batch is in the checkpoint, which the server keeps."""
    swallowed = flow()
    hold = Hold(swallowed, "ledger.read").start("swallowing", mode=mode)
    client, target = swallowed.queue.client, swallowed.target
    client.unmount_table(target, sync=True)
    hold.release()
    done = swallowed.client.call("finish", checkpoint=swallowed.checkpoint)
    assert done == ("", "")
    client.mount_table(target, sync=True)
    swallowed.queue.append(1)
    again = replace(swallowed, client=server.client(), held=None)
    for way in ("function", "format"):
        error, kind = again.run(way, numbered=True, mode=mode)
        assert kind == "IncompleteBatchError", error


@pytest.mark.parametrize("other", ["ended", "of another session"])
def test_checkpoint_of_another_query_is_refused_before_anything_is_written(flow, other):
    """The session knows which queries it runs."""
    one, two = flow("a"), flow("b")
    if other == "ended":
        two.client = one.client
        assert one.run("function", numbered=True) == ("", "")
    else:
        hold = Hold(one, COMPUTED).start()
    error, kind = two.run("function", numbered=True, checkpoint_location=one.checkpoint)
    assert kind == "ConfigError", error
    assert "checkpoint of another query" in error
    assert STATELESS.found(two.queue.client, two.target) == []
    if other != "ended":
        hold.release()
        assert one.client.call("finish", checkpoint=one.checkpoint) == ("", "")
    one.assert_exact()
    # Spark has logged its first batch: nobody but the user knows that no sink has written it.
    assert two.run("function", numbered=True, new_ledger=True) == ("", "")
    two.assert_exact()


def test_relative_checkpoint_is_that_of_the_server(server, flow):
    """Client and server work in different folders."""
    relative = flow()
    relative.checkpoint = f"relative-{secrets.token_hex(4)}"
    assert relative.run("function", numbered=True) == ("", "")
    relative.assert_exact()
    assert (server.folder / relative.checkpoint / "commits").exists()


def test_token_is_in_no_outlet_of_the_server(tmp_path, interpreter):
    """The log, the event log with the statements of clients, the UI, and what travels on command lines."""
    token = secrets.token_hex(16)
    folder = tmp_path / "server"
    (folder / "events").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": port,
        "spark.log.level": "INFO",
        "spark.sql.redaction.string.regex": REDACTED,
    }
    outlets = {}
    with (
        LocalCluster(tmp_path / "cluster", token=token) as cluster,
        Server(folder, interpreter, **settings) as server,
    ):
        for way in ("function", "format"):
            told = flow_of(server, cluster, f"//tmp/{way}", tmp_path / way, "")
            told.options["token"] = token
            if way == "function":
                hold = Hold(told, COMPUTED).start()
                for process in Path("/proc").glob("[0-9]*/cmdline"):
                    outlets[str(process)] = process.read_bytes().decode("latin-1")
                hold.release()
                assert told.client.call("finish", checkpoint=told.checkpoint) == ("", "")
            else:
                assert told.run(way, numbered=True) == ("", "")
            told.assert_exact()
        for page in PAGES:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}/") as answer:
                outlets[page] = answer.read().decode()
    for path in folder.rglob("*"):
        if path.is_file():
            outlets[str(path)] = path.read_bytes().decode("latin-1")
    assert [name for name, text in outlets.items() if token in text] == []
    assert any("*********(redacted)" in text for text in outlets.values())
