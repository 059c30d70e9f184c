"""alter_table: another schema, and the way between static and dynamic tables."""

from __future__ import annotations

import sqlite3

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import whole_tables
from yt_exactly_once.local.commands.cypress import path_of, view_of
from yt_exactly_once.local.commands.mutations import once
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.cypress import chunks, clock, dynamic, limits, locks, quotas
from yt_exactly_once.local.cypress.layout import TRUNK
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_formats
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.store import next_timestamp
from yt_exactly_once.local.tables import schema_updates
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import parse_schema, validate_dynamic
from yt_exactly_once.local.tablets import blocks, bulk, settings, shape
from yt_exactly_once.local.tablets.access import open_node
from yt_exactly_once.local.tablets.catalog import load_layout

_STATIC_ATTRIBUTES = ("schema", "schema_mode")


@command("alter_table", volatile=True, partial="columns are neither renamed nor deleted")
@once
def alter_table(context: Context, connection: sqlite3.Connection) -> None:
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
    source = whole_tables.opened(View(view.connection), path_of(context))
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
