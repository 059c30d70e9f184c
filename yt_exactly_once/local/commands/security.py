"""Objects without a path, such as users and groups; members of groups, and tokens of users.

They are nodes under `//sys` that clients can look up.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import Any

from yt_exactly_once.local import arguments, authentication
from yt_exactly_once.local.commands.mutations import once
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.cypress import locks, nodes, permissions, tree, ypath
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError

_TYPES = ("user", "group", "account", "tablet_cell_bundle", "tablet_cell")


def create_object(
    context: Context, connection: sqlite3.Connection, object_type: str, given: dict[str, Any]
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
def change_members(context: Context, connection: sqlite3.Connection) -> None:
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


def _superuser_view(context: Context, connection: sqlite3.Connection) -> View:
    view = View(connection, user=context.user)
    if not permissions.is_superuser(view):
        raise YtError("Tokens can be issued and revoked by a superuser only", Code.AUTHORIZATION)
    return view
