"""One request and its answer on a connection, with the streams that belong to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc.bus import envelopes
from yt_exactly_once.local.rpc.bus.envelopes import Envelope
from yt_exactly_once.local.rpc.bus.packets import Parts

_DEFAULT_WINDOW = 32 << 20


class GoneError(Exception):
    """The client has closed its connection or cancelled the request; nobody waits for an answer."""


class Exchange:
    """A request that is being served.

    Args:
        send: sends a message; what goes to a closed connection is lost.
        reset: closes the connection so that the client sees a reset.
    """

    def __init__(
        self,
        send: Callable[[Parts], Awaitable[None]],
        reset: Callable[[], None],
        envelope: Envelope,
    ) -> None:
        self.header = envelope.header
        self.parts = envelope.parts
        self.reset = reset
        self._send = send
        given = envelope.header.server_attachments_streaming_parameters.window_size
        self._window = given if given > 0 else _DEFAULT_WINDOW
        self._incoming: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self._gone = False
        self._failure: YtError | None = None
        self._received = self._expected = 0
        self._sent = self._numbered = self._confirmed = 0

    async def answer(self, message: Any, attachments: Sequence[bytes | None]) -> None:
        """Send the response."""
        await self._send(envelopes.response(self.header, message, attachments))

    async def fail(self, error: YtError) -> None:
        """Send an error."""
        await self._send(envelopes.failure(self.header, error))

    def accept_payload(self, envelope: Envelope) -> None:
        """Take a packet of the client's stream."""
        if envelope.header.sequence_number != self._expected:
            self._failure = YtError(
                f"Stream packet {envelope.header.sequence_number} came instead of {self._expected}"
            )
        elif envelope.header.codec:
            self._failure = YtError(
                f"Compression codec {envelope.header.codec} of a stream is not supported by the"
                " embedded cluster"
            )
        self._expected += 1
        self._incoming.extend(envelope.parts)
        self._wake.set()

    def accept_feedback(self, envelope: Envelope) -> None:
        """Learn how far the client has read."""
        self._confirmed = max(self._confirmed, envelope.header.read_position)
        self._wake.set()

    def abandon(self) -> None:
        """Learn that nobody waits any more."""
        self._gone = True
        self._wake.set()

    async def receive(self) -> bytes | None:
        """Return the next part of the client's stream; null ends it."""
        self._check()
        while not self._incoming:
            await self._woken()
        part = self._incoming.popleft()
        self._received += len(part or b"") or 1
        await self._send(envelopes.feedback(self.header, self._received))
        return part

    async def send_block(self, part: bytes | None) -> None:
        """Send a part of the answer's stream once the client has room for it."""
        size = len(part or b"") or 1
        while self._sent > self._confirmed and self._sent + size - self._confirmed > self._window:
            await self._woken()
        self._check()
        self._sent += size
        await self._send(envelopes.payload(self.header, self._numbered, [part]))
        self._numbered += 1

    async def _woken(self) -> None:
        self._wake.clear()
        await self._wake.wait()
        self._check()

    def _check(self) -> None:
        if self._gone:
            raise GoneError
        if self._failure is not None:
            raise self._failure
