"""The gateway as an HTTP server: sockets in front of `WebHdfs`, in a thread of this process.

Bodies are spooled to disk before Cypress sees them, so that an upload can be repeated, and an upload that
breaks off leaves nothing. Who does not know the secret gets neither disk nor time: the path is checked before
the body is read, and a connection whose request is not whole yet makes room for others.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from yt_exactly_once.checkpoints.webhdfs import PREFIX, Answer, Request, refusal
from yt_exactly_once.errors import ConfigError, ExactlyOnceError, RequestRefusedError

if TYPE_CHECKING:
    from yt_exactly_once.checkpoints.webhdfs import WebHdfs

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_THREADS = 32
"""How many requests are carried out at once; each thread has a client of its own."""

_IN_MEMORY = 4 * 1024 * 1024
_LARGEST_BODY = 4 * 1024**3
"""Spark's largest files are snapshots of a state store."""

_LARGEST_HEAD = 64 * 1024
_HEAD_SECONDS = 10.0
"""How long a request may take until its path can be checked."""

_BODY_SECONDS = 60.0
"""How long a body may pause."""

_OTHER_FILES = 96
"""Open files besides those of connections: of Python, the threads, and the way to the cluster."""

_BACKLOG = 512
_GRACE_SECONDS = 10
_START_SECONDS = 30


class _Door:
    """The connections of a gateway: as many as the process has files for, those with the secret first."""

    def __init__(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Each may have a body on disk.
        self._most = max(1, (files - _OTHER_FILES) // 2)
        self.inside: dict[_Connection, None] = {}

    def enter(self, connection: _Connection) -> None:
        """Take a connection, in the place of the oldest one that is not trusted."""
        if len(self.inside) >= self._most:
            oldest = next((one for one in self.inside if not one.is_trusted), connection)
            oldest.transport.abort()
            self.inside.pop(oldest, None)
            if oldest is connection:
                return
        self.inside[connection] = None


class _Connection(HttpToolsProtocol):
    """A connection that ends when its request does not become whole soon."""

    def __init__(self, door: _Door, **given: Any) -> None:
        super().__init__(**given)
        self.is_trusted = False
        self._door = door
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        self._door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self._door.inside.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _LARGEST_HEAD:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["yt.connection"] = self  # type: ignore[typeddict-unknown-key]
        self._await_head()

    def on_headers_complete(self) -> None:
        self._cancel()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._cancel()
        self._head_bytes = 0
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


@contextmanager
def serving(webhdfs: WebHdfs, host: str, port: int) -> Iterator[int]:
    """Serve in a thread, and give the port; raise `ConfigError` if the address cannot be listened on.

    At the end the requests under way are finished.
    """
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"The checkpoint gateway cannot listen on {host}:{port}: {error}",
            remedy="Pass an address of this machine and a free port; port 0 takes any",
        ) from error
    with listener, ThreadPoolExecutor(_THREADS, thread_name_prefix="yt-checkpoints") as pool:
        config = uvicorn.Config(
            _Application(webhdfs, pool),
            http=partial(_Connection, _Door()),  # type: ignore[arg-type]
            loop="asyncio",
            interface="asgi3",
            proxy_headers=False,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,  # it would log the secret
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, args=([listener],), name="yt-checkpoints-server", daemon=True
        )
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(_GRACE_SECONDS + _START_SECONDS)
            pool.shutdown(cancel_futures=True)


class _Application:
    """The gateway for one request after the other, as ASGI wants it."""

    def __init__(self, webhdfs: WebHdfs, pool: ThreadPoolExecutor) -> None:
        self._webhdfs = webhdfs
        self._pool = pool

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        connection: _Connection = scope["yt.connection"]
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            request = _request(scope, body)
            has_body = _has_body(scope)
            try:
                if not scope["path"].startswith(f"{PREFIX}/"):
                    raise RequestRefusedError(
                        "This is a gateway for Spark's checkpoints, and it speaks WebHDFS only",
                        remedy="Use a location that store.configure or store.url gives to Spark",
                    )
                answer = self._webhdfs.without_cluster(request)
                if answer is None:
                    connection.is_trusted = True
                    if request.takes_body:
                        request = replace(request, size=await _receive_body(receive, body))
                        has_body = False
                    answer = await self._in_thread(self._webhdfs.answer, request)
            except ExactlyOnceError as error:
                answer = refusal(error)
            except _BrokenOffError:
                connection.transport.abort()
                return
            await self._send(send, answer, has_body=has_body)
            connection.is_trusted = False

    async def _send(self, send: Send, answer: Answer, *, has_body: bool) -> None:
        headers = {"Content-Length": str(answer.size), **answer.headers}
        if has_body:
            # A body that nobody has read must not be taken for the next request.
            headers["Connection"] = "close"
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )
        # A piece that cannot be read ends the connection, and the client sees too few bytes.
        while (piece := await self._in_thread(next, answer.body, b"")) != b"":
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


class _BrokenOffError(Exception):
    """The client went away, or sends no more of a body."""


async def _receive_body(receive: Receive, body: Any) -> int:
    """Store the body of a request, and return its size; refuse one that is too large for gateway or disk."""
    size = 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), _BODY_SECONDS)
        except TimeoutError as error:
            raise _BrokenOffError from error
        if message["type"] != "http.request":
            raise _BrokenOffError
        piece = message.get("body", b"")
        size += len(piece)
        if size > _LARGEST_BODY:
            raise RequestRefusedError(
                f"The file has more than {_LARGEST_BODY} bytes, and the gateway takes no larger one",
                remedy="Give the query more shuffle partitions, so that the state of each is smaller",
            )
        try:
            body.write(piece)
        except OSError as error:
            raise RequestRefusedError(
                f"The gateway cannot store the file on its disk: {error.strerror}",
                remedy="Free space in its temporary directory, or set TMPDIR to another one",
            ) from error
        if not message.get("more_body"):
            body.seek(0)
            return size


def _has_body(scope: MutableMapping[str, Any]) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _request(scope: MutableMapping[str, Any], body: Any) -> Request:
    raw_path = scope["raw_path"].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return Request(
        method=scope["method"],
        path=unquote(raw_path).removeprefix(PREFIX),
        query={name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)},
        body=body,
        size=0,
        url=f"{scope['scheme']}://{host}{raw_path}?{query}",
    )
