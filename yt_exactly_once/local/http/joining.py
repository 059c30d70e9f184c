"""A transport that sends the head of an answer together with what follows it.

The server writes both one after the other. Two packets cost both ends twice: the server a call of the kernel,
the client a second wait.
"""

from __future__ import annotations

from typing import Any


class JoiningTransport:
    """A transport of asyncio that can hold a write back until the next one."""

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
