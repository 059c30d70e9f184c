"""What a forced unmount loses: the rows that are not flushed.

On a real cluster fresh rows live in a dynamic store, and a forced unmount drops that store. `flushed` knows
which rows are not in it any more. It never changes the state of a tablet.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import appends, blocks, counters, flushed, retention


def drop_unflushed(connection: Connection, layout: TableLayout, indexes: Sequence[int]) -> None:
    """Bring tablets back to what was flushed."""
    flushed.flush_table(connection, layout)
    for index in indexes:
        tablet = layout.tablets[index]
        moment, last = counters.of(connection, layout, index, "flushed_ts", "last_write_ts")
        written = moment
        if layout.sorted:
            kept = max(moment, retention.retained_from(connection, layout.node_id))
            _drop_sorted(connection, layout, tablet, kept)
            # The last chunk names the last write that was flushed.
            written = flushed.until(connection, tablet.tablet_id)
        else:
            appends.forget_pending(connection, layout, index)
            _drop_ordered(connection, layout, tablet)
        counters.put(connection, layout, index, last_write_ts=min(last, written))


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


def _drop_ordered(connection: Connection, layout: TableLayout, tablet: Tablet) -> None:
    names = ("total_rows", "trimmed_rows", "total_weight", "trimmed_weight")
    total, trimmed, total_weight, trimmed_weight = counters.of(
        connection, layout, tablet.index, *names
    )
    kept = flushed.until(connection, tablet.tablet_id)
    gone = blocks.weight(connection, layout, tablet.tablet_id, max(kept, trimmed), total)
    blocks.keep(connection, layout, tablet.tablet_id, 0, kept)
    total_weight -= gone
    # Rows that were trimmed before their flush are not trimmed any more: there are none.
    values = (kept, min(trimmed, kept), total_weight, min(trimmed_weight, total_weight))
    counters.put(connection, layout, tablet.index, **dict(zip(names, values, strict=True)))
