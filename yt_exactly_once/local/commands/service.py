"""Commands about the cluster itself: version, features, time, proxies, batches; rights, users and tokens.

Objects without a path, such as users and groups, are nodes under `//sys` that clients can look up.
"""

from __future__ import annotations

import secrets
from sqlite3 import Connection
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments, authentication
from yt_exactly_once.local.commands.registry import VERSION, Command, Context, as_error, command
from yt_exactly_once.local.commands.sessions import once, path_of, view_of
from yt_exactly_once.local.cypress import locks, nodes, permissions, tree, ypath
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import next_timestamp
from yt_exactly_once.local.tables import types

_DEFAULT_CONCURRENCY = 50

FEATURES: dict[str, Any] = {
    "primitive_types": sorted(
        types.type_v3_from_v1(name, required=name not in {"null", "void"}) for name in types.KINDS
    ),
    "compression_codecs": ["none"],
    "erasure_codecs": ["none"],
    "operation_statistics_descriptions": {},
    "require_password_in_authentication_commands": False,
}
_TYPES = ("user", "group", "account", "tablet_cell_bundle", "tablet_cell")


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
        return {"error": as_error(raised, context).to_dict()}
    return {} if output is None or command.output_type == "null" else {"output": output}


def _batch_command(parent: Context, name: str) -> Command:
    command = parent.commands.get(name)
    if command is None:
        raise YtError(f'Unknown command "{name}"')
    if not {command.input_type, command.output_type} <= {"null", "structured"}:
        raise YtError(f'Command "{name}" cannot be part of a batch')
    return command


def create_object(
    context: Context, connection: Connection, object_type: str, given: dict[str, Any]
) -> str:
    """Create an object and return its id; raise `YtError` 501 when its name is taken."""
    if object_type not in _TYPES:
        raise YtError(f'Cannot create an object of type "{object_type}" in the embedded cluster')
    object_id = make_id(object_type)
    name = object_id
    if object_type != "tablet_cell":
        name = arguments.text(given.get("name"), "attributes/name")
    where = f"//sys/{object_type}s/{ypath.escape(name)}"
    view = View(connection, user=context.user)
    if not permissions.is_superuser(view):
        raise YtError(
            f'Access denied for user "{context.user}": "create" permission for "{object_type}" schema'
            " is not allowed by any matching ACE",
            Code.AUTHORIZATION,
            {"user": context.user, "permission": ["create"]},
        )
    position = tree.walk(view, ypath.parse(where))
    if not position.rest:
        if arguments.flag(context.parameters, "ignore_existing"):
            return position.id
        raise nodes.already_exists(where)
    defaults = {"health": "good"} if object_type.startswith("tablet_cell") else {}
    locks.add_node(view, object_type, {**defaults, **given}, object_id)
    nodes.place(view, position, object_id, {}, recursive=False)
    return object_id


@command("add_member", volatile=True)
@command("remove_member", volatile=True)
@once
def change_members(context: Context, connection: Connection) -> None:
    """Put a user or a group into a group, or take it out."""
    joins = context.command == "add_member"
    member, group = (arguments.text(context.parameters.get(n), n) for n in ("member", "group"))
    view = View(connection, user=context.user)
    group_id = view.find("groups", group)
    if group_id is None:
        raise YtError(f'No such group "{group}"')
    permissions.require(view, group_id, "write")
    if permissions.find_subject(view, member) is None:
        raise YtError(f'No such subject "{member}"')
    if group in permissions.IMPLICIT:
        raise YtError("Cannot modify a built-in group")
    current = permissions.members(view, group)
    if joins and member in current:
        raise YtError(
            f'Member "{member}" is already present in group "{group}"',
            Code.ALREADY_PRESENT_IN_GROUP,
        )
    if not joins and member not in current:
        raise YtError(f'Member "{member}" is not present in group "{group}"')
    if joins and member in (group, *permissions.member_of(view, group, closure=True)):
        raise YtError(f'Adding group "{member}" to group "{group}" would produce a cycle')
    changed = [*current, member] if joins else [name for name in current if name != member]
    view.put_attribute(group_id, "members", changed)


@command("issue_token", partial="for superusers only; users have no passwords")
def issue_token(context: Context) -> str:
    """Make a token of a user, which requests may carry from now on."""
    user = arguments.text(context.parameters.get("user"), "user")
    token = secrets.token_hex(16)
    with context.proxy.store.write() as connection:
        view = _superuser_view(context, connection)
        permissions.check_user(View(connection, user=user))
        node_id = locks.add_node(view, "map_node", {"user": user})
        folder = view.find(authentication.TOKENS) or ""
        view.put_attribute(folder, authentication.ISSUED, value=True)
        view.put_child(folder, authentication.digest(token.encode()), node_id)
    return token


@command("revoke_token", partial="for superusers only; users have no passwords")
def revoke_token(context: Context) -> Any:
    """Forget a token."""
    key = arguments.text(context.parameters.get("token_sha256"), "token_sha256")
    with context.proxy.store.write() as connection:
        view = _superuser_view(context, connection)
        if view.find(authentication.TOKENS, key) is None:
            raise YtError("Provided token is not recognized as a valid token")
        view.put_child(view.find(authentication.TOKENS) or "", key, None)
    return {}


def _superuser_view(context: Context, connection: Connection) -> View:
    view = View(connection, user=context.user)
    if not permissions.is_superuser(view):
        raise YtError("Tokens can be issued and revoked by a superuser only", Code.AUTHORIZATION)
    return view
