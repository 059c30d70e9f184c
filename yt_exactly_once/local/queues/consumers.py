"""Queues and their consumers: offsets, pulls, and which consumers are registered for which queues.

A queue is any ordered table, and a partition is a tablet of it. A consumer is a sorted table with one offset
per partition: the index of the first unread row. Registrations are rows of a dynamic table like any other,
`//sys/queue_agents/consumer_registrations`; whoever asks decides what a missing one means.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues.places import CONSUMER_NAME, Place, shared_consumers
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import (
    CONSUMER_SCHEMA,
    CUMULATIVE_WEIGHT_COLUMN,
    TIMESTAMP_COLUMN,
    Column,
)
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import commit, flushed, modifications, reads
from yt_exactly_once.local.tablets.access import check_has_cell, check_readable, tablet_at
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.transactions import TabletTransaction

REGISTRATIONS_PATH = "//sys/queue_agents/consumer_registrations"
REGISTRATIONS_ID = "1-1-10191-1"


@dataclass(frozen=True)
class Partition:
    """One partition of one queue, as a consumer knows it; `YtError` for a table that is no consumer."""

    consumer: TableLayout
    queue: Place
    index: int

    def __post_init__(self) -> None:
        """Refuse a table that is no consumer."""
        check_consumer(self.consumer)

    def key(self) -> dict[str, Any]:
        """Return the key of the partition's row."""
        return {**self.queue.key(), "partition_index": YsonUint64(self.index)}


def _shape(columns: Iterable[Column]) -> tuple[tuple[Any, ...], ...]:
    return tuple((c.name, c.wire_type, c.required, c.sort_order) for c in columns)


_SHAPE = _shape(CONSUMER_SCHEMA.columns)


def check_consumer(table: TableLayout) -> None:
    """Refuse tables that do not have the columns of a consumer."""
    if table.columns[0].name == CONSUMER_NAME:
        raise shared_consumers()
    if _shape(table.columns) not in (_SHAPE, _SHAPE[:-1]):
        raise YtError("Table schema is not recognized as a valid consumer schema")


def read_offset(connection: sqlite3.Connection, partition: Partition) -> tuple[int, int]:
    """Return the stored offset and the timestamp of its last write; zeros without a row."""
    layout = find_layout(connection, partition.consumer.node_id, partition.consumer.path)
    if layout is None:
        return 0, 0
    (encoded,) = modifications.keys_of(layout, [partition.key()])
    found = connection.execute(
        f'SELECT {layout.sql_column("offset")}, "$ts" FROM {layout.sql_source} WHERE "$key" = ?',
        (encoded,),
    ).fetchone()
    return (int(values.decode_uint64(found[0])), found[1]) if found else (0, 0)


def advance(
    transaction: TabletTransaction,
    partition: Partition,
    old_offset: int | None,
    new_offset: int,
    meta: dict[str, Any] | None,
) -> None:
    """Move an offset when the transaction commits.

    Args:
        old_offset: what the offset must have been when the transaction started; None moves blindly.
        new_offset: index of the first unread row from now on.
        meta: what is known about the rows before the new offset.

    Raises:
        YtError: 3100 when the offset was another one.
    """
    if old_offset is not None:
        with transaction.read() as connection:
            current, moment = read_offset(connection, partition)
        if current != old_offset:
            path = partition.consumer.path
            raise YtError(
                f"Offset conflict at partition {partition.index} of consumer {path}: "
                f"expected offset {old_offset}, found offset {current}",
                Code.CONSUMER_OFFSET_CONFLICT,
                {
                    "partition": partition.index,
                    "consumer": path,
                    "expected_offset": old_offset,
                    "current_offset": current,
                    "current_offset_timestamp": YsonUint64(moment),
                },
            )
    row = {**partition.key(), "offset": YsonUint64(new_offset)}
    if "meta" in partition.consumer.places:
        row["meta"] = meta
    transaction.buffer(modifications.write_batches(partition.consumer, [row]))


def consumer_meta(
    connection: sqlite3.Connection, queue: TableLayout, index: int, offset: int
) -> dict[str, Any] | None:
    """Describe the rows around an offset; None when nothing is known of them."""
    stored = reads.cell(connection, queue, index, offset, TIMESTAMP_COLUMN)
    weight = reads.cell(connection, queue, index, offset - 1, CUMULATIVE_WEIGHT_COLUMN)
    if stored is None and weight is None:
        return None
    moment = None if stored is None else YsonUint64(stored)
    return {"cumulative_data_weight": weight, "offset_timestamp": moment}


def pull(
    connection: sqlite3.Connection,
    queue: TableLayout,
    index: int,
    offset: int,
    *,
    max_rows: int,
    max_weight: int,
) -> StoredRows:
    """Return committed rows of a mounted partition from an offset on, at most up to the end of a chunk."""
    if queue.sorted:
        raise YtError(f"Table {queue.path} is not ordered")
    tablet = tablet_at(queue, index)
    check_has_cell([tablet])
    check_readable(queue, [tablet])
    if offset < 0:
        raise YtError(f"Cannot read table {queue.path} at a negative offset {offset}")
    offset = max(offset, reads.bounds(connection, queue, index)[0])
    past = flushed.end_of_chunk(connection, tablet.tablet_id, offset)
    if past is not None:
        max_rows = min(max_rows, past - offset)
    return reads.read_range(
        connection, queue, index, offset, max_rows=max_rows, max_weight=max_weight
    )


def check_registered(
    connection: sqlite3.Connection, queue: Place, consumer: Place, lag_seconds: float
) -> None:
    """Refuse a consumer (901) that was not registered so many seconds ago, as proxies know it."""
    if not registrations(connection, queue, consumer, lag_seconds=lag_seconds):
        raise YtError(
            f"Consumer {consumer.rich} is not registered for queue {queue.rich}",
            Code.AUTHORIZATION,
            {"raw_queue": queue.rich, "raw_consumer": consumer.rich},
        )


@dataclass(frozen=True)
class Registration:
    """One registration.

    Attributes:
        queue: what is read.
        consumer: who reads.
        vital: whether the queue keeps rows until this consumer has read them.
        partitions: the only partitions that are read; None for all.
    """

    queue: Place
    consumer: Place
    vital: bool
    partitions: list[int] | None

    def describe(self) -> dict[str, Any]:
        """Return it as the status of queues and consumers shows it."""
        return {"queue": str(self.queue), "consumer": str(self.consumer), "vital": self.vital}


def register(
    connection: sqlite3.Connection,
    queue: Place,
    consumer: Place,
    *,
    vital: bool,
    partitions: list[int] | None,
) -> None:
    """Add or replace a registration; the age of one that stays the same stays too."""
    row = {**_key(queue, consumer), "vital": vital, "partitions": partitions}
    known = registrations(connection, queue, consumer)
    if [(each.vital, each.partitions) for each in known] != [(vital, partitions)]:
        _commit(connection, modifications.write_batches(_table(connection), [row]))


def unregister(connection: sqlite3.Connection, queue: Place, consumer: Place) -> None:
    """Drop a registration if there is one."""
    if registrations(connection, queue, consumer):
        key = _key(queue, consumer)
        _commit(connection, [modifications.delete_batch(_table(connection), [key])])


def registrations(
    connection: sqlite3.Connection,
    queue: Place | None = None,
    consumer: Place | None = None,
    *,
    lag_seconds: float = 0,
) -> list[Registration]:
    """Return the registrations of a queue, of a consumer, of both, or all, as they were some seconds ago."""
    table = _table(connection)
    if lag_seconds:
        # Timestamps are whole seconds: one that is not over yet may be too young.
        table = table.at((int(time.time() - lag_seconds) << TIMESTAMP_COUNTER_BITS) - 1)
    return [
        Registration(
            _place(row, "queue"),
            _place(row, "consumer"),
            bool(row["vital"]),
            list(map(int, row["partitions"])) if isinstance(row["partitions"], list) else None,
        )
        for _, row in stamped_rows(connection, table, _key(queue, consumer))
    ]


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


def _place(row: dict[str, Any], kind: str) -> Place:
    return Place(*((row[f"{kind}_{part}"] or b"").decode() for part in ("cluster", "path")))


def _key(queue: Place | None, consumer: Place | None) -> dict[str, Any]:
    return (queue.key() if queue else {}) | (consumer.key("consumer") if consumer else {})


def _table(connection: sqlite3.Connection) -> TableLayout:
    table = find_layout(connection, REGISTRATIONS_ID, REGISTRATIONS_PATH)
    if table is None:
        raise YtError(f"Error getting mount info for {REGISTRATIONS_PATH}", Code.RESOLVE)
    return table


def _commit(connection: sqlite3.Connection, batches: list[modifications.Batch]) -> None:
    commit.apply(connection, batches, commit.Terms(REGISTRATIONS_ID))
