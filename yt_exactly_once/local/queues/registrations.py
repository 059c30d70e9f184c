"""Which consumers are registered for which queues.

Owns the rows of `//sys/queue_agents/consumer_registrations`, a dynamic table like any other; whoever asks
decides what a missing one means. It never looks at queues or consumers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
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
    partitions: tuple[int, ...] | None
    since: int


def put(
    connection: sqlite3.Connection,
    queue: Place,
    consumer: Place,
    *,
    vital: bool,
    partitions: list[int] | None,
) -> None:
    """Add or replace a registration; the age of one that stays the same stays too."""
    known = find(connection, queue, consumer)
    wanted = None if partitions is None else tuple(partitions)
    if known is not None and (known.vital, known.partitions) == (vital, wanted):
        return
    row = {**_key(queue, consumer), "vital": vital, "partitions": partitions}
    _commit(connection, modifications.write_batches(_table(connection), [row]))


def remove(connection: sqlite3.Connection, queue: Place, consumer: Place) -> None:
    """Drop a registration if there is one."""
    if find(connection, queue, consumer) is not None:
        key = _key(queue, consumer)
        _commit(connection, [modifications.delete_batch(_table(connection), [key])])


def find(connection: sqlite3.Connection, queue: Place, consumer: Place) -> Registration | None:
    """Return one registration."""
    matching = listing(connection, queue, consumer)
    return matching[0] if matching else None


def listing(
    connection: sqlite3.Connection, queue: Place | None = None, consumer: Place | None = None
) -> list[Registration]:
    """Return the registrations of a queue, of a consumer, of both, or all."""
    table = _table(connection)
    wanted = _key(queue, consumer)
    listed = ", ".join(['"$ts"', *(table.sql_column(column.name) for column in table.columns)])
    conditions = " AND ".join(["1", *(f"{table.sql_column(name)} = ?" for name in wanted)])
    stored = connection.execute(
        f'SELECT {listed} FROM {table.sql_source} WHERE {conditions} ORDER BY "$key"',
        list(wanted.values()),
    ).fetchall()
    rows = values.decode_rows(table.columns, [columns for _, *columns in stored])
    return [
        _registration(row, timestamp) for row, (timestamp, *_) in zip(rows, stored, strict=True)
    ]


def describe(found: Sequence[Registration]) -> list[dict[str, Any]]:
    """Return registrations as the status of queues and consumers shows them."""
    return [
        {"queue": str(item.queue), "consumer": str(item.consumer), "vital": item.vital}
        for item in found
    ]


def _registration(row: dict[str, Any], timestamp: int) -> Registration:
    partitions = row["partitions"]
    return Registration(
        _place(row, "queue"),
        _place(row, "consumer"),
        bool(row["vital"]),
        tuple(int(index) for index in partitions) if isinstance(partitions, list) else None,
        # Timestamps are whole seconds; the end of the second is safely after the registration.
        (timestamp >> TIMESTAMP_COUNTER_BITS) + 1,
    )


def _place(row: dict[str, Any], kind: str) -> Place:
    return Place(*((row[f"{kind}_{part}"] or b"").decode() for part in ("cluster", "path")))


def _key(queue: Place | None, consumer: Place | None) -> dict[str, bytes]:
    key = {}
    for kind, place in (("queue", queue), ("consumer", consumer)):
        if place is not None:
            key[f"{kind}_cluster"] = place.cluster.encode()
            key[f"{kind}_path"] = place.path.encode()
    return key


def _table(connection: sqlite3.Connection) -> TableLayout:
    table = find_layout(connection, TABLE_ID, TABLE_PATH)
    if table is None:
        raise YtError(f"Error getting mount info for {TABLE_PATH}", Code.RESOLVE)
    return table


def _commit(connection: sqlite3.Connection, batches: list[modifications.Batch]) -> None:
    commit.apply(connection, batches, commit.Terms(TABLE_ID, None, "full"))
