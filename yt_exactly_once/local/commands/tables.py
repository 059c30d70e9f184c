"""Dynamic tables as a whole: mount states, shape, trimming, what tablets report, and back to static."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from sqlite3 import Connection
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import whole_tables
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.commands.sessions import once, opened, path_of, table_of, view_of
from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    dynamic,
    limits,
    locks,
    permissions,
    quotas,
    tree,
    ypath,
)
from yt_exactly_once.local.cypress.layout import TRUNK
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats import row_formats
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.queues import trimming
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.store import last_timestamp, next_timestamp
from yt_exactly_once.local.tables import schema_updates
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import parse_schema, validate_dynamic
from yt_exactly_once.local.tablets import (
    blocks,
    bulk,
    counters,
    forced_unmount,
    retention,
    settings,
    shape,
    states,
)
from yt_exactly_once.local.tablets.access import check_has_cell, open_node, tablet_at
from yt_exactly_once.local.tablets.appends import apply_due
from yt_exactly_once.local.tablets.catalog import find_layout, load_layout

_FORCED_COMPACTION = ("forced_compaction_revision", "forced_store_compaction_revision")
_TRANSITIONS: dict[str, tuple[states.Action, str]] = {
    "freeze_table": ("freeze", "frozen"),
    "mount_table": ("mount", "mounted"),
    "unfreeze_table": ("unfreeze", "mounted"),
    "unmount_table": ("unmount", "unmounted"),
}
_Change = Callable[[Context, Connection, Node, TableLayout], None]
_INSTANT = "tablets change state at once, there are no transient states"
_STATIC_ATTRIBUTES = ("schema", "schema_mode")


def _of_tablets(change: _Change) -> Callable[[Context], Any]:
    """Make a handler that changes a dynamic table once, even when the request comes twice."""

    @once
    def apply(context: Context, connection: Connection) -> None:
        path, view = context.parameters.get("path"), View(connection, user=context.user)
        position = tree.reach(view, ypath.parse(path))
        if find_layout(connection, position.id, position.path) is None:
            raise YtError(f"Cannot {context.command.removesuffix('_table')} a static table")
        node, layout = open_node(connection, path)
        permissions.require(view, node.id, "mount")
        bundle = str(node.attributes.get(quotas.BUNDLE) or "default")
        bundle_id = view.find(f"{quotas.BUNDLE}s", bundle)
        if bundle_id is not None:
            permissions.require(view, bundle_id, "use")
            if arguments.flag(context.parameters, "force"):
                permissions.require(view, bundle_id, "administer")
        # Nobody else may hold the table; a change of tablets itself belongs to no transaction.
        locks.acquire(view, node.id)
        change(context, connection, node, layout)

    return wraps(change)(apply)


@command("freeze_table", volatile=True, partial=_INSTANT)
@command("mount_table", volatile=True, partial=_INSTANT)
@command("unfreeze_table", volatile=True, partial=_INSTANT)
@command(
    "unmount_table",
    volatile=True,
    partial=f"{_INSTANT}; `force` loses rows written since the last flush",
)
@_of_tablets
def change_state(context: Context, connection: Connection, node: Node, layout: TableLayout) -> None:
    """Mount, unmount, freeze or unfreeze tablets; with `freeze` mounted ones come up frozen."""
    parameters = context.parameters
    action, state = _TRANSITIONS[context.command]
    if action == "mount" and arguments.flag(parameters, "freeze"):
        action, state = "mount_frozen", "frozen"
    first = arguments.integer(parameters, "first_tablet_index", None)
    last = arguments.integer(parameters, "last_tablet_index", None)
    force = arguments.flag(parameters, "force")
    cell_id = arguments.identifier(parameters, "cell_id")
    if cell_id is not None and View(connection).node_type(cell_id) != "tablet_cell":
        raise YtError(f"No such tablet cell {cell_id}", Code.RESOLVE)
    indexes = shape.tablet_range(layout, first, last)
    states.check_transition(layout, action, indexes, force=force)
    if force and action == "unmount":
        mounted = [index for index in indexes if layout.tablets[index].state == "mounted"]
        forced_unmount.drop_unflushed(connection, layout, mounted)
    states.change_state(connection, layout, state, node.attributes, indexes)
    if state == "mounted" and layout.state == "unmounted":
        quotas.check(View(connection), node.id, "tablet_static_memory")


@command("remount_table", volatile=True)
@_of_tablets
def remount_table(
    _context: Context, connection: Connection, node: Node, layout: TableLayout
) -> None:
    """Let the settings of the table take effect."""
    remounted = states.remount(connection, layout, node.attributes)
    if any(name in node.attributes for name in _FORCED_COMPACTION):
        retention.compact(connection, remounted, next_timestamp(connection))


@command(
    "reshard_table",
    volatile=True,
    partial="sorted tables are cut by pivot keys, by rows, or without rows evenly by key",
)
@_of_tablets
def reshard_table(
    context: Context, connection: Connection, node: Node, layout: TableLayout
) -> None:
    """Cut a range of unmounted tablets again."""
    parameters = context.parameters
    first = arguments.integer(parameters, "first_tablet_index", None)
    last = arguments.integer(parameters, "last_tablet_index", None)
    count = arguments.integer(parameters, "tablet_count", None)
    shape.reshard(connection, layout, (first, last), count, parameters)
    quotas.check(View(connection), node.id, "tablet_count")


@command("trim_rows", volatile=True, heavy=True)
def trim_rows(context: Context) -> dict[str, Any]:
    """Drop the rows of a tablet before an index; no transaction has a part in it."""
    index = arguments.integer(context.parameters, "tablet_index")
    count = arguments.integer(context.parameters, "trimmed_row_count")
    apply_due(context.proxy.store)
    with context.proxy.store.write() as connection:
        layout = opened(context, connection, permission="write")
        if layout.sorted:
            raise YtError(f"Table {layout.path} is not ordered")
        trimming.trim(connection, layout, index, count)
    return {}


@command("get_tablet_infos", volatile=True)
def get_tablet_infos(context: Context) -> dict[str, Any]:
    """Report row counts of tablets, of what is visible now."""
    indexes = arguments.integers(context.parameters.get("tablet_indexes"), "tablet_indexes")
    with_errors = arguments.flag(context.parameters, "request_errors")
    apply_due(context.proxy.store)
    with context.proxy.store.read() as connection:
        layout = opened(context, connection)
        infos = []
        for index in indexes:
            tablet = tablet_at(layout, index)
            check_has_cell([tablet])
            total, trimmed, last_write = counters.of(
                connection, layout, index, "total_rows", "trimmed_rows", "last_write_ts"
            )
            info: dict[str, Any] = {
                "total_row_count": total,
                "trimmed_row_count": trimmed,
                "delayed_lockless_row_count": 0,
                "barrier_timestamp": YsonUint64(last_timestamp(connection)),
                "last_write_timestamp": YsonUint64(last_write),
            }
            if with_errors:
                info["tablet_errors"] = []
            infos.append(info)
    return {"tablets": infos}


@command("get_table_pivot_keys")
def get_table_pivot_keys(context: Context) -> list[Any]:
    """Return the first key of every tablet."""
    layout = table_of(context, permission="read")
    if not layout.sorted:
        raise YtError(f"Table {layout.path} is not sorted")
    if arguments.flag(context.parameters, "represent_key_as_list"):
        return [list(pivot) for pivot in layout.pivot_keys]
    names = [column.name for column in layout.key_columns]
    return [dict(zip(names, pivot, strict=False)) for pivot in layout.pivot_keys]


@command("alter_table", volatile=True, partial="columns are neither renamed nor deleted")
@once
def alter_table(context: Context, connection: Connection) -> None:
    """Change the schema of an unmounted table, and make a static table dynamic or back."""
    path = path_of(context)
    view = view_of(context, connection)
    node = whole_tables.allowed(view, path, "write")
    locks.acquire(view, node.id)
    wanted = arguments.flag(context.parameters, "dynamic", bool(node.attributes.get("dynamic")))
    if (wanted or node.attributes.get("dynamic")) and view.tx != TRUNK:
        raise YtError("Operation cannot be performed in transaction: alter a dynamic table")
    if node.attributes.get("dynamic"):
        node, layout = open_node(connection, path.text)
        _alter_dynamic(context, view, node, layout, stays=wanted)
    else:
        _alter_static(context, view, node, becomes_dynamic=wanted)
    clock.touch(view, node.id, "content")


def _alter_dynamic(
    context: Context, view: View, node: Node, layout: TableLayout, *, stays: bool
) -> None:
    schema = context.parameters.get("schema")
    if schema is not None:
        shape.alter(view.connection, layout, schema)
    if stays:
        return
    if layout.sorted:
        raise YtError("Cannot switch mode from dynamic to static: table is sorted")
    settings.check_unmounted(layout, "Cannot switch mode from dynamic to static")
    layout = load_layout(view.connection, node.id, node.path)
    for tablet in layout.tablets:
        blocks.untrim(view.connection, tablet.tablet_id)
    source = whole_tables.opened(View(view.connection), path_of(context), counts_trimmed=False)
    everything = static_rows.Range(0, source.row_count)
    rows = [row for rows in source.read(everything) for row in rows]
    dynamic.tables().drop(view.connection, node.id)
    view.drop_attribute(node.id, "dynamic")
    view.put_attributes(node.id, {"schema": layout.schema.to_yson(), "schema_mode": "strong"})
    chunks.write(view, node.id, static_rows.pack([rows]), append=False)


def _alter_static(context: Context, view: View, node: Node, *, becomes_dynamic: bool) -> None:
    old = static_rows.schema_of(node.attributes)
    given = context.parameters.get("schema")
    schema = old if given is None else parse_schema(given)
    listed = chunks.chunks(view, node.id)
    if becomes_dynamic:
        if schema.is_sorted and not schema.unique_keys:
            raise YtError('"unique_keys" cannot be "false" for a sorted dynamic table')
        schema = validate_dynamic(schema)
    limits.check_order(view, schema)
    computed.check(schema, dynamic=becomes_dynamic)
    if given is not None and any(chunk.row_count for chunk in listed):
        schema_updates.check(old, schema, dynamic=becomes_dynamic)
    if not becomes_dynamic:
        if given is not None:
            values = {"schema": schema.to_yson(), "schema_mode": "strong"}
            view.put_attributes(node.id, values)
        return
    connection = view.connection
    for name in _STATIC_ATTRIBUTES:
        view.drop_attribute(node.id, name)
    dynamic.tables().create(
        connection, node.id, {**node.attributes, "schema": schema.to_yson(), "dynamic": True}
    )
    view.put_attribute(node.id, "dynamic", True)
    layout = load_layout(connection, node.id, node.path)
    timestamp = next_timestamp(connection)
    for chunk in listed:
        rows = row_formats.load_stored(chunks.read(connection, chunk))
        bulk.load(connection, layout, static_rows.stored(schema, rows), chunk, timestamp)
    chunks.replace(view, node.id, [])
    quotas.check(view, node.id, "tablet_count")
