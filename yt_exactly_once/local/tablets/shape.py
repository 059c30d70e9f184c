"""Changes of an unmounted table's shape: how it is cut into tablets, and its schema.

Rows stay where they are: tablets of a sorted table are only bounds, and new columns are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.tables import schema_updates, stamps, values
from yt_exactly_once.local.tables.keys import NULL_KEY
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema, validate_dynamic
from yt_exactly_once.local.tablets import blocks, counters, flushed, retention
from yt_exactly_once.local.tablets.catalog import save_layout, touch_layout
from yt_exactly_once.local.tablets.lifecycle import check_tablet_count
from yt_exactly_once.local.tablets.settings import check_unmounted
from yt_exactly_once.local.tablets.storage import (
    TRIMMED,
    check_pivots,
    encode_pivot,
    insert_tablet,
    parse_pivots,
    parse_trimmed,
    sql_names,
    uniform_pivots,
)


def tablet_range(layout: TableLayout, first: int | None, last: int | None) -> range:
    """Return the tablets between two indexes, both included; None means the end."""
    if first is None and last is None:
        return range(layout.tablet_count)
    # The server's default of an index that is not given is -1, which only both may have.
    first, last = (-1 if index is None else index for index in (first, last))
    for name, index in (("First", first), ("Last", last)):
        if not 0 <= index < layout.tablet_count:
            raise YtError(
                f"{name} tablet index {index} is out of range [0, {layout.tablet_count - 1}]"
            )
    if first > last:
        raise YtError("First tablet index is greater than last tablet index")
    return range(first, last + 1)


def reshard(
    connection: Connection,
    layout: TableLayout,
    bounds: tuple[int | None, int | None],
    count: int | None,
    parameters: dict[str, Any],
) -> None:
    """Replace a range of tablets, which must be unmounted.

    Args:
        bounds: first and last tablet of the range; None for all.
        parameters: with `pivot_keys`, the first keys of the new tablets of a sorted table, or
            `trimmed_row_counts` and `cumulative_data_weights` of those of an ordered one.
    """
    affected = tablet_range(layout, *bounds)
    raw_pivots = parameters.get("pivot_keys")
    for index in affected:
        tablet = layout.tablets[index]
        if tablet.state != "unmounted":
            raise YtError(
                f"Cannot reshard table since tablet {tablet.tablet_id} is not unmounted",
                tablet_id=tablet.tablet_id,
                state=tablet.state,
            )
    if layout.sorted:
        for name in TRIMMED:
            if parameters.get(name):
                raise YtError(f'Cannot reshard sorted table with "{name}"')
        pivots = None if raw_pivots is None else parse_pivots(raw_pivots)
        _reshard_sorted(connection, layout, affected, count, pivots, parameters)
    elif raw_pivots is not None:
        raise YtError("Table is ordered; must provide tablet count")
    elif count is None:
        raise YtError("Tablet count must be provided to reshard an ordered table")
    else:
        _reshard_ordered(connection, layout, affected, count, parameters)
    touch_layout(connection, layout.node_id)


def alter(connection: Connection, layout: TableLayout, raw_schema: Any) -> None:
    """Change the schema of a table; raise 1706 unless it is unmounted, 1 if its rows would not fit."""
    check_unmounted(layout, "Cannot change table schema")
    schema = validate_dynamic(parse_schema(raw_schema))
    computed.check(schema)
    schema_updates.check(layout.schema, schema, dynamic=True)
    _check_stored(layout.schema, schema)
    known = dict(zip((c.name for c in layout.columns), layout.sql_names, strict=True))
    names = sql_names(schema, known)
    altered = TableLayout(layout.node_id, layout.path, schema, names, layout.tablets)
    before, after = ([c.name for c in each.value_columns] for each in (layout, altered))
    added_keys = NULL_KEY * (len(altered.key_columns) - len(layout.key_columns))
    for table in [layout.sql_table, layout.history_table] if layout.sorted else []:
        for name in names:
            if name not in layout.sql_names:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {quote(name)}")
        stamps.move(connection, table, before, after)
        if added_keys:
            # The order of keys does not change.
            extended = f'UPDATE {table} SET "$key" = CAST("$key" || ? AS BLOB)'
            connection.execute(extended, (added_keys,))
    save_layout(connection, layout.node_id, schema, names, layout.options)


def _check_stored(old: TableSchema, new: TableSchema) -> None:
    """Refuse a type whose values lie otherwise: rows stay as they are."""
    types = {column.name: column.wire_type for column in new.columns}
    for column in old.columns:
        if types[column.name] == "any" != column.wire_type:
            raise YtError(
                f'Type of column "{column.name}" cannot become "any" in a dynamic table: this'
                " change is not supported by the embedded cluster"
            )


def _reshard_sorted(
    connection: Connection,
    layout: TableLayout,
    affected: range,
    count: int | None,
    pivots: Sequence[Sequence[Any]] | None,
    parameters: dict[str, Any],
) -> None:
    if pivots is None:
        if count is None:
            raise YtError("Either tablet count or pivot keys must be provided")
        check_tablet_count(count)
        sliced = arguments.flag(parameters, "enable_slicing")
        if not arguments.flag(parameters, "uniform"):
            pivots = _pivots_by_rows(connection, layout, affected, count, sliced=sliced)
        if pivots is None and (sliced or len(affected) != layout.tablet_count):
            raise YtError("Could not reshard the table by its data: there are too few rows")
        pivots = pivots or uniform_pivots(layout.schema, count)
    elif count is not None and count != len(pivots):
        raise YtError(f"Wrong pivot key count: {len(pivots)} instead of {count}")
    check_pivots(layout.schema, pivots, affected.start)
    after = layout.pivot_keys[affected.stop :]
    if affected.start and list(pivots[0]) != list(layout.pivot_keys[affected.start]):
        raise YtError("First pivot key must match that of the first tablet in the resharded range")
    if after and encode_pivot(layout.schema, pivots[-1]) >= encode_pivot(layout.schema, after[0]):
        raise YtError(
            "Last pivot key must be strictly less than that of the tablet which follows the"
            " resharded range"
        )
    _forget_tablets(connection, layout, affected, len(pivots))
    created = [
        insert_tablet(connection, layout.node_id, affected.start + offset, pivot, layout.schema)
        for offset, pivot in enumerate(pivots)
    ]
    # Which keys a chunk holds is not known here: the first new tablet counts the chunks of all.
    for index in affected:
        flushed.join(connection, layout.tablets[index].tablet_id, created[0], 0)


def _pivots_by_rows(
    connection: Connection, layout: TableLayout, affected: range, count: int, *, sliced: bool
) -> list[list[Any]] | None:
    """Return first keys of tablets that hold about as many rows each; None for too few rows."""
    condition, bounds = retention.key_range(layout, affected)
    rows = f"FROM {layout.sql_source} WHERE {condition}"
    (total,) = connection.execute(f"SELECT count(*) {rows}", bounds).fetchone()
    if total < count:
        return None
    names = ", ".join(layout.sql_column(column.name) for column in layout.key_columns)
    found = [
        connection.execute(
            f'SELECT {names} {rows} ORDER BY "$key" LIMIT 1 OFFSET ?',
            # Slices end with a block, one row earlier.
            (*bounds, (number * total - sliced) // count),
        ).fetchone()
        for number in range(1, count)
    ]
    keys = values.decode_rows(layout.key_columns, found)
    return [list(layout.pivot_keys[affected.start]), *(list(key.values()) for key in keys)]


def _reshard_ordered(
    connection: Connection,
    layout: TableLayout,
    affected: range,
    count: int,
    parameters: dict[str, Any],
) -> None:
    check_tablet_count(layout.tablet_count - len(affected) + count)
    kept = min(len(affected), count)
    joined = range(affected.start + kept, affected.stop)
    trimmed = parse_trimmed(parameters, count - kept)
    for index in joined:
        _check_joinable(connection, layout, index)
    for index in joined:
        _join(connection, layout, index, joined.start - 1)
    for index in range(affected.start, joined.start):
        _replace_tablet(connection, layout, index)
    _forget_tablets(connection, layout, joined, count - kept)
    for index, state in enumerate(trimmed, joined.start):
        insert_tablet(connection, layout.node_id, index, (), layout.schema, state)


def _check_joinable(connection: Connection, layout: TableLayout, index: int) -> None:
    """Refuse to join a tablet that is trimmed into a chunk: its rows could not be numbered."""
    tablet = layout.tablets[index]
    trimmed = counters.of(connection, layout, index, "trimmed_rows")
    if trimmed != flushed.first_kept(connection, tablet.tablet_id):
        raise YtError(
            f"Some chunks of tablet {tablet.tablet_id} are not fully trimmed; such a tablet"
            " cannot participate in resharding; mount the table, trim whole chunks, unmount it"
        )


def _join(connection: Connection, layout: TableLayout, source: int, target: int) -> None:
    """Append the rows of one tablet to another one, which must be before it."""
    names = ("total_rows", "trimmed_rows", "total_weight", "trimmed_weight")
    total, trimmed, weight, trimmed_weight = counters.of(connection, layout, source, *names)
    past, _, kept_weight, _ = counters.of(connection, layout, target, *names)
    source_id, target_id = (layout.tablets[index].tablet_id for index in (source, target))
    blocks.keep(connection, layout, source_id, trimmed, total)
    blocks.move(connection, source_id, target_id, past - trimmed)
    kept_weight += weight - trimmed_weight
    counters.put(
        connection, layout, target, total_rows=past + total - trimmed, total_weight=kept_weight
    )
    flushed.join(connection, source_id, target_id, past - trimmed)


def _replace_tablet(connection: Connection, layout: TableLayout, index: int) -> None:
    """Give a tablet that keeps its rows a new id, as everything in a resharded range gets."""
    tablet_id = make_id("tablet")
    counters.put(connection, layout, index, tablet_id=tablet_id)
    old_id = layout.tablets[index].tablet_id
    flushed.rename(connection, old_id, tablet_id)
    blocks.move(connection, old_id, tablet_id)


def _forget_tablets(
    connection: Connection, layout: TableLayout, removed: range, added: int
) -> None:
    """Remove tablets and move the later ones so that a number of new ones fits in between."""
    connection.execute(
        "DELETE FROM tablets WHERE node_id = ? AND tablet_index >= ? AND tablet_index < ?",
        (layout.node_id, removed.start, removed.stop),
    )
    shift = added - len(removed)
    moved = range(removed.stop, layout.tablet_count)
    for index in reversed(moved) if shift > 0 else moved:
        counters.put(connection, layout, index, tablet_index=index + shift)
