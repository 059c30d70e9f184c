"""What a forced unmount loses: the rows that are not flushed.

On a real cluster fresh rows live in a dynamic store, and a forced unmount drops that store. Here a row counts
as flushed in two cases. Its tablet was mounted, frozen or unmounted after it was written (`flushed`). Or it
is older than the period of the automatic flush. It never changes the state of a tablet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import appends, blocks, counters, flushed, retention

_PERIOD = "dynamic_store_auto_flush_period"


def drop_unflushed(
    connection: Connection, layout: TableLayout, indexes: Sequence[int], attributes: dict[str, Any]
) -> None:
    """Bring tablets back to what was flushed; attributes of the node have the period of the flush."""
    horizon = _horizon(attributes)
    for index in indexes:
        marked, last = counters.of(connection, layout, index, "flushed_ts", "last_write_ts")
        moment = max(marked, horizon)
        if layout.sorted:
            kept = max(moment, retention.retained_from(connection, layout.node_id))
            _drop_sorted(connection, layout, layout.tablets[index], kept)
        else:
            appends.forget_pending(connection, layout, index)
            _drop_ordered(connection, layout, layout.tablets[index], horizon)
        # Of a sorted table the last chunk names the last write that was flushed.
        until = flushed.until(connection, layout.tablets[index].tablet_id)
        written = max(until, horizon) if layout.sorted else moment
        counters.put(connection, layout, index, last_write_ts=min(last, written))


def _horizon(attributes: dict[str, Any]) -> int:
    """Return the timestamp before which everything was flushed by itself."""
    config = attributes.get("mount_config") or {}
    period = attributes.get(_PERIOD, config.get(_PERIOD))
    seconds: float = retention.KEPT_SECONDS
    if isinstance(period, int) and not isinstance(period, bool):
        seconds = min(seconds, period / 1000)
    return int(time.time() - seconds) << TIMESTAMP_COUNTER_BITS


def _drop_sorted(connection: Connection, layout: TableLayout, tablet: Tablet, moment: int) -> None:
    table, history = layout.sql_table, layout.history_table
    inside, bounds = retention.key_range(layout, range(tablet.index, tablet.index + 1))
    connection.execute(f'DELETE FROM {table} WHERE {inside} AND "$ts" > ?', (*bounds, moment))
    connection.execute(
        f"INSERT INTO {table} ({layout.version_columns}) SELECT {layout.version_columns} FROM {history}"
        f' WHERE {inside} AND "$ts" <= ? AND "$until" > ?',
        (*bounds, moment, moment),
    )
    connection.execute(f'DELETE FROM {history} WHERE {inside} AND "$until" > ?', (*bounds, moment))
    # Locks live in memory only.
    locked = inside.replace('"$key"', "key")
    connection.execute(
        f"DELETE FROM row_locks WHERE node_id = ? AND {locked}", (layout.node_id, *bounds)
    )


def _drop_ordered(
    connection: Connection, layout: TableLayout, tablet: Tablet, horizon: int
) -> None:
    names = ("total_rows", "trimmed_rows", "total_weight", "trimmed_weight")
    total, trimmed, total_weight, trimmed_weight = counters.of(
        connection, layout, tablet.index, *names
    )
    until = flushed.until(connection, tablet.tablet_id)
    old = blocks.past_until(connection, layout, tablet.tablet_id, horizon)
    # Rows that have not appeared are stored, and not counted.
    kept = max(until, min(old, total))
    gone = blocks.weight(connection, layout, tablet.tablet_id, max(kept, trimmed), total)
    blocks.keep(connection, layout, tablet.tablet_id, 0, kept)
    total_weight -= gone
    # Rows that were trimmed before their flush are not trimmed any more: there are none.
    values = (kept, min(trimmed, kept), total_weight, min(trimmed_weight, total_weight))
    counters.put(connection, layout, tablet.index, **dict(zip(names, values, strict=True)))
