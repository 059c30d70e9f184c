"""One connection of the bus: packets in, acknowledgements in their order, messages to the front.

It owns the socket. A peer loses the connection if it stops in the middle of a packet, sends something else,
or does not read its answers. A silent peer keeps it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from yt_exactly_once.local import fronts
from yt_exactly_once.local.rpc.bus import envelopes, packets
from yt_exactly_once.local.rpc.bus.envelopes import Envelope
from yt_exactly_once.local.rpc.bus.exchange import Exchange
from yt_exactly_once.local.rpc.bus.packets import BadPacketError, Parts

_LOGGER = logging.getLogger(__name__)
_STALL_SECONDS = 30.0
"""How long a peer may be silent in the middle of a packet."""


Serve = Callable[[Exchange], Awaitable[None]]
"""Serves one request to its end; failures are answered, not raised."""


class Connection:
    """A connection to one client."""

    def __init__(
        self, serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._serve_one = serve
        self._reader = reader
        self._writer = writer
        self._exchanges: dict[bytes, Exchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the client leaves or breaks the protocol."""
        try:
            while (parts := await self._next_message()) is not None:
                self._dispatch(envelopes.parse(parts))
        except BadPacketError as error:
            _LOGGER.warning("RPC connection closed: %s", error)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self.reset()

    async def send(self, parts: Parts, packet_id: bytes | None = None) -> None:
        """Send a message; what goes to a closed connection is lost."""
        if self._writer.is_closing():
            return
        pieces = packets.message(packet_id or secrets.token_bytes(16), parts)
        self._writer.writelines(pieces)
        try:
            await self._writer.drain()
        except OSError:
            self.reset()

    def reset(self) -> None:
        """Close the connection so that the client sees a reset, and wake who waits for it."""
        fronts.reset(self._writer.transport)
        exchanges, self._exchanges = list(self._exchanges.values()), {}
        for exchange in exchanges:
            exchange.abandon()

    async def _next_message(self) -> Parts | None:
        """Return the next message, or `None` at the end; acknowledge it if that is wanted."""
        while True:
            start = await self._reader.read(packets.HEAD_BYTES)
            if not start:
                return None
            rest = await self._exactly(packets.HEAD_BYTES - len(start))
            head = packets.parse_head(start + rest)
            sizes = packets.parse_sizes(head, await self._exactly(head.variable_bytes))
            body = await self._exactly(sum(size or 0 for size in sizes))
            parts = packets.split(body, sizes)
            if head.kind == packets.ACK:
                continue
            if head.flags & packets.WANTS_ACK:
                self._writer.write(packets.ack(head.id))
                await self._writer.drain()
            return parts

    async def _exactly(self, count: int) -> bytes:
        """Read so many bytes; each piece of them must come in time."""
        pieces: list[bytes] = []
        while count:
            async with asyncio.timeout(_STALL_SECONDS):
                piece = await self._reader.read(count)
            if not piece:
                raise asyncio.IncompleteReadError(b"".join(pieces), None)
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _dispatch(self, envelope: Envelope) -> None:
        if envelope.kind == envelopes.HANDSHAKE:
            answer = envelopes.handshake(envelope.header)
            self._start(self.send(answer, packets.HANDSHAKE_ID))
            return
        key = envelope.request_id
        if envelope.kind == envelopes.REQUEST:
            if key in self._exchanges:
                raise BadPacketError("Two requests with one id")
            exchange = self._exchanges[key] = Exchange(self.send, self.reset, envelope)
            self._start(self._serve(key, exchange))
            return
        found = self._exchanges.get(key)
        if found is None:
            # It has been answered in the meantime.
            return
        if envelope.kind == envelopes.PAYLOAD:
            found.accept_payload(envelope)
        elif envelope.kind == envelopes.FEEDBACK:
            found.accept_feedback(envelope)
        else:
            found.abandon()

    async def _serve(self, key: bytes, exchange: Exchange) -> None:
        try:
            await self._serve_one(exchange)
        finally:
            self._exchanges.pop(key, None)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
