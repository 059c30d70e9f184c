"""Who was read, how often and when: `@access_counter` and `@access_time`.

A proxy collects accesses and writes them down a moment later, as masters do, so that reads stay reads.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from threading import Lock, Timer

from yt_exactly_once.local.cypress import clock
from yt_exactly_once.local.store import Store

_FLUSH_SECONDS = 0.5


class Accesses:
    """What one proxy has seen and not yet written down."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._seen: dict[str, tuple[int, float]] = {}

    def record(self, node_id: str) -> None:
        """Count an access."""
        with self._lock:
            if not self._seen:
                timer = Timer(_FLUSH_SECONDS, self._flush)
                timer.daemon = True
                timer.start()
            count, _ = self._seen.get(node_id, (0, 0.0))
            self._seen[node_id] = count + 1, time.time()

    def _flush(self) -> None:
        with self._lock:
            seen, self._seen = self._seen, {}
        # The proxy may be gone by now, and its store with it.
        with suppress(sqlite3.Error), self._store.write() as connection:
            connection.executemany(
                "INSERT INTO cypress_accesses VALUES (?, ?, ?) ON CONFLICT (node_id)"
                " DO UPDATE SET count = count + excluded.count, at = max(at, excluded.at)",
                [(each, count, clock.spell_unix(at)) for each, (count, at) in seen.items()],
            )


def known(connection: sqlite3.Connection, node_id: str) -> tuple[int, str]:
    """Return how often a node was accessed, and when last; without any access that is very early."""
    found = connection.execute(
        "SELECT count, at FROM cypress_accesses WHERE node_id = ?", (node_id,)
    ).fetchone()
    return found or (0, "")
