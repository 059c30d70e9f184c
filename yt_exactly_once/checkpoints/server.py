"""The gateway as an HTTP server: sockets in front of `WebHdfs`, in a thread of this process.

Bodies are spooled to disk before Cypress sees them, so that an upload can be repeated, and an upload that
breaks off leaves nothing.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import uvicorn

from yt_exactly_once.checkpoints.webhdfs import PREFIX, Answer, Request, refusal
from yt_exactly_once.errors import ConfigError, RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from yt_exactly_once.checkpoints.webhdfs import WebHdfs

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_THREADS = 32
"""How many requests are carried out at once; each thread has a client of its own."""

_IN_MEMORY = 4 * 1024 * 1024
_BACKLOG = 512
_GRACE_SECONDS = 10
_START_SECONDS = 30


class GatewayServer:
    """Listens from its construction, and serves between `start` and `stop`.

    Args:
        webhdfs: answers the requests.
        host: address to listen on.
        port: 0 takes any.

    Raises:
        ConfigError: the address is taken or is not one of this machine.
    """

    def __init__(self, webhdfs: WebHdfs, host: str, port: int) -> None:
        self._webhdfs = webhdfs
        try:
            self._listener = socket.create_server((host, port), backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"The checkpoint gateway cannot listen on {host}:{port}: {error}",
                remedy="Pass an address of this machine and a free port; port 0 takes any",
            ) from error
        self.port: int = self._listener.getsockname()[1]
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="yt-checkpoints")
        config = uvicorn.Config(
            self._application,
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
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._serve, name="yt-checkpoints-server", daemon=True
        )

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests under way, and serve no more."""
        self._server.should_exit = True
        self._thread.join(_GRACE_SECONDS + _START_SECONDS)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._listener.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._listener]))

    async def _application(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            size = await _receive_body(receive, body)
            if size is None:
                return
            request = _request(scope, body, size)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._pool, self._answer, scope["path"], request)
            headers = {"Content-Length": str(answer.size), **answer.headers}
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status,
                    "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
                }
            )
            # A piece that cannot be read ends the connection, and the client sees too few bytes.
            while (piece := await loop.run_in_executor(self._pool, next, answer.body, b"")) != b"":
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _answer(self, path: str, request: Request) -> Answer:
        if not path.startswith(f"{PREFIX}/"):
            return refusal(
                RequestRefusedError(
                    "This is a gateway for Spark's checkpoints, and it speaks WebHDFS only",
                    remedy="Use the URL that store.url() returns as the checkpointLocation",
                )
            )
        return self._webhdfs.answer(request)


async def _receive_body(receive: Receive, body: Any) -> int | None:
    """Store the body of a request; return its size, or `None` when the client went away."""
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece = message.get("body", b"")
        body.write(piece)
        size += len(piece)
        if not message.get("more_body"):
            body.seek(0)
            return size


def _request(scope: MutableMapping[str, Any], body: Any, size: int) -> Request:
    raw_path = scope["raw_path"].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return Request(
        method=scope["method"],
        path=unquote(raw_path).removeprefix(PREFIX),
        query={name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)},
        body=body,
        size=size,
        origin=f"{scope['scheme']}://{host}",
        target=f"{raw_path}?{query}",
    )
