"""Commands that read and write whole tables: read_table, write_table, concatenate.

Static tables are read and written here; dynamic ones can be read like static ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local import arguments, static_rows
from yt_exactly_once.local.commands.cypress import path_of, view_of
from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    locks,
    master_transactions,
    rich_path,
    tree,
    ypath,
)
from yt_exactly_once.local.cypress.mutations import run_once
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.registry import Context, Rows, command
from yt_exactly_once.local.tablets import values
from yt_exactly_once.local.tablets.layout import load_layout
from yt_exactly_once.local.tablets.schema import TableSchema, parse_schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from yt_exactly_once.local.cypress.tree import Node
    from yt_exactly_once.local.cypress.view import View
    from yt_exactly_once.local.cypress.ypath import YPath
    from yt_exactly_once.local.static_rows import Range, Row


@command(
    "write_table",
    input_type="tabular",
    volatile=True,
    heavy=True,
    partial="static tables only; codecs and writer options are ignored; column names are UTF-8",
)
def write_table(context: Context) -> Any:
    """Replace the rows of a static table, or append to it with `<append=%true>`."""
    path = path_of(context)
    append = arguments.flag(dict(path.attributes), "append")
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        stored = static_rows.schema_of(_static(view, path).attributes)
    schema = _wanted_schema(path, stored)
    columns = [column.to_yson() for column in schema.columns]
    rows = list(context.read_rows(columns or None))
    with context.proxy.store.write() as connection:
        master_transactions.expire(connection)
        view = view_of(context, connection)
        node = _static(view, path)
        locks.acquire(view, node.id, locks.SHARED if append else locks.EXCLUSIVE)
        static_rows.write(view, node.id, schema, rows, append=append)
        if schema is not stored and not append:
            view.put_attributes(node.id, {"schema": schema.to_yson(), "schema_mode": "strong"})
        clock.touch(view, node.id, "content")
    return {}


@command(
    "read_table",
    output_type="tabular",
    heavy=True,
    partial="answers in YSON, JSON, DSV only, gathered before they are sent (no trailers);"
    " of a mounted dynamic table rows are read that a real one might not have flushed yet",
)
def read_table(context: Context) -> Any:
    """Read the rows of a table, or the ranges and columns that the path selects."""
    path = path_of(context)
    control = arguments.mapping(context.parameters.get("control_attributes") or {}, "control")
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        node = _table(view, path)
        if node.attributes.get("dynamic"):
            parts = _read_dynamic(connection, node, path)
        else:
            parts = _read_static(view, node, path)
    answer: list[Any] = []
    for number, (wanted, rows) in enumerate(parts):
        if control.get("enable_range_index") and rows:
            answer.append(_control("range_index", number))
        if control.get("enable_row_index") and rows:
            answer.append(_control("row_index", wanted.start))
        answer += rows
    context.response_parameters["approximate_row_count"] = sum(len(rows) for _, rows in parts)
    first = next((wanted.start for wanted, rows in parts if rows), None)
    if first is not None:
        context.response_parameters["start_row_index"] = first
    return Rows(answer)


@command("concatenate", volatile=True, partial="schemas are not merged")
def concatenate(context: Context) -> Any:
    """Put the chunks of several files or tables into one."""
    sources = context.parameters.get("source_paths")
    if not isinstance(sources, list) or not sources:
        raise YtError('Parameter "source_paths" must be a list with at least one path')
    target = path_of(context, "destination_path")
    append = arguments.flag(dict(target.attributes), "append")
    parsed = [ypath.parse(source, "source_paths") for source in sources]

    def change(connection: sqlite3.Connection) -> dict[str, Any]:
        view = view_of(context, connection)
        nodes = [_existing(view, path) for path in [*parsed, target]]
        if len({node.type for node in nodes}) > 1 or nodes[0].type not in {"file", "table"}:
            raise YtError("Files can be joined with files only, and tables with tables")
        if any(node.attributes.get("dynamic") for node in nodes):
            raise YtError("Dynamic tables cannot be joined")
        *sources, result = nodes
        locks.acquire(view, result.id, locks.SHARED if append else locks.EXCLUSIVE)
        listed = [chunk for node in sources for chunk in chunks.chunks(view, node.id)]
        kept = chunks.chunks(view, result.id) if append else []
        chunks.replace(view, result.id, [*kept, *listed])
        clock.touch(view, result.id, "content")
        return {}

    return run_once(context, change)


@command("parse_ypath")
def parse_ypath(context: Context) -> Any:
    """Return a path with its rich parts as attributes."""
    text, attributes = rich_path.split(context.parameters.get("path"), "path")
    parsed = yson.YsonUnicode(text)
    parsed.attributes = attributes
    return {"path": parsed}


def _existing(view: View, path: YPath) -> Node:
    position = tree.walk(view, path)
    if position.rest:
        raise position.missing()
    return tree.load(view, position)


def _table(view: View, path: YPath) -> Node:
    node = _existing(view, path)
    if node.type != "table":
        raise YtError(f'Invalid type of {node.path}: expected "table", actual "{node.type}"')
    return node


def _static(view: View, path: YPath) -> Node:
    node = _table(view, path)
    if node.attributes.get("dynamic"):
        raise YtError(
            f"Cannot write to dynamic table {node.path} with write_table; use insert_rows"
        )
    return node


def _wanted_schema(path: YPath, stored: TableSchema) -> TableSchema:
    """Return the schema that the written rows must fit, from the path or from the table."""
    given = path.attributes.get("schema")
    if given is not None:
        return parse_schema(given)
    sorted_by = path.attributes.get("sorted_by")
    if sorted_by is None:
        return stored
    if not isinstance(sorted_by, list):
        raise YtError('Error parsing path attribute "sorted_by": expected a list')
    known = {column.name: column.to_yson() for column in stored.columns}
    keys = [
        {**known.pop(str(name), {"name": str(name), "type": "any"}), "sort_order": "ascending"}
        for name in sorted_by
    ]
    listing = yson.YsonList([*keys, *known.values()])
    listing.attributes = {"strict": stored.strict, "unique_keys": False}
    return parse_schema(listing)


def _read_static(view: View, node: Node, path: YPath) -> list[tuple[Range, Sequence[Row]]]:
    schema = static_rows.schema_of(node.attributes)
    total = static_rows.row_count(view, node.id)
    selectors = _selectors(path)
    encoded = None
    if static_rows.has_key_limits(selectors):
        everything = static_rows.read(view, node.id, static_rows.Range(0, total))
        encoded = static_rows.encode_keys(schema, everything) if schema.is_sorted else None
    ranges = static_rows.find_ranges(selectors, total, schema, encoded)
    return [(wanted, _select(static_rows.read(view, node.id, wanted), path)) for wanted in ranges]


def _read_dynamic(
    connection: sqlite3.Connection, node: Node, path: YPath
) -> list[tuple[Range, Sequence[Row]]]:
    layout = load_layout(connection, node.id, node.path)
    columns = layout.columns
    listed = ", ".join(layout.sql_column(column.name) for column in columns)
    order = '"$key"' if layout.sorted else '"$tablet_index", "$row_index"'
    stored = connection.execute(
        f"SELECT {listed} FROM {layout.sql_source} ORDER BY {order}"
    ).fetchall()
    rows = values.decode_rows(columns, stored)
    selectors = _selectors(path)
    encoded = None
    if static_rows.has_key_limits(selectors) and layout.sorted:
        encoded = static_rows.encode_keys(layout.schema, rows)
    ranges = static_rows.find_ranges(selectors, len(rows), layout.schema, encoded)
    return [(wanted, _select(rows[wanted.start : wanted.end], path)) for wanted in ranges]


def _selectors(path: YPath) -> Any:
    """Return the ranges of a path; older clients give one range as limits of the path itself."""
    if "ranges" in path.attributes:
        return path.attributes["ranges"]
    limits = {
        name: path.attributes[name]
        for name in ("lower_limit", "upper_limit", "exact")
        if name in path.attributes
    }
    return [limits] if limits else None


def _select(rows: Sequence[Row], path: YPath) -> Sequence[Row]:
    columns = path.attributes.get("columns")
    if columns is None:
        return rows
    if not isinstance(columns, list):
        raise YtError('Error parsing path attribute "columns": expected a list')
    wanted = [str(name) for name in columns]
    return [{name: row[name] for name in wanted if name in row} for row in rows]


def _control(name: str, value: int) -> Any:
    entity = yson.YsonEntity()
    entity.attributes = {name: value}
    return entity
