"""A link to a proxy with a round trip and a bandwidth, which notes every request that passes.

The embedded cluster answers over loopback, where waiting for an answer costs nothing. A link is a process
that relays TCP connections. It holds every piece of data back for half a round trip, and lets each
connection carry no more bytes per second than it may.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import selectors
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = 40


@dataclass(frozen=True)
class Conditions:
    """What a link does to a connection.

    Attributes:
        round_trip: seconds that a byte and its answer take longer.
        bandwidth: bytes per second of each connection and direction; `None` for as fast as it goes.
    """

    round_trip: float = 0.0
    bandwidth: float | None = None


@dataclass(frozen=True)
class Request:
    """A request as its client sees it.

    Attributes:
        begin: when its first byte came, by `time.monotonic`.
        end: when the last byte of its answer left.
        connection: which of the link's connections carried it.
        sent: bytes to the cluster.
        received: bytes of the answer.
        command: last part of its address, such as `insert_rows`.
    """

    begin: float
    end: float
    connection: int
    sent: int = 0
    received: int = 0
    command: str = ""


def chain(requests: Iterable[Request]) -> int:
    """Return how many of the requests followed each other: the longest row of which none overlap.

    So many round trips a batch had to wait for. Requests that were under way together count once.
    """
    length, end = 0, float("-inf")
    for request in sorted(requests, key=lambda one: one.end):
        if request.begin >= end:
            length, end = length + 1, request.end
    return length


class Link:
    """A link to one proxy, in a process of its own.

    Args:
        upstream: `host:port` of the proxy; the proxy's answers name the link instead.
        conditions: at the start.
    """

    def __init__(self, upstream: str, conditions: Conditions | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(upstream, conditions or Conditions(), other), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        self.address: str = self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def become(self, conditions: Conditions) -> None:
        """Change the conditions, for requests that begin from now on."""
        self._ask(conditions)

    def requests(self) -> list[Request]:
        """Return the requests that have ended since the last call."""
        return self._ask(None)

    def _ask(self, question: Conditions | None) -> list[Request]:
        self._pipe.send(question)
        answer: list[Request] = self._pipe.recv()
        return answer


def _serve(upstream: str, conditions: Conditions, pipe: Connection) -> None:
    # It came with its number in the parent, and `select` takes none above 1 023.
    with (
        Connection(os.dup(pipe.fileno())) as low,
        suppress(KeyboardInterrupt),
        asyncio.Runner(loop_factory=_exact_loop) as runner,
    ):
        runner.run(_Relay(upstream, conditions, low).run())


def _exact_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that sleeps as long as it is told: `epoll` knows milliseconds, and Python rounds up."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class _Relay:
    def __init__(self, upstream: str, conditions: Conditions, pipe: Connection) -> None:
        self.upstream = upstream
        self.conditions = conditions
        self.address = ""
        self._pipe = pipe
        self._requests: list[Request] = []
        self._exchanges: list[_Exchange] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Asking(self), "127.0.0.1", 0)
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        self._pipe.send(self.address)
        loop.add_reader(self._pipe.fileno(), self._answer)
        await server.serve_forever()

    def exchange(self) -> _Exchange:
        """Return the requests of a new connection."""
        self._exchanges.append(_Exchange(len(self._exchanges), self._requests))
        return self._exchanges[-1]

    def _answer(self) -> None:
        question = self._pipe.recv()
        if isinstance(question, Conditions):
            self.conditions = question
        for exchange in self._exchanges:
            exchange.end()
        self._pipe.send(self._requests)
        self._requests.clear()


class _End(asyncio.Protocol):
    """One end of a connection: what comes here leaves at the other end half a round trip later."""

    other: _End

    def __init__(self, relay: _Relay, exchange: _Exchange) -> None:
        self._relay = relay
        self._exchange = exchange
        self._waiting = deque[bytes]()
        self._free = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Let a piece wait until it is due, and until the bandwidth has room for it."""
        conditions, loop = self._relay.conditions, asyncio.get_running_loop()
        self._free = max(self._free, loop.time() + conditions.round_trip / 2)
        if conditions.bandwidth:
            self._free += len(data) / conditions.bandwidth
        self._waiting.append(data)
        loop.call_at(self._free, self._deliver)

    def connection_lost(self, _error: Exception | None) -> None:
        """Let the end wait as well."""
        self.data_received(b"")

    def _deliver(self) -> None:
        piece = self._waiting.popleft()
        if piece:
            self.leave(piece)
        elif hasattr(self.other, "transport"):
            self.other.transport.close()

    def leave(self, piece: bytes) -> None:
        """Send a piece from the other end."""
        self.other.transport.write(piece)


class _Asking(_End):
    """The end of the client."""

    def __init__(self, relay: _Relay) -> None:
        super().__init__(relay, relay.exchange())
        self.other = _Answering(relay, self._exchange)
        self.other.other = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        host, port = self._relay.upstream.rsplit(":", 1)
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.other, host, int(port))
        except OSError:
            self.transport.abort()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if data:
            self._exchange.asked(data)
        super().data_received(data)


class _Answering(_End):
    """The end of the proxy."""

    def leave(self, piece: bytes) -> None:
        # A proxy names itself with as many bytes as the link has: both have ephemeral ports.
        named = piece.replace(self._relay.upstream.encode(), self._relay.address.encode())
        self._exchange.answered(named)
        super().leave(named)


class _Exchange:
    """The requests of one connection, one after the other."""

    def __init__(self, connection: int, done: list[Request]) -> None:
        self._connection = connection
        self._done = done
        self._now: Request | None = None

    def asked(self, piece: bytes) -> None:
        self.end()
        now = time.monotonic()
        command = piece.partition(b" HTTP/")[0].partition(b"?")[0].rpartition(b"/")[2]
        name = command[:_NAME].decode("latin-1")
        current = self._now or Request(now, now, self._connection, command=name)
        self._now = replace(current, sent=current.sent + len(piece))

    def answered(self, piece: bytes) -> None:
        if self._now is not None:
            received = self._now.received + len(piece)
            self._now = replace(self._now, end=time.monotonic(), received=received)

    def end(self) -> None:
        """Note the request that has an answer."""
        if self._now is not None and self._now.received:
            self._done.append(self._now)
            self._now = None
