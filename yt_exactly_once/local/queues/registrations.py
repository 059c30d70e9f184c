"""Which consumers are registered for which queues.

Owns the rows of `//sys/queue_agents/consumer_registrations`, a dynamic table like any other; whoever asks
decides what a missing one means. It never looks at queues or consumers.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues.places import Place
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import commit, modifications
from yt_exactly_once.local.tablets.catalog import find_layout

TABLE_PATH = "//sys/queue_agents/consumer_registrations"
TABLE_ID = "1-1-10191-1"


@dataclass(frozen=True)
class Registration:
    """One registration.

    Attributes:
        queue: what is read.
        consumer: who reads.
        vital: whether the queue keeps rows until this consumer has read them.
        partitions: the only partitions that are read; None for all.
        since: unix time, after which it has certainly been there.
    """

    queue: Place
    consumer: Place
    vital: bool
    partitions: list[int] | None
    since: int

    def is_known(self, lag_seconds: float) -> bool:
        """Tell whether proxies have heard of it."""
        return not lag_seconds or time.time() - self.since >= lag_seconds

    def describe(self) -> dict[str, Any]:
        """Return it as the status of queues and consumers shows it."""
        return {"queue": str(self.queue), "consumer": str(self.consumer), "vital": self.vital}


def put(
    connection: sqlite3.Connection,
    queue: Place,
    consumer: Place,
    *,
    vital: bool,
    partitions: list[int] | None,
) -> None:
    """Add or replace a registration; the age of one that stays the same stays too."""
    row = {**_key(queue, consumer), "vital": vital, "partitions": partitions}
    known = listing(connection, queue, consumer)
    if [(each.vital, each.partitions) for each in known] != [(vital, partitions)]:
        _commit(connection, modifications.write_batches(_table(connection), [row]))


def remove(connection: sqlite3.Connection, queue: Place, consumer: Place) -> None:
    """Drop a registration if there is one."""
    if listing(connection, queue, consumer):
        key = _key(queue, consumer)
        _commit(connection, [modifications.delete_batch(_table(connection), [key])])


def listing(
    connection: sqlite3.Connection, queue: Place | None = None, consumer: Place | None = None
) -> list[Registration]:
    """Return the registrations of a queue, of a consumer, of both, or all."""
    found = stamped_rows(connection, _table(connection), _key(queue, consumer))
    return [_registration(row, moment) for moment, row in found]


def stamped_rows(
    connection: sqlite3.Connection, table: TableLayout, known: dict[str, Any]
) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a table that have such values, each with the timestamp of its last write."""
    listed = ", ".join(['"$ts"', *(table.sql_column(column.name) for column in table.columns)])
    conditions = " AND ".join(["1", *(f"{table.sql_column(name)} = ?" for name in known)])
    stored = connection.execute(
        f'SELECT {listed} FROM {table.sql_source} WHERE {conditions} ORDER BY "$key"',
        list(known.values()),
    ).fetchall()
    rows = values.decode_rows(table.columns, [columns for _, *columns in stored])
    return [(moment, row) for (moment, *_), row in zip(stored, rows, strict=True)]


def _registration(row: dict[str, Any], timestamp: int) -> Registration:
    partitions = row["partitions"]
    return Registration(
        _place(row, "queue"),
        _place(row, "consumer"),
        bool(row["vital"]),
        list(map(int, partitions)) if isinstance(partitions, list) else None,
        # Timestamps are whole seconds; the end of the second is safely after the registration.
        (timestamp >> TIMESTAMP_COUNTER_BITS) + 1,
    )


def _place(row: dict[str, Any], kind: str) -> Place:
    return Place(*((row[f"{kind}_{part}"] or b"").decode() for part in ("cluster", "path")))


def _key(queue: Place | None, consumer: Place | None) -> dict[str, Any]:
    return (queue.key() if queue else {}) | (consumer.key("consumer") if consumer else {})


def _table(connection: sqlite3.Connection) -> TableLayout:
    table = find_layout(connection, TABLE_ID, TABLE_PATH)
    if table is None:
        raise YtError(f"Error getting mount info for {TABLE_PATH}", Code.RESOLVE)
    return table


def _commit(connection: sqlite3.Connection, batches: list[modifications.Batch]) -> None:
    commit.apply(connection, batches, commit.Terms(TABLE_ID, None, "full"))
