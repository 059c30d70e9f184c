"""Methods that read rows of dynamic tables: look-ups and queries."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.registry import Rows
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas, versioned_rows
from yt_exactly_once.local.tables.vectors import StoredRows


def read_rowset(call: Call) -> None:
    """Let the command read its rows from the attachments."""
    names = schemas.names(call.request.rowset_descriptor)
    rowset = call.rowset
    call.context.read_rows = lambda _schema=None: rowsets.decode(rowset, names).rows


def _lookup(request: Any) -> dict[str, Any]:
    found = options.parameters(request, columns="column_names")
    return found | {"column_names": found["column_names"] or None}


@method("LookupRows", "lookup_rows", _lookup)
def lookup_rows(call: Call) -> None:
    """Read rows by key."""
    read_rowset(call)
    answer_rows(call, call.execute(), call.response.rowset_descriptor)


@method(
    "VersionedLookupRows", "lookup_rows", lambda request: _lookup(request) | {"versioned": True}
)
def versioned_lookup_rows(call: Call) -> None:
    """Read all versions of rows by key."""
    read_rowset(call)
    result: Rows = call.execute()
    schemas.fill_descriptor(call.response.rowset_descriptor, result.columns, versioned=True)
    call.output = [versioned_rows.encode(list(result.rows), result.columns)]


def _query(request: Any) -> dict[str, Any]:
    return options.parameters(request) | {"enable_statistics": True}


@method("SelectRows", "select_rows", _query)
def select_rows(call: Call) -> None:
    """Run a query."""
    answer_rows(call, call.execute(), call.response.rowset_descriptor)
    options.fill(call.response.statistics, call.context.response_parameters)


def answer_rows(call: Call, result: Rows, descriptor: Any) -> None:
    """Put the rows of an answer into its attachments."""
    schemas.fill_descriptor(descriptor, result.columns)
    rows = result.rows if isinstance(result.rows, StoredRows) else list(result.rows)
    call.output = [rowset_writer.encode(rows, result.columns)]
