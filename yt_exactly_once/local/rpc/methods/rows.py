"""Methods that read rows of dynamic tables: look-ups and queries."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.registry import Rows
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import load_yson
from yt_exactly_once.local.rpc import paths
from yt_exactly_once.local.rpc.calls import Call, method
from yt_exactly_once.local.rpc.message_types import text
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas, versioned_rows
from yt_exactly_once.local.tables.vectors import StoredRows

_LATEST = 1
_SELECT_FIELDS = (
    "input_row_limit",
    "output_row_limit",
    "fail_on_incomplete_result",
    "allow_full_scan",
    "allow_join_without_index",
    "use_canonical_null_relations",
    "syntax_version",
)


def _moments(request: Any) -> dict[str, Any]:
    """Return the moment to read at; a transaction of the client has set it to its start."""
    found = {"timestamp": request.timestamp}
    if getattr(request, "retention_timestamp", 0):
        found["retention_timestamp"] = request.retention_timestamp
    return found


def _lookup(request: Any) -> dict[str, Any]:
    parameters = {"path": paths.load(request.path), **_moments(request)}
    parameters["keep_missing_rows"] = request.keep_missing_rows
    if request.columns:
        parameters["column_names"] = [text(name, "columns") for name in request.columns]
    return parameters


def _keys(call: Call) -> None:
    """Let the command read its keys from the attachments."""
    names = schemas.names(call.request.rowset_descriptor)
    rowset = call.rowset
    call.context.read_rows = lambda _schema=None: rowsets.decode(rowset, names).rows


@method("LookupRows", "lookup_rows", _lookup)
def lookup_rows(call: Call) -> None:
    """Read rows by key."""
    _keys(call)
    answer_rows(call, call.execute(), call.response.rowset_descriptor)


def _versioned_lookup(request: Any) -> dict[str, Any]:
    parameters = _lookup(request) | {"versioned": True}
    if request.HasField("retention_config"):
        config = request.retention_config
        parameters["retention_config"] = {
            "min_data_versions": config.min_data_versions,
            "max_data_versions": config.max_data_versions,
            # Microseconds here.
            "min_data_ttl": config.min_data_ttl // 1000,
            "max_data_ttl": config.max_data_ttl // 1000,
        }
    return parameters


@method("VersionedLookupRows", "lookup_rows", _versioned_lookup)
def versioned_lookup_rows(call: Call) -> None:
    """Read all versions of rows by key."""
    _keys(call)
    result: Rows = call.execute()
    schemas.fill_descriptor(call.response.rowset_descriptor, result.columns, versioned=True)
    call.output = [versioned_rows.encode(list(result.rows), result.columns)]


def _query(request: Any) -> dict[str, Any]:
    parameters = {"query": text(request.query, "query"), **_moments(request)}
    for name in _SELECT_FIELDS:
        if request.HasField(name):
            parameters[name] = getattr(request, name)
    if request.HasField("placeholder_values"):
        parameters["placeholder_values"] = load_yson(
            request.placeholder_values, "placeholder_values"
        )
    if request.HasField("versioned_read_options"):
        mode = request.versioned_read_options.read_mode
        if mode not in {0, _LATEST}:
            raise YtError(f"Unknown read mode {mode} of versioned_read_options")
        names = ("default", "latest_timestamp")
        parameters["versioned_read_options"] = {"read_mode": names[mode]}
    parameters["enable_statistics"] = True
    return parameters


@method("SelectRows", "select_rows", _query)
def select_rows(call: Call) -> None:
    """Run a query."""
    answer_rows(call, call.execute(), call.response.rowset_descriptor)
    said = call.context.response_parameters
    call.response.statistics.rows_written = said["rows_written"]
    call.response.statistics.incomplete_input = said["incomplete_input"]
    call.response.statistics.incomplete_output = said["incomplete_output"]


def answer_rows(call: Call, result: Rows, descriptor: Any) -> None:
    """Put the rows of an answer into its attachments."""
    schemas.fill_descriptor(descriptor, result.columns)
    rows = result.rows if isinstance(result.rows, StoredRows) else list(result.rows)
    call.output = [rowset_writer.encode(rows, result.columns)]
