"""Which consumers are registered for which queues.

Owns the stored registrations and their paths; whoever asks decides what a missing one means. Keys are
(cluster, path) pairs on both sides, as in `//sys/queue_agents/consumer_registrations`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

_TABLE = """
CREATE TABLE IF NOT EXISTS queue_registrations (
    queue_cluster TEXT NOT NULL, queue_path TEXT NOT NULL,
    consumer_cluster TEXT NOT NULL, consumer_path TEXT NOT NULL,
    vital INTEGER NOT NULL, partitions TEXT, since REAL NOT NULL,
    PRIMARY KEY (queue_cluster, queue_path, consumer_cluster, consumer_path)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Place:
    """A queue or a consumer: a physical path on a cluster."""

    cluster: str
    path: str

    def __str__(self) -> str:
        return f"{self.cluster}:{self.path}"


@dataclass(frozen=True)
class Registration:
    """One registration.

    Attributes:
        queue: what is read.
        consumer: who reads.
        vital: whether the queue keeps rows until this consumer has read them.
        partitions: the only partitions that are read; None for all.
        since: unix time of the registration.
    """

    queue: Place
    consumer: Place
    vital: bool
    partitions: tuple[int, ...] | None
    since: float


def initialize(connection: sqlite3.Connection) -> None:
    """Create the table; needs a connection of `Store.write`."""
    connection.execute(_TABLE)


def put(
    connection: sqlite3.Connection,
    queue: Place,
    consumer: Place,
    *,
    vital: bool,
    partitions: list[int] | None,
) -> None:
    """Add or replace a registration; the age of a replaced one stays."""
    known = find(connection, queue, consumer)
    connection.execute(
        "INSERT OR REPLACE INTO queue_registrations VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            queue.cluster,
            queue.path,
            consumer.cluster,
            consumer.path,
            int(vital),
            None if partitions is None else json.dumps(partitions),
            known.since if known is not None else time.time(),
        ),
    )


def remove(connection: sqlite3.Connection, queue: Place, consumer: Place) -> None:
    """Drop a registration if there is one."""
    connection.execute(
        "DELETE FROM queue_registrations WHERE queue_cluster = ? AND queue_path = ?"
        " AND consumer_cluster = ? AND consumer_path = ?",
        (queue.cluster, queue.path, consumer.cluster, consumer.path),
    )


def find(connection: sqlite3.Connection, queue: Place, consumer: Place) -> Registration | None:
    """Return one registration."""
    matching = listing(connection, queue, consumer)
    return matching[0] if matching else None


def listing(
    connection: sqlite3.Connection, queue: Place | None = None, consumer: Place | None = None
) -> list[Registration]:
    """Return the registrations of a queue, of a consumer, of both, or all."""
    conditions: list[str] = []
    arguments: list[Any] = []
    for kind, place in (("queue", queue), ("consumer", consumer)):
        if place is not None:
            conditions.append(f"{kind}_cluster = ? AND {kind}_path = ?")
            arguments += [place.cluster, place.path]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(
        f"SELECT * FROM queue_registrations{where} ORDER BY queue_path, consumer_path", arguments
    )
    return [
        Registration(
            Place(queue_cluster, queue_path),
            Place(consumer_cluster, consumer_path),
            bool(vital),
            None if partitions is None else tuple(json.loads(partitions)),
            since,
        )
        for (
            queue_cluster,
            queue_path,
            consumer_cluster,
            consumer_path,
            vital,
            partitions,
            since,
        ) in rows
    ]
