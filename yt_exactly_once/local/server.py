"""One proxy process: `python -m yt_exactly_once.local.server --data-dir D --port P`.

It listens for HTTP and for RPC. It serves until SIGTERM, or until its parent is gone. The first line on
standard output says that it is ready and on which ports.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httptools
import numpy as np
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.http import encodings, messages
from yt_exactly_once.local.http.wire import Application
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.queues import trimming
from yt_exactly_once.local.rpc.front import Front
from yt_exactly_once.local.store import StoreFormatError

_HOST = "127.0.0.1"
_BACKLOG = 512
_GRACE_SECONDS = 5
_LONG_BODY = 1 << 19
_READ_BYTES = 1 << 20
_PARENT_CHECK_SECONDS = 0.1
_GC_THRESHOLD = 200_000
_TOKEN_VARIABLE = "YT_LOCAL_TOKEN"  # noqa: S105 - the name of a variable
REFUSED = 65
"""Exit code when the last line of the log says what the user has to change."""


class JoiningTransport:
    """A transport of asyncio that can hold a write back until the next one.

    Uvicorn writes the head of an answer and what follows it one after the other. Two packets cost both ends
    twice: the server a call of the kernel, the client a second wait.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._holds = False
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        """Leave everything but writing to the transport."""
        return getattr(self._transport, name)

    def hold(self) -> None:
        """Hold the next write back until another one follows, or the end."""
        self._holds = True

    def write(self, data: Any) -> None:
        """Send bytes, after those that were held back."""
        if self._holds:
            self._holds, self._held = False, self._held + data
            return
        if self._held:
            data, self._held = b"".join((self._held, data)), b""
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection once everything is sent."""
        if self._held:
            self.write(b"")
        self._transport.close()


class _Protocol(HttpToolsProtocol):
    """Uvicorn's protocol, showing its transport to the application, which may have to reset it.

    It keeps the bodies of requests for it: as messages their bytes would be copied two more times.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP with the envelope that every other error has."""
        answer = messages.error_answer(YtError(msg))
        answer.headers |= {"Content-Length": str(len(answer.body)), "Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        head = f"HTTP/1.1 400 Bad Request\r\n{lines}\r\n"
        self.transport.write(head.encode("latin-1") + answer.body)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["yt.transport"] = self.transport  # type: ignore[typeddict-unknown-key]
        self.scope["yt.body"] = []  # type: ignore[typeddict-unknown-key]
        self._body_size = 0

    def data_received(self, data: bytes) -> None:
        """Read a piece of a request; what is left of a long body comes into its place in memory."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        # After an error nobody reads the rest, and without a length nobody knows it.
        is_read = cycle is not None and cycle.more_body and not cycle.response_complete
        size = self._length_of_body() if is_read else 0
        if _LONG_BODY <= size <= encodings.MOST_BYTES and self._body_size < size:
            pieces = self.scope["yt.body"]  # type: ignore[typeddict-item]
            self.transport.set_protocol(_LongBody(self, size, b"".join(pieces)))

    def _length_of_body(self) -> int:
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    def end_long_body(self, body: memoryview) -> None:
        """Go on as if the parser had seen the body."""
        self.scope["yt.body"] = [body]  # type: ignore[typeddict-unknown-key]
        self.parser = httptools.HttpRequestParser(self)
        self.transport.set_protocol(self)
        self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body; of one that is too long nothing, and the application refuses it."""
        self._body_size += len(body)
        if self._body_size > encodings.MOST_BYTES:
            self.scope["yt.body"] = None  # type: ignore[typeddict-unknown-key]
        elif not self.cycle.response_complete:
            self.scope["yt.body"].append(body)  # type: ignore[typeddict-item]


class _LongBody(asyncio.BufferedProtocol):
    """Takes the place of the protocol until the body of a request has come, without a copy of it.

    Args:
        size: of the body, of which the first bytes have come.
    """

    def __init__(self, protocol: _Protocol, size: int, first: bytes) -> None:
        self._protocol = protocol
        # Of numpy, since nobody has to write zeros first.
        self._body = np.empty(size, np.uint8).data
        self._body[: len(first)] = first
        self._came = len(first)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio gives none
        """Return the place of what comes next; others of this loop want to read, too."""
        return self._body[self._came : self._came + _READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """See whether the body is complete."""
        self._came += nbytes
        if self._came == len(self._body):
            self._protocol.end_long_body(self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class _Server(uvicorn.Server):
    """Uvicorn's server, announcing itself once it listens."""

    def __init__(self, config: uvicorn.Config, proxy: Proxy, rpc_listener: socket.socket) -> None:
        super().__init__(config)
        self._proxy = proxy
        self._rpc_listener = rpc_listener
        self._rpc = Front(proxy)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._rpc.start(self._rpc_listener)
        host, rpc_port = self._rpc_listener.getsockname()[:2]
        self._proxy.announce(f"{host}:{rpc_port}")
        port = int(self._proxy.address.rpartition(":")[2])
        ready = {"port": port, "rpc_port": rpc_port, "pid": os.getpid()}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop; return the exit code."""
    options = _parse(arguments)
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", level="INFO"
    )
    listeners = []
    for port in (options.port, options.rpc_port):
        try:
            listeners.append(_listen(port))
        except OSError as error:
            text = (
                f"Port {port} is in use; choose another one, or 0 for any. Cannot listen: {error}"
            )
            sys.stderr.write(f"{text}\n")
            return REFUSED
    listener, rpc_listener = listeners
    port = listener.getsockname()[1]
    token = os.environ.get(_TOKEN_VARIABLE) or None
    try:
        proxy = Proxy(options.data_dir, f"{_HOST}:{port}", token, json.loads(options.features))
    except StoreFormatError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    config = uvicorn.Config(
        Application(proxy),
        http=_Protocol,
        loop="asyncio",
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=300,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    # Requests bring many small objects and few cycles; the default thresholds scan far too often.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    server = _Server(config, proxy, rpc_listener)
    stop_agent = None
    if options.trim_every is not None:
        stop_agent = trimming.start_agent(proxy.store, options.trim_every)
    if options.parent is not None:
        _stop_with_parent(server, options.parent)
    asyncio.run(server.serve([listener]))
    if stop_agent is not None:
        stop_agent()
    proxy.close()
    # Worker threads may still hold a late command; its client is gone.
    sys.stderr.flush()
    os._exit(0)


def _parse(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="yt_exactly_once.local.server")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rpc-port", type=int, default=0)
    parser.add_argument("--features", default="{}", help="JSON map")
    parser.add_argument("--trim-every", type=float, help="seconds between steps of the queue agent")
    parser.add_argument("--parent", type=int, help="process that this one ends with")
    return parser.parse_args(arguments)


def _listen(port: int) -> socket.socket:
    listener = socket.create_server((_HOST, port), backlog=_BACKLOG)
    listener.set_inheritable(False)
    # Its connections inherit it: pieces of an answer are several writes, and none waits for an
    # acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _stop_with_parent(server: uvicorn.Server, parent: int) -> None:
    """Leave when the parent does: then this process gets another one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        server.should_exit = True
        time.sleep(_GRACE_SECONDS + 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
