"""Commands about the cluster itself: version, features, time, permissions, proxies, batches."""

from __future__ import annotations

from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import failures
from yt_exactly_once.local.commands.cypress import path_of, view_of
from yt_exactly_once.local.commands.registry import Command, Context, command
from yt_exactly_once.local.commands.version import VERSION
from yt_exactly_once.local.cypress import permissions, tree
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.store import next_timestamp
from yt_exactly_once.local.tables import types

_DEFAULT_CONCURRENCY = 50

FEATURES: dict[str, Any] = {
    "primitive_types": sorted(
        types.type_v3_from_v1(name, required=name not in {"null", "void"})
        for name in types.KINDS.keys() - types.TZ_TYPES
    ),
    "compression_codecs": ["none"],
    "erasure_codecs": ["none"],
    "operation_statistics_descriptions": {},
    "require_password_in_authentication_commands": False,
}


@command("get_version")
def get_version(_context: Context) -> Any:
    """Return the version that the cluster claims."""
    return {"version": VERSION}


@command("get_supported_features", partial="codecs are accepted as attributes, data stays plain")
def get_supported_features(_context: Context) -> Any:
    """Return types and codecs that the cluster knows."""
    return {"features": FEATURES}


@command("generate_timestamp")
def generate_timestamp(context: Context) -> Any:
    """Take a timestamp, greater than that of every finished commit."""
    with context.proxy.store.write() as connection:
        return {"timestamp": yson.YsonUint64(next_timestamp(connection))}


@command("check_permission", partial="columns have no permissions of their own")
def check_permission(context: Context) -> Any:
    """Check a permission of a user on an existing path."""
    parameters = context.parameters
    user = arguments.text(parameters.get("user"), "user")
    wanted = arguments.text(parameters.get("permission"), "permission")
    permissions.check_name(wanted)
    path = path_of(context)
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        position = tree.reach(view, path)
        if view.trunk.find("users", user) is None:
            raise YtError(f'No such user "{user}"')
        vital = arguments.flag(parameters, "vital")
        verdict = permissions.check(view, position.id, user, [wanted], vital=vital)
        answer: dict[str, Any] = {"action": verdict.action}
        if verdict.object_id is not None:
            answer |= {
                "object_id": verdict.object_id,
                "object_name": permissions.describe(view, verdict.object_id),
                "subject_id": permissions.find_subject(view.trunk, verdict.subject),
                "subject_name": verdict.subject,
            }
    columns = parameters.get("columns")
    return answer if columns is None else {**answer, "columns": [answer for _ in columns]}


@command("get_current_user")
def get_current_user(context: Context) -> Any:
    """Return who asks."""
    return {"user": context.user}


@command("check_cluster_liveness")
def check_cluster_liveness(context: Context) -> Any:
    """Fail unless the store answers."""
    with context.proxy.store.read() as connection:
        connection.execute("SELECT 1 FROM cypress_nodes LIMIT 1").fetchone()
    return {}


_ROLES = ("default", "data")
"""The roles that RPC and HTTP proxies have when nobody has given them another."""


@command("discover_proxies", partial="there are HTTP and RPC proxies, of one role")
def discover_proxies(context: Context) -> Any:
    """Return the addresses of the live proxies of a type."""
    parameters = context.parameters
    kind = arguments.text(parameters.get("type", parameters.get("kind", "rpc")), "type")
    role = arguments.text(parameters.get("role") or _ROLES[0], "role")
    found = {"http": context.proxy.live_proxies, "rpc": context.proxy.live_rpc_proxies}
    return {"proxies": found[kind]() if kind in found and role in _ROLES else []}


@command("execute_batch", volatile=True)
def execute_batch(context: Context) -> Any:
    """Execute several commands; each fails or succeeds alone."""
    parts = context.parameters.get("requests")
    if not isinstance(parts, list):
        raise YtError('Error parsing parameter "requests": expected a list')
    concurrency = arguments.integer(context.parameters, "concurrency", _DEFAULT_CONCURRENCY)
    if concurrency < 1:
        raise YtError('Error parsing parameter "concurrency": it must be positive')
    # One after the other is one of the orders that a concurrent execution may have.
    return {"results": [_part(context, part) for part in parts]}


def _part(parent: Context, request: Any) -> dict[str, Any]:
    """Execute one part of a batch and return its `output` or its `error`."""
    context: Context | None = None
    try:
        part = arguments.mapping(request, "batch request")
        command = _batch_command(parent, arguments.text(part.get("command"), "command"))
        given = arguments.mapping(part.get("parameters", {}), "parameters")
        context = Context(parent.proxy, command.name, given, parent.user, commands=parent.commands)
        context.read_value = lambda: part.get("input")
        output = command.handler(context)
    except Exception as raised:  # noqa: BLE001 - as_error logs what it does not know
        return {"error": failures.as_error(raised, context).to_dict()}
    return {} if output is None or command.output_type == "null" else {"output": output}


def _batch_command(parent: Context, name: str) -> Command:
    command = parent.commands.get(name)
    if command is None:
        raise YtError(f'Unknown command "{name}"')
    if not {command.input_type, command.output_type} <= {"null", "structured"}:
        raise YtError(f'Command "{name}" cannot be part of a batch')
    return command
