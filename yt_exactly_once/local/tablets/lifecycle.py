"""Life of dynamic tables: creation, removal and copies, as the tree asks for them.

It never reads or writes rows of clients. A change of shape (schema, tablets) is in `shape`, mounting in
`states`, and the rules of settings are in `settings`.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.tables.schema import (
    CONSUMER_SCHEMA,
    PRODUCER_SCHEMA,
    TableSchema,
    parse_schema,
    validate_dynamic,
)
from yt_exactly_once.local.tablets import blocks, flushed, retention, settings
from yt_exactly_once.local.tablets.catalog import (
    find_layout,
    load_layout,
    save_layout,
    touch_layout,
)
from yt_exactly_once.local.tablets.states import change_state, options_of
from yt_exactly_once.local.tablets.storage import (
    TRIMMED,
    check_pivots,
    create_storage,
    insert_tablet,
    parse_pivots,
    parse_trimmed,
    sql_names,
    uniform_pivots,
)

MAX_TABLET_COUNT = 10_000

_SHAPE_ATTRIBUTES = frozenset(("schema", "dynamic", "tablet_count", "pivot_keys", *TRIMMED))


def create(connection: Connection, node_id: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Create the storage of a new dynamic table.

    Consumers and producers (`treat_as_queue_consumer`, `treat_as_queue_producer`) for which no schema
    is given get their fixed one, and are mounted at once. Returns the attributes to keep on the node.
    """
    raw = attributes.get("schema")
    service = _service_schema(attributes) if raw is None else None
    if raw is None and service is None:
        raise YtError('"schema" is mandatory for dynamic tables')
    try:
        schema = validate_dynamic(service or parse_schema(raw))
        computed.check(schema)
    except YtError as error:
        raise YtError("New table schema is not valid", inner=[error]) from error
    kept = {name: value for name, value in attributes.items() if name not in _SHAPE_ATTRIBUTES}
    for name, value in kept.items():
        settings.check_value(name, value, is_sorted=schema.is_sorted)
    names = sql_names(schema)
    create_storage(connection, node_id, schema, names)
    save_layout(connection, node_id, schema, names, options_of(kept))
    _create_tablets(connection, node_id, schema, attributes)
    if service is not None:
        change_state(connection, load_layout(connection, node_id, node_id), "mounted", kept)
    return kept


def drop(connection: Connection, node_id: str) -> None:
    """Remove the storage of a dynamic table; other nodes are left alone."""
    layout = find_layout(connection, node_id, node_id)
    if layout is None:
        return
    if layout.sorted:
        connection.execute(f"DROP TABLE {layout.sql_table}")
        connection.execute(f"DROP TABLE {layout.history_table}")
    for table in ("blocks", "chunk_lists"):
        connection.execute(
            f"DELETE FROM {table} WHERE tablet_id IN"
            " (SELECT tablet_id FROM tablets WHERE node_id = ?)",
            (node_id,),
        )
    for table in ("tablets", "dynamic_tables", "pending_appends", "row_locks"):
        connection.execute(f"DELETE FROM {table} WHERE node_id = ?", (node_id,))


def copy(connection: Connection, source_node_id: str, new_node_id: str) -> None:
    """Copy the storage of a dynamic table; raise 1706 unless it is frozen or unmounted, as its copy is."""
    source = load_layout(connection, source_node_id, source_node_id)
    if any(tablet.state not in ("unmounted", "frozen") for tablet in source.tablets):
        raise YtError(
            "Cannot copy dynamic table since not all tablets are frozen or unmounted",
            Code.INVALID_TABLET_STATE,
            {"actual_tablet_state": source.state},
        )
    create_storage(connection, new_node_id, source.schema, source.sql_names)
    save_layout(connection, new_node_id, source.schema, source.sql_names, source.options)
    copied = load_layout(connection, new_node_id, new_node_id)
    if source.sorted:
        for old, new, own in (
            (source.sql_table, copied.sql_table, ""),
            (source.history_table, copied.history_table, ', "$until"'),
        ):
            # By name: new columns are the last ones of an altered table.
            names = source.version_columns + own
            connection.execute(f"INSERT INTO {new} ({names}) SELECT {names} FROM {old}")
    retention.copy(connection, source_node_id, new_node_id)
    for tablet in source.tablets:
        tablet_id = make_id("tablet")
        flushed.copy(connection, tablet.tablet_id, tablet_id)
        blocks.copy(connection, tablet.tablet_id, tablet_id)
        connection.execute(
            "INSERT INTO tablets (node_id, tablet_index, tablet_id, state, pivot_key,"
            " mount_revision, total_rows, trimmed_rows, total_weight, trimmed_weight, last_write_ts)"
            " SELECT ?, tablet_index, ?, 'unmounted', pivot_key, 0, total_rows, trimmed_rows,"
            " total_weight, trimmed_weight, last_write_ts FROM tablets"
            " WHERE node_id = ? AND tablet_index = ?",
            (new_node_id, tablet_id, source_node_id, tablet.index),
        )
    touch_layout(connection, new_node_id)


def check_movable(connection: Connection, node_id: str) -> None:
    """Refuse, with 1706, to move a dynamic table with a mounted or frozen tablet."""
    layout = find_layout(connection, node_id, node_id)
    if layout is not None:
        settings.check_unmounted(layout, "Cannot move dynamic table")


def check_change(
    connection: Connection, node: Node, name: str, *value: Any, in_transaction: bool
) -> None:
    """Refuse a change of a setting that is not allowed now; without a value, its removal.

    Settings act from the next mount or remount on, as on a real cluster.
    """
    layout = load_layout(connection, node.id, node.path)
    settings.check_change(layout, name, in_transaction=in_transaction)
    for given in value:
        settings.check_value(name, given, is_sorted=layout.sorted)


def _create_tablets(
    connection: Connection, node_id: str, schema: TableSchema, attributes: dict[str, Any]
) -> None:
    count = arguments.integer(attributes, "tablet_count", None)
    raw_pivots = attributes.get("pivot_keys")
    pivots = None if raw_pivots is None else parse_pivots(raw_pivots)
    if count is not None and pivots is not None:
        raise YtError('Cannot specify both "tablet_count" and "pivot_keys"')
    if pivots is not None and not schema.is_sorted:
        raise YtError("Table is ordered; must provide tablet count")
    for name in TRIMMED:
        if attributes.get(name) and schema.is_sorted:
            raise YtError(f'"{name}" can only be set for ordered tables')
        if attributes.get(name) and count is None:
            raise YtError(f'"{name}" cannot be specified without "tablet_count"')
    total = len(pivots) if pivots is not None else 1 if count is None else count
    check_tablet_count(total)
    if schema.is_sorted:
        chosen = uniform_pivots(schema, total) if pivots is None else pivots
        check_pivots(schema, chosen, 0)
        for index, pivot in enumerate(chosen):
            insert_tablet(connection, node_id, index, pivot, schema)
        return
    for index, trimmed in enumerate(parse_trimmed(attributes, total)):
        insert_tablet(connection, node_id, index, (), schema, trimmed)


def check_tablet_count(count: int) -> None:
    """Refuse a number of tablets that no table may have."""
    if count < 1:
        raise YtError(f"Tablet count must be positive, got {count}")
    if count > MAX_TABLET_COUNT:
        raise YtError(f"Tablet count cannot exceed the limit of {MAX_TABLET_COUNT}")


def _service_schema(attributes: dict[str, Any]) -> TableSchema | None:
    if attributes.get("treat_as_queue_consumer"):
        return CONSUMER_SCHEMA
    if attributes.get("treat_as_queue_producer"):
        return PRODUCER_SCHEMA
    return None
