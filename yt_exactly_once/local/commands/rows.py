"""Rows of dynamic tables: insert, delete, lock, lookup and queries, at the start of a transaction if any."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments, ql
from yt_exactly_once.local.commands.registry import Context, Rows, command
from yt_exactly_once.local.commands.sessions import (
    conversions_of,
    note_access,
    read_moments,
    reading,
    refuse_timestamps,
    table_of,
    transaction_of,
)
from yt_exactly_once.local.cypress import permissions, ypath
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql.coverage import Reading, tablets_in
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import modifications, query_rows, reads, validation, versions
from yt_exactly_once.local.tablets.access import check_readable, open_table
from yt_exactly_once.local.tablets.appends import apply_due

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
    partial="old versions are kept for ten minutes; a write that aggregates counts as its result;"
    " no timestamps beside values but those of versioned=true",
)
def lookup_rows(context: Context) -> Rows:
    """Read rows of a sorted table by key, at the start of the transaction if there is one."""
    parameters = context.parameters
    _check_plain_path(parameters.get("path"))
    keep = arguments.flag(parameters, "keep_missing_rows")
    layout = _sorted_table(context, "read")
    rows = context.read_rows(validation.input_schema(layout, keys_only=True))
    keys = modifications.keys_of(layout, rows, conversions_of(context))
    check_readable(layout, layout.tablets_of(keys))
    columns = _chosen_columns(layout, parameters.get("column_names"))
    refuse_timestamps(parameters)
    read: Any = reads.lookup
    if arguments.flag(parameters, "versioned"):
        kept = versions.Retention(parameters.get("retention_config"))
        read = partial(versions.lookup, retention=kept)
    elif not keep and len(keys) >= _MANY_KEYS:
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
        if name not in layout.places:
            raise YtError(f'No such column "{name}"')
    return tuple(column for column in layout.columns if column.name in wanted)


def _check_plain_path(path: Any) -> None:
    attributes = ypath.parse(path).attributes
    if attributes.get("columns") is not None:
        raise YtError('Columns cannot be specified with table path, use "column_names" instead')
    if attributes.get("ranges"):
        raise YtError("Ranges cannot be specified")


@command(
    "select_rows",
    output_type="tabular",
    heavy=True,
    partial="query statistics tell how long the query took and what was returned, not what was"
    " read; no joins, totals, subqueries, UDFs, secondary indexes or hints; of composite values and"
    " values of type any nothing but the whole; no CASE, TRANSFORM, LIKE, CAST or regular expressions;"
    " no operators on bits; no functions of mathematics, dates, documents and lists",
)
def select_rows(context: Context) -> Rows:
    """Run a query; a table that is younger than the transaction is not found."""
    arguments.text(context.parameters.get("query"), "query")
    if not arguments.flag(context.parameters, "merge_versioned_rows", default=True):
        raise YtError(
            "Queries over rows that are not merged are not supported by the embedded cluster;"
            " look the rows up with versioned=True"
        )
    refuse_timestamps(context.parameters)
    apply_due(context.proxy.store)
    with reading(context) as start, context.proxy.store.read() as newest:
        return _execute(context, start, newest)


def _execute(context: Context, start: Connection, newest: Connection) -> Rows:
    parameters = context.parameters
    moments = read_moments(context)
    opened: list[TableLayout] = []

    def seen_by(layout: TableLayout) -> Connection:
        # Ordered tables have no snapshots.
        return start if layout.sorted else newest

    def resolve(path: str) -> TableLayout:
        layout = open_table(newest, path)
        view = View(newest, user=context.user)
        permissions.require(view, layout.node_id, "read", by_proxy=True)
        note_access(context, layout.node_id)
        opened.append(layout)
        seen = reads.layout_at(seen_by(layout), layout, *moments)
        if seen is None:
            raise YtError(f"Table {path} did not exist when the transaction started")
        return seen

    def read(wanted: Reading) -> Generator[tuple[Any, ...], None, None]:
        (layout,) = opened
        if not all(tablet.is_readable for tablet in layout.tablets):
            check_readable(layout, tablets_in(layout, wanted.ranges))
        return query_rows.read(seen_by(layout), wanted)

    started = time.monotonic()
    answer = ql.execute(
        str(parameters["query"]),
        resolve,
        read,
        input_row_limit=arguments.integer(parameters, "input_row_limit", None),
        output_row_limit=arguments.integer(parameters, "output_row_limit", None),
        fail_on_incomplete_result=arguments.flag(parameters, "fail_on_incomplete_result", True),
        allow_full_scan=arguments.flag(parameters, "allow_full_scan", True),
        syntax_version=arguments.integer(parameters, "syntax_version", 1),
    )
    if arguments.flag(parameters, "enable_statistics"):
        taken = round((time.monotonic() - started) * 1000)
        context.response_parameters |= {
            "execute_time": taken,
            "read_time": taken,
            "rows_written": len(answer.rows),
            "incomplete_input": answer.incomplete_input,
            "incomplete_output": answer.incomplete_output,
        }
    return Rows(answer.rows, answer.columns)
