"""How long rows, replaced rows, tombstones and row locks are kept.

Owns the pruning of what only old readers and old transactions need, and the removal of rows that the table's
own settings (`min_data_ttl` and its kin) keep no longer. A transaction that started before the pruned
moment cannot be checked for conflicts any more and is told so.

Rows expire where a tablet node would compact: when a tablet is mounted or flushed, and at most once a minute
when the table is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, scalar
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import blocks, counters, flushed

KEPT_SECONDS = 600
_PRUNE_EVERY_SECONDS = 60
TTL_COLUMN = "$ttl"
_MOMENTS = ("pruned_at", "retained_from", "checked_from")
CANNOT_CHECK_CONFLICTS = 1729


def retained_from(connection: Connection, node_id: str) -> int:
    """Return the timestamp since which a table's history is complete."""
    return _known(connection, node_id, "retained_from")


def _known(connection: Connection, node_id: str, column: str) -> int:
    return (
        scalar(connection, f"SELECT {column} FROM dynamic_tables WHERE node_id = ?", node_id) or 0
    )


def copy(connection: Connection, source_id: str, new_id: str) -> None:
    """Let the copy of a table know as much of the past as its source."""
    _remember(
        connection, new_id, **{name: _known(connection, source_id, name) for name in _MOMENTS}
    )


def check_start(
    connection: Connection,
    layout: TableLayout,
    tablets: Sequence[Tablet],
    start: int,
    *,
    too_old: bool,
) -> None:
    """Refuse a transaction that started before what is known of conflicts in a tablet.

    Args:
        too_old: whether it has lived too long, however short the history.

    Raises:
        YtError: 1729 when the transaction or the table's history is too long, or a tablet was written after
            the start and those rows are in chunks only, whichever keys it is about.
    """
    kept = _known(connection, layout.node_id, "checked_from")
    flushed.flush_table(connection, layout)
    released = flushed.released(connection, layout)
    for tablet in tablets:
        known = max(kept, tablet.chunk_timestamp, released.get(tablet.tablet_id, 0))
        if too_old or start < known:
            raise YtError(
                "Checking for transaction conflicts against chunk stores is not supported; consider"
                " reducing transaction duration or increasing store retention time",
                CANNOT_CHECK_CONFLICTS,
                {
                    "start_timestamp": start,
                    "tablet_id": tablet.tablet_id,
                    "table_path": layout.path,
                },
            )


def prune(connection: Connection, layout: TableLayout, timestamp: int) -> None:
    """Drop what is older than the kept span; at most once a minute per table."""
    pruned_at = _known(connection, layout.node_id, "pruned_at")
    if not pruned_at:
        _remember(connection, layout.node_id, pruned_at=timestamp)
        return
    if timestamp - pruned_at < _span(_PRUNE_EVERY_SECONDS * 1000):
        return
    horizon = timestamp - _span(KEPT_SECONDS * 1000)
    if layout.sorted:
        connection.execute(
            f'DELETE FROM {layout.sql_table} WHERE "$deleted" = 1 AND "$ts" <= ?', (horizon,)
        )
    connection.execute(
        "DELETE FROM row_locks WHERE node_id = ? AND max(read_ts, write_ts, shared_ts) <= ?",
        (layout.node_id, horizon),
    )
    _remember(connection, layout.node_id, pruned_at=timestamp, checked_from=horizon)
    compact(connection, layout, timestamp)


def compact(connection: Connection, layout: TableLayout, timestamp: int) -> None:
    """Drop the rows, and the history of rows, that the settings of a table keep no longer."""
    options = layout.options
    death = _death(options, timestamp)
    if not layout.sorted:
        if death is not None:
            for tablet in layout.tablets:
                _trim_expired(connection, layout, tablet, death)
        return
    table, history = layout.sql_table, layout.history_table
    if death is not None:
        expired, bounds = _expired(layout, timestamp, death)
        # Tombstones are left, so that conflicts with the rows that are gone are found.
        connection.execute(
            f'UPDATE {table} SET "$deleted" = 1 WHERE "$deleted" = 0 AND {expired}', bounds
        )
        for tablet in layout.tablets:
            if not _has_rows(connection, layout, tablet):
                flushed.drop_trimmed(connection, tablet.tablet_id, timestamp)
    kept = int(options["min_data_ttl"])
    horizon = max(timestamp - _span(kept), retained_from(connection, layout.node_id))
    if int(options["max_data_versions"]) > 1:
        kept = max(kept, int(options["max_data_ttl"]))
    connection.execute(f'DELETE FROM {history} WHERE "$until" <= ?', (timestamp - _span(kept),))
    _remember(connection, layout.node_id, retained_from=horizon)


def trim(connection: Connection, layout: TableLayout, tablet: Tablet, row_index: int) -> None:
    """Drop the rows of a tablet before an index that it has."""
    trimmed, weight = counters.of(
        connection, layout, tablet.index, "trimmed_rows", "trimmed_weight"
    )
    if row_index <= trimmed:
        return
    weight += blocks.weight(connection, layout, tablet.tablet_id, trimmed, row_index)
    counters.put(connection, layout, tablet.index, trimmed_rows=row_index, trimmed_weight=weight)
    flushed.drop_trimmed(connection, tablet.tablet_id, row_index)
    # A chunk that is trimmed in part keeps its rows: they come back when the table is made static.
    held = flushed.chunks(connection, tablet.tablet_id)[:1]
    blocks.drop_before(connection, tablet.tablet_id, min([row_index, *(c.first for c in held)]))


def _trim_expired(connection: Connection, layout: TableLayout, tablet: Tablet, death: int) -> None:
    """Trim the chunks whose rows have all expired, unless too few rows would be left."""
    total, trimmed = counters.of(connection, layout, tablet.index, "total_rows", "trimmed_rows")
    living = blocks.first_since(connection, layout, tablet.tablet_id, trimmed, death, total)
    for chunk in flushed.chunks(connection, tablet.tablet_id):
        if chunk.past > living or total - chunk.past < int(layout.options["row_count_to_keep"]):
            break
        trimmed = max(trimmed, chunk.past)
    trim(connection, layout, tablet, trimmed)


def _death(options: dict[str, Any], timestamp: int) -> int | None:
    """Return the moment until which rows have expired; None when the newest version never does."""
    if int(options["min_data_versions"]) > 0:
        return None
    ttl = int(options["min_data_ttl"])
    if int(options["max_data_versions"]) > 0:
        ttl = max(ttl, int(options["max_data_ttl"]))
    return timestamp - _span(ttl)


def _expired(layout: TableLayout, timestamp: int, death: int) -> tuple[str, list[int]]:
    """Return the SQL condition for expired rows of a sorted table, and its parameters.

    A row whose column `$ttl` is not null lives for so many milliseconds after its last write, whatever the
    table says, but for `min_data_ttl` (`ComputeRowMaxDataTtl` in
    `yt/yt/ytlib/table_client/versioned_row_merger.cpp`).
    """
    if TTL_COLUMN not in layout.places or not int(layout.options["max_data_versions"]):
        return '"$ts" <= ?', [death]
    # Integers of 64 bits without a sign are stored with one: those that have it never end.
    ttl = layout.sql_column(TTL_COLUMN)
    seconds = f"(max({ttl}, ?) + 999) / 1000"
    condition = (
        f'CASE WHEN {ttl} IS NULL THEN "$ts" <= ? '
        f'ELSE {ttl} >= 0 AND "$ts" <= ? - (min({seconds}, ?) << {TIMESTAMP_COUNTER_BITS}) END'
    )
    shortest, longest = int(layout.options["min_data_ttl"]), timestamp >> TIMESTAMP_COUNTER_BITS
    return condition, [death, timestamp, shortest, longest]


def key_range(layout: TableLayout, tablets: range) -> tuple[str, list[bytes]]:
    """Return the SQL condition for the keys of tablets, and its parameters."""
    bounds = [layout.tablets[tablets.start].pivot_key]
    if tablets.stop == layout.tablet_count:
        return '"$key" >= ?', bounds
    return '"$key" >= ? AND "$key" < ?', [*bounds, layout.tablets[tablets.stop].pivot_key]


def _has_rows(connection: Connection, layout: TableLayout, tablet: Tablet) -> bool:
    inside, bounds = key_range(layout, range(tablet.index, tablet.index + 1))
    query = f"SELECT 1 FROM {layout.sql_source} WHERE {inside} LIMIT 1"
    return connection.execute(query, bounds).fetchone() is not None


def _span(milliseconds: int) -> int:
    """Return a duration in timestamps; a part of a second is a whole one."""
    return -(-milliseconds // 1000) << TIMESTAMP_COUNTER_BITS


def _remember(connection: Connection, node_id: str, **moments: int) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in moments)
    connection.execute(
        f"UPDATE dynamic_tables SET {changes} WHERE node_id = :node_id",
        {"node_id": node_id, **moments},
    )
