"""A link to a proxy with a round trip and a bandwidth, which notes every request that passes.

The embedded cluster answers over loopback, where waiting for an answer costs nothing. A link is a process
that relays TCP connections. It holds every piece of data back for half a round trip, and lets each
connection carry no more bytes per second than it may.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.connection import Connection

_PIECE = 64 << 10
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
    with suppress(KeyboardInterrupt):
        asyncio.run(_Relay(upstream, conditions, pipe).run())


def _nothing(_piece: bytes) -> None:
    """Note nothing."""


class _Relay:
    def __init__(self, upstream: str, conditions: Conditions, pipe: Connection) -> None:
        self._upstream = upstream
        self._conditions = conditions
        self._pipe = pipe
        self._requests: list[Request] = []
        self._exchanges: list[_Exchange] = []
        self._address = ""

    async def run(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        self._pipe.send(self._address)
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._answer)
        await server.serve_forever()

    def _answer(self) -> None:
        question = self._pipe.recv()
        if isinstance(question, Conditions):
            self._conditions = question
        for exchange in self._exchanges:
            exchange.end()
        self._pipe.send(self._requests)
        self._requests.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream.rsplit(":", 1)
        there, here = await asyncio.open_connection(host, int(port))
        exchange = _Exchange(len(self._exchanges), self._requests)
        self._exchanges.append(exchange)
        # A proxy names itself with as many bytes as the link has: both have ephemeral ports.
        theirs, ours = self._upstream.encode(), self._address.encode()
        asking = self._carry(reader, here, arrived=exchange.asked)
        answering = self._carry(
            there, writer, lambda piece: piece.replace(theirs, ours), left=exchange.answered
        )
        await asyncio.gather(asking, answering, return_exceptions=True)
        for end in (here, writer):
            end.close()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        change: Callable[[bytes], bytes] = bytes,
        *,
        arrived: Callable[[bytes], None] = _nothing,
        left: Callable[[bytes], None] = _nothing,
    ) -> None:
        """Carry one direction of a connection: each piece half a round trip later, at the bandwidth."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            free = 0.0
            while True:
                due, piece = await waiting.get()
                limit = self._conditions.bandwidth
                free = max(free, due) + (len(piece) / limit if limit else 0)
                await asyncio.sleep(free - time.monotonic())
                if not piece:
                    with suppress(OSError, RuntimeError):
                        writer.write_eof()
                    return
                left(piece)
                writer.write(piece)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        piece = b"begin"
        while piece:
            piece = await reader.read(_PIECE)
            if piece:
                arrived(piece)
            waiting.put_nowait((time.monotonic() + self._conditions.round_trip / 2, change(piece)))
        await delivering


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
