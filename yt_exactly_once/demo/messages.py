"""What parent and child say to each other: an argument and one line down, the events up.

It imports neither Spark nor the cluster, so the parent can listen without loading them.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from yt_exactly_once.demo.layout import Query
from yt_exactly_once.observability import Listener

EVENT = "event"
QUERY = "query"
SESSION_READY = "session.ready"
"""Told once per life, when Spark is up."""
QUERY_FAILED = "query.failed"
"""The last thing a life tells that did not end by a kill; carries the error."""
ERROR = "error"

_TOLD_FIELDS = ("batch", "rows", "reason")


@dataclass(frozen=True)
class Work:
    """What a child does, as a line on its standard input. Before it, the child knows no cluster."""

    proxies: list[str]
    mode: str
    backend: str
    rows_per_partition: int


class Report:
    """Tells the parent what happens, by a pipe that the JVM does not inherit."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = Connection(descriptor, readable=False)
        self._lock = threading.Lock()

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event; each query tells from a thread of its own."""
        with self._lock:
            self._pipe.send({EVENT: event, **fields})

    def of(self, query: Query) -> Listener:
        """Return the listener of a query's sink."""

        def listen(event: str, fields: dict[str, Any]) -> None:
            told = {name: fields[name] for name in _TOLD_FIELDS if name in fields}
            self.tell(event, **(told | {QUERY: query.name}))

        return listen
