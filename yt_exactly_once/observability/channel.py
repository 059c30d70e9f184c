"""Events of other processes on their way to the driver: Spark's Python workers that read and write.

A worker sends each event as one UDP datagram, and waits for nothing: telemetry must not slow a task down or
fail it. So a datagram may be lost, and where a network lets none through, all are. Nothing is sent unless the
driver has opened a receiver and put its address into the environment of the workers.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from hmac import compare_digest
from threading import Thread
from typing import Any

from yt_exactly_once.observability.events import Event

ADDRESS_VARIABLE = "YT_EXACTLY_ONCE_EVENTS"
"""Environment variable of the workers: host, port and key of the driver's receiver."""

MOST_BYTES = 8_000
"""Size of a datagram; a longer event is not sent."""

_LONGEST_TEXT = 500

Deliver = Callable[[str, dict[str, Any]], None]
"""Gets the name and the fields of an event."""


def is_open() -> bool:
    """Return whether this process sends its events to a driver."""
    return ADDRESS_VARIABLE in os.environ


def send(event: Event, fields: Mapping[str, Any]) -> None:
    """Send an event to the driver, if there is a receiver; it never raises and never waits."""
    address = os.environ.get(ADDRESS_VARIABLE)
    if address is None:
        return
    with suppress(OSError, ValueError):
        host, port, key = address.split(" ")
        short = {name: _short(value) for name, value in fields.items()}
        datagram = f"{key} {json.dumps([event.value, short])}".encode()
        if len(datagram) <= MOST_BYTES:
            _socket(os.getpid(), ":" in host).sendto(datagram, (host, int(port)))


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _short(inner) for name, inner in value.items()}
    return value if isinstance(value, int | float | None) else str(value)[:_LONGEST_TEXT]


@lru_cache(maxsize=1)
def _socket(_pid: int, is_v6: bool) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


class Receiver:
    """Receives the events of the workers, on a thread of its own, until it is closed.

    Args:
        bind: address to listen on.
        host: address that workers send to.
        deliver: gets every event.

    Raises:
        OSError: the address is not one of this machine.
    """

    def __init__(self, bind: str, host: str, deliver: Deliver) -> None:
        self._deliver = deliver
        # Whoever can reach the port could otherwise invent events.
        self._key = secrets.token_hex(16)
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind((bind, 0))
        except OSError:
            self._socket.close()
            raise
        self.address = f"{host} {self._socket.getsockname()[1]} {self._key}"
        self._thread = Thread(target=self._run, name="yt-exactly-once-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop receiving."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            try:
                datagram = self._socket.recv(MOST_BYTES + 1)
            except OSError:
                return
            if not datagram and self._socket.fileno() < 0:
                return
            self._take(datagram)

    def _take(self, datagram: bytes) -> None:
        """Deliver an event that has our key; anything else is noise of the network, and is not parsed."""
        key, _, body = datagram.partition(b" ")
        if compare_digest(key, self._key.encode()):
            with suppress(ValueError, TypeError, KeyError):
                event, fields = json.loads(body)
                self._deliver(Event(event).value, dict(fields))
