"""Fixtures for tests that talk to a cluster over HTTP, whichever fixture `cluster` gives them."""

import http.client
import http.server
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from yt import yson
from yt.wrapper import YtResponseError

from yt_exactly_once.local import LocalCluster

STRICT: dict[str, Any] = {
    "producer_regress_on_skipped": True,
    "max_transaction_duration_seconds": 60.0,
}
"""What servers do, where some are kinder."""

HAZARDS: dict[str, Any] = {
    **STRICT,
    "registration_lag_seconds": 0.1,
    "visibility_delay_seconds": 0.05,
}
"""What a busy cluster does besides: others learn of commits and registrations a moment later."""

_NOT_REGISTERED = 901
_REGISTRATION_TRIES = 20
"""Registrations are known at the end of a second, and a lag later."""


class HazardousCluster(LocalCluster):
    """A cluster with hazards, whose own clients wait until what was committed can be seen.

    So a test judges the final state, and what is tested, with clients of its own, meets the hazards.

    Args:
        but: features that differ from `HAZARDS`.
    """

    def __init__(self, but: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(features={**HAZARDS, **(but or {})}, **options)

    def client(self, proxy_index: int = 0, **config: Any) -> Any:
        """Return a client whose reads come after the delay of all earlier commits."""
        client = super().client(proxy_index, **config)
        for name in ("select_rows", "pull_queue", "get_tablet_infos", "get", "trim_rows"):
            setattr(client, name, _after_delay(getattr(client, name)))
        for name in ("advance_queue_consumer", "pull_queue_consumer"):
            setattr(client, name, _once_registered(getattr(client, name)))
        return client


def _once_registered(act: Callable[..., Any]) -> Callable[..., Any]:
    """Repeat what a consumer may not do until its registration is known."""

    def wait_and_act(*args: Any, **options: Any) -> Any:
        for _ in range(_REGISTRATION_TRIES):
            try:
                return act(*args, **options)
            except YtResponseError as error:
                if not error.contains_code(_NOT_REGISTERED):
                    raise
            time.sleep(HAZARDS["registration_lag_seconds"])
        return act(*args, **options)

    return wait_and_act


def _after_delay(read: Callable[..., Any]) -> Callable[..., Any]:
    def wait_and_read(*args: Any, **options: Any) -> Any:
        time.sleep(HAZARDS["visibility_delay_seconds"])
        return read(*args, **options)

    return wait_and_read


@pytest.fixture
def client(cluster: Any) -> Any:
    return cluster.client()


@pytest.fixture
def tmp(client: Any, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    path = f"//tmp/{name}-{uuid.uuid4().hex[:8]}"
    client.create("map_node", path)
    return path


@pytest.fixture
def aborted() -> Any:
    """A context in which everything a client does belongs to a transaction that is aborted."""

    @contextmanager
    def enter(client: Any) -> Iterator[None]:
        transaction_id = client.start_transaction()
        with client.Transaction(transaction_id=transaction_id, ping=False):
            yield
        client.abort_transaction(transaction_id)

    return enter


@dataclass
class RawAnswer:
    """What came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def yson(self) -> Any:
        return yson.loads(self.body)

    @property
    def error(self) -> Any:
        return json.loads(self.headers["x-yt-error"])


class RawHttp:
    """A client that sends exactly what it is told to."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.host = url.removeprefix("http://")
        self.always = {"Authorization": f"OAuth {token}"} if token else {}

    def __call__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        chunked: bool = False,
    ) -> RawAnswer:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            connection.request(
                method, path, body, {**self.always, **(headers or {})}, encode_chunked=chunked
            )
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return RawAnswer(answer.status, found, answer.read())
        finally:
            connection.close()

    def exchange(self, data: bytes, *, finish: bool = False) -> bytes:
        """Send bytes; return all that comes back until the server closes."""
        address, port = self.host.split(":")
        with socket.create_connection((address, int(port)), timeout=30) as connection:
            connection.sendall(data)
            if finish:
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 20), b""))

    def command(
        self,
        method: str,
        name: str,
        parameters: Mapping[str, Any],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        """Run a command with parameters in JSON."""
        sent = {"X-YT-Parameters": json.dumps(parameters), **(headers or {})}
        return self(method, f"/api/v4/{name}", sent, body)


@pytest.fixture
def raw(cluster: Any) -> RawHttp:
    return RawHttp(cluster.proxy_urls[0], cluster.token)


@pytest.fixture
def sticky(cluster: Any) -> Any:
    """Clients that stay on one proxy, as a tablet transaction needs."""

    def connect(proxy: int = 0) -> Any:
        return cluster.client(proxy, proxy={"enable_proxy_discovery": False})

    return connect


@contextmanager
def served(answer: Callable[[str], tuple[int, Any]]) -> Iterator[str]:
    """Run a web server that answers a path with a status and JSON, or nothing for `None`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = answer(self.path)
            body = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815 - names of the standard library

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
