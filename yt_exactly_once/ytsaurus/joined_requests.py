"""Small requests in one write: `http.client` sends the head and the body of a request one after the other.

Two packets cost two calls of the kernel here, and wake the proxy twice.
"""

from __future__ import annotations

from typing import Any

from yt.packages.urllib3 import HTTPConnectionPool
from yt.packages.urllib3.connection import HTTPConnection

_MOST_BYTES = 1 << 16
"""Joining copies; a longer body is sent after its head."""


class _Connection(HTTPConnection):  # type: ignore[misc]
    """A connection that keeps the pieces of a request until all are there."""

    _kept: list[bytes | memoryview] | None = None

    def endheaders(self, message_body: Any = None, **options: Any) -> None:
        """Send the head and the body."""
        self._kept = []
        try:
            super().endheaders(message_body, **options)
            self._send_kept()
        finally:
            self._kept = None

    def send(self, data: Any) -> None:
        """Send a piece, or keep it for the end of the request."""
        is_short = isinstance(data, bytes | memoryview) and len(data) <= _MOST_BYTES
        if self._kept is not None and is_short:
            self._kept.append(data)
            return
        self._send_kept()
        super().send(data)

    def _send_kept(self) -> None:
        if self._kept:
            pieces, self._kept = self._kept, []
            super().send(b"".join(pieces))


class _Pool(HTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


def join_requests(session: Any, url: str) -> None:
    """Let a session send small requests to an address in one write each; TLS stays as it is."""
    manager = session.get_adapter(url).poolmanager
    manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "http": _Pool}
