"""Queries over dynamic tables, at the start of the transaction if there is one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from typing import Any

from yt_exactly_once.local import arguments, ql
from yt_exactly_once.local.commands.registry import Context, Rows, command
from yt_exactly_once.local.commands.sessions import (
    note_access,
    read_moments,
    reading,
    wants_timestamps,
)
from yt_exactly_once.local.cypress import permissions
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.coverage import Reading, tablets_in
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import query_rows, reads
from yt_exactly_once.local.tablets.access import check_readable, open_table
from yt_exactly_once.local.tablets.appends import apply_due


class _ReadsOrderedTable(Exception):  # noqa: N818 - a signal, not a failure
    """The query reads an ordered table, which has no snapshots."""


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
    if wants_timestamps(context.parameters):
        raise YtError(
            "Timestamps beside the values of a query are not supported by the embedded cluster;"
            " look the rows up"
        )
    apply_due(context.proxy.store)
    try:
        with reading(context) as connection:
            inside = context.parameters.get("transaction_id") is not None
            return _execute(context, connection, snapshot=inside)
    except _ReadsOrderedTable:
        with context.proxy.store.read() as connection:
            return _execute(context, connection, snapshot=False)


def _execute(context: Context, connection: sqlite3.Connection, *, snapshot: bool) -> Rows:
    parameters = context.parameters
    moments = read_moments(context)
    newest: list[TableLayout] = []

    def resolve(path: str) -> TableLayout:
        with context.proxy.store.read() as latest:
            layout = open_table(latest, path)
            view = View(latest, user=context.user)
            permissions.require(view, layout.node_id, "read", by_proxy=True)
        note_access(context, layout.node_id)
        if snapshot and not layout.sorted:
            raise _ReadsOrderedTable
        newest.append(layout)
        seen = reads.layout_at(connection, layout, *moments)
        if seen is None:
            raise YtError(f"Table {path} did not exist when the transaction started")
        return seen

    def read(wanted: Reading) -> Generator[tuple[Any, ...], None, None]:
        (layout,) = newest
        if not all(tablet.is_readable for tablet in layout.tablets):
            check_readable(layout, tablets_in(layout, wanted.ranges))
        return query_rows.read(connection, wanted)

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
