"""Queues and their consumers: offsets and pulls.

A queue is any ordered table, and a partition is a tablet of it. A consumer is a sorted table with one offset
per partition: the index of the first unread row. This module defines what those rows mean; registrations are
elsewhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues import registrations
from yt_exactly_once.local.queues.places import CONSUMER_NAME, Place, shared_consumers
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import (
    CONSUMER_SCHEMA,
    CUMULATIVE_WEIGHT_COLUMN,
    TIMESTAMP_COLUMN,
    Column,
)
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import flushed, modifications, reads, validation
from yt_exactly_once.local.tablets.access import check_has_cell, check_readable, tablet_at
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.transactions import TabletTransaction


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
    key = validation.encode_keys(layout, [partition.key()])
    (encoded,) = modifications.keys_of(layout, key)
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
    if partition.consumer.column("meta") is not None:
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
    """Refuse a consumer (901) that is not registered, or not for as long as the lag."""
    found = registrations.listing(connection, queue, consumer)
    if not any(each.is_known(lag_seconds) for each in found):
        raise YtError(
            f"Consumer {consumer.rich} is not registered for queue {queue.rich}",
            Code.AUTHORIZATION,
            {"raw_queue": queue.rich, "raw_consumer": consumer.rich},
        )
