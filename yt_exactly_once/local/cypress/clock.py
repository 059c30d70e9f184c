"""Times and revisions of nodes: what is stamped on a node when it is created, changed or read."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from sqlite3 import Connection, Error
from threading import Lock, Timer
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.store import Store, next_timestamp

_FLUSH_SECONDS = 0.5
_REVISIONS = ("revision", "attribute_revision", "content_revision")


def now() -> str:
    """Return the current time as attributes spell it."""
    return spell(datetime.now(UTC))


def spell(moment: datetime) -> str:
    """Return a time as attributes spell it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def spell_unix(seconds: float) -> str:
    """Return a unix time as attributes spell it."""
    return spell(datetime.fromtimestamp(seconds, UTC))


def revision(connection: Connection) -> Any:
    """Return a new revision, greater than every earlier one."""
    return yson.YsonUint64(next_timestamp(connection))


def birth(view: View) -> dict[str, Any]:
    """Return the attributes that every node is created with."""
    times = dict.fromkeys(("creation_time", "modification_time", "access_time"), now())
    return {"owner": view.user, **times, **dict.fromkeys(_REVISIONS, revision(view.connection))}


def touch(view: View, node_id: str, *kinds: str) -> None:
    """Stamp a change of `content`, of `attribute`, or of both on a node."""
    if view.is_quiet:
        return
    number = revision(view.connection)
    stamps = {f"{kind}_revision": number for kind in kinds}
    view.put_attributes(node_id, {"modification_time": now(), "revision": number, **stamps})


def restamp(connection: Connection, tx: str) -> None:
    """Give what a transaction changed the revision of its commit, where new timeouts begin too."""
    connection.execute(
        "UPDATE cypress_attributes SET value = ? WHERE name = 'access_time' AND tx = ''"
        " AND node_id IN (SELECT node_id FROM cypress_attributes"
        " WHERE tx = ? AND name = 'expiration_timeout')",
        (dump_yson(now()), tx),
    )
    connection.execute(
        "UPDATE cypress_attributes SET value = ? WHERE tx = ?"
        " AND name IN ('revision', 'attribute_revision', 'content_revision')",
        (dump_yson(revision(connection)), tx),
    )


class Accesses:
    """Who was read, how often and when: `@access_counter` and `@access_time`.

    A proxy collects accesses and writes them down a moment later, as masters do, so that reads stay reads.
    """

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
        with suppress(Error), self._store.write() as connection:
            connection.executemany(
                "INSERT INTO cypress_accesses VALUES (?, ?, ?) ON CONFLICT (node_id)"
                " DO UPDATE SET count = count + excluded.count, at = max(at, excluded.at)",
                [(each, count, spell_unix(at)) for each, (count, at) in seen.items()],
            )


def accesses(connection: Connection, node_id: str) -> tuple[int, str]:
    """Return how often a node was accessed, and when last; without any access that is very early."""
    query = "SELECT count, at FROM cypress_accesses WHERE node_id = ?"
    return connection.execute(query, (node_id,)).fetchone() or (0, "")
