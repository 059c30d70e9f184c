"""Rows of dynamic tables: insert, delete, lock and lookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.registry import Context, Rows, command
from yt_exactly_once.local.commands.sessions import (
    conversions_of,
    note_access,
    read_moments,
    reading,
    table_of,
    transaction_of,
    wants_timestamps,
)
from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import modifications, reads, validation, versions
from yt_exactly_once.local.tablets.access import check_readable

_MANY_KEYS = 64
"""From so many on rows are written faster by columns."""


@command("insert_rows", input_type="tabular", volatile=True, heavy=True)
def insert_rows(context: Context) -> None:
    """Write rows; the answer has no body although it counts as structured."""
    parameters = context.parameters
    layout = table_of(context)
    update = arguments.flag(parameters, "update")
    if update and not layout.sorted:
        raise YtError('Cannot use "update" mode for ordered tables')
    batches = modifications.write_batches(
        layout,
        context.read_rows(validation.input_schema(layout)),
        update=update,
        aggregate=arguments.flag(parameters, "aggregate"),
        lock_type=str(parameters.get("lock_type") or "exclusive"),
        conversions=conversions_of(context, null_to_entity=True),
    )
    with transaction_of(context) as transaction:
        transaction.buffer(batches)


@command("delete_rows", input_type="tabular", volatile=True, heavy=True)
def delete_rows(context: Context) -> dict[str, Any]:
    """Delete rows of a sorted table by key."""
    layout = _sorted_table(context)
    rows = context.read_rows(validation.input_schema(layout, keys_only=True))
    batch = modifications.delete_batch(layout, rows, conversions=conversions_of(context))
    with transaction_of(context) as transaction:
        transaction.buffer([batch])
    return {}


@command("lock_rows", input_type="tabular", volatile=True, heavy=True)
def lock_rows(context: Context) -> dict[str, Any]:
    """Lock rows of a sorted table when the transaction commits."""
    parameters = context.parameters
    transaction_id = arguments.identifier(parameters, "transaction_id")
    if transaction_id is None:
        raise YtError("Transaction is required")
    layout = _sorted_table(context)
    batch = modifications.lock_batch(
        layout,
        context.read_rows(validation.input_schema(layout, keys_only=True)),
        arguments.texts(parameters.get("locks") or [], "locks"),
        str(parameters.get("lock_type") or "shared_strong"),
        conversions=conversions_of(context),
    )
    context.proxy.transactions.get(transaction_id.lower()).buffer([batch])
    return {}


@command(
    "lookup_rows",
    input_type="tabular",
    output_type="tabular",
    heavy=True,
    partial="old versions are kept for ten minutes; a write that aggregates counts as its result",
)
def lookup_rows(context: Context) -> Rows:
    """Read rows of a sorted table by key, at the start of the transaction if there is one."""
    parameters = context.parameters
    _check_plain_path(parameters.get("path"))
    keep = arguments.flag(parameters, "keep_missing_rows")
    layout = _sorted_table(context, "read")
    rows = context.read_rows(validation.input_schema(layout, keys_only=True))
    encoded = validation.encode_keys(layout, rows, conversions=conversions_of(context))
    keys = modifications.keys_of(layout, encoded)
    check_readable(layout, layout.tablets_of(keys))
    columns = _chosen_columns(layout, parameters.get("column_names"))
    read = _reader(parameters)
    if read is reads.lookup and not keep and len(keys) >= _MANY_KEYS:
        read = reads.lookup_stored
    note_access(context, layout.node_id)
    moments = read_moments(context)
    found: Sequence[Any] = [None] * len(keys)
    with reading(context) as connection:
        seen = reads.layout_at(connection, layout, *moments)
        if seen is not None:
            found = read(connection, seen, keys, columns)
    if isinstance(found, StoredRows):
        return Rows(found, columns)
    rows = list(found) if keep else [row for row in found if row is not None]
    return Rows(rows, columns)


def _reader(parameters: dict[str, Any]) -> Any:
    """Return the function that looks rows up, with versions or timestamps where they are wanted."""
    stamped = wants_timestamps(parameters)
    if not arguments.flag(parameters, "versioned"):
        return reads.timestamped_lookup if stamped else reads.lookup
    if stamped:
        raise YtError("Versioned lookups do not support timestamp columns")
    return versions.lookup


def _sorted_table(context: Context, permission: str | None = None) -> TableLayout:
    layout = table_of(context, permission=permission)
    if not layout.sorted:
        raise YtError(f"Table {layout.path} is not sorted", Code.TABLE_MUST_BE_SORTED)
    return layout


def _chosen_columns(layout: TableLayout, names: Any) -> tuple[Column, ...]:
    if names is None:
        return layout.columns
    wanted = set(arguments.texts(names, "column_names"))
    for name in sorted(wanted):
        if layout.column(name) is None:
            raise YtError(f'No such column "{name}"')
    return tuple(column for column in layout.columns if column.name in wanted)


def _check_plain_path(path: Any) -> None:
    attributes = ypath.parse(path).attributes
    if attributes.get("columns") is not None:
        raise YtError('Columns cannot be specified with table path, use "column_names" instead')
    if attributes.get("ranges"):
        raise YtError("Ranges cannot be specified")
