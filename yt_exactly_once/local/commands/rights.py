"""Which permissions a command needs, on what: one table for both fronts.

Rules follow the masters' node proxies and the native client. Writes of rows are checked by their commit, and
queries when they open a table, as on a server. The user `root` needs nothing, and costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import permissions, quotas, tree, ypath
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.cypress.ypath import Mark
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.proxy import Proxy

if TYPE_CHECKING:
    Rule = Callable[[View, "Context"], None]

_ADD = ("write", "modify_children")
_ADMINISTERED = ("acl", "inherit_acl")
_OF_BUNDLES = {
    "abc": "administer",
    "bundle_controller_target_config": "manage",
    "cell_balancer_config": "use",
    "folder_id": "administer",
    "tablet_balancer_config": "use",
}
"""Permissions that changes of a bundle's attributes need, where it is not `write`."""

_EXPIRATION = ("expiration_time", "expiration_timeout")
_VIRTUAL = ("transactions", "topmost_transactions", "locks", "http_proxies", "proxies")


class Context(Protocol):
    """What rules look at of the context of a command."""

    proxy: Proxy
    command: str
    parameters: dict[str, Any]
    user: str

    @property
    def read_value(self) -> Callable[[], Any]:
        """Parses the body as one value."""


def check(context: Context) -> None:
    """Refuse a command that its user may not run, with 901; with 900 or 903 the user himself."""
    if context.user == permissions.ROOT:
        return
    with context.proxy.store.read() as connection:
        permissions.check_user(connection, context.user)
        rule = _RULES.get(context.command)
        if rule is None:
            return
        try:
            view = context.proxy.cypress.view(
                connection, arguments.identifier(context.parameters, "transaction_id")
            )
            rule(view, context)
        except YtError as error:
            # What does not exist or makes no sense is the command's own to say.
            if error.code == Code.AUTHORIZATION:
                raise


def may_read(view: View, user: str) -> Callable[[str], bool]:
    """Return what tells whether a user sees a node among the children of another."""
    if user == permissions.ROOT:
        return lambda _: True
    return lambda node_id: permissions.check(view, node_id, user, ["read"]).action == "allow"


def _find(view: View, context: Context, parameter: str, *, follow: bool = True) -> Position | None:
    """Return how far a path leads; None for what is in no list of access control."""
    path = ypath.parse(context.parameters.get(parameter), parameter)
    if (
        not path.root
        and path.steps[:1] == ("sys",)
        and path.steps[1:2]
        and path.steps[1] in _VIRTUAL
    ):
        return None
    return tree.walk(view, path, follow_last=follow)


def _on(permission: str, parameter: str = "path", *, by_proxy: bool = False) -> Rule:
    """Return the rule that asks for a permission on the node that a path leads to or into."""

    def rule(view: View, context: Context) -> None:
        found = _find(view, context, parameter)
        if found is not None and (not found.rest or found.is_attribute or found.is_inner):
            permissions.require(view, found.id, context.user, permission, by_proxy=by_proxy)

    return rule


def _mount(view: View, context: Context) -> None:
    """Ask for what changes of tablets need, of the table and of its bundle."""
    found = _find(view, context, "path")
    if found is None or found.rest:
        return
    user = context.user
    permissions.require(view, found.id, user, "mount")
    bundle = view.attribute(found.id, "tablet_cell_bundle") or "default"
    bundle_id = view.find("tablet_cell_bundles", str(bundle))
    if bundle_id is not None:
        is_forced = arguments.flag(context.parameters, "force")
        for permission in ("use", "administer") if is_forced else ("use",):
            permissions.require(view, bundle_id, user, permission)


def _every_path(view: View, context: Context, parameter: str = "paths") -> None:
    for path in context.parameters.get(parameter) or ():
        found = tree.walk(view, ypath.parse(path, parameter))
        if not found.rest:
            permissions.require(view, found.id, context.user, "read")


def _set(view: View, context: Context) -> None:
    found = _find(view, context, "path")
    if found is None:
        return
    if found.is_attribute:
        _change_attributes(view, context, found, _named(found, context.read_value))
        return
    permissions.require(view, found.id, context.user, "write")
    if not found.rest:
        _below(view, found.id, context.user, "remove")


def _named(found: Position, value: Callable[[], Any]) -> dict[str, Any]:
    """Return the attributes that a request sets, as far as their names and whole values are known."""
    if len(found.rest) == 1:
        given = value()
        return dict(given) if isinstance(given, dict) else {}
    return {str(found.rest[1]): value() if len(found.rest) == 2 else None}  # noqa: PLR2004 - `@name`


def _multiset(view: View, context: Context) -> None:
    found = _find(view, context, "path")
    if found is not None:
        _change_attributes(view, context, found, dict(context.read_value()))


def _change_attributes(
    view: View, context: Context, found: Position, given: dict[str, Any]
) -> None:
    user = context.user
    special = _OF_BUNDLES if view.node_type(found.id) == "tablet_cell_bundle" else {}
    needed = {
        special.get(name, "administer" if name in _ADMINISTERED else "write") for name in given
    }
    for permission in sorted(needed or {"write"}):
        permissions.require(view, found.id, user, permission)
    if given.keys() & {*_EXPIRATION} and context.command != "remove":
        _subtree(view, found.id, user, "remove")
    _use_account(view, user, given)
    if given.get("owner", user) != user and not permissions.is_superuser(view.connection, user):
        raise YtError("Access denied: can only set owner to self", Code.AUTHORIZATION)


def _use_account(view: View, user: str, given: dict[str, Any]) -> None:
    """Ask for the right to use the account that attributes name; a bundle is used by mounting."""
    object_id = view.find("accounts", str(given.get("account")))
    if object_id is not None:
        permissions.require(view, object_id, user, "use")


def _remove(view: View, context: Context) -> None:
    found = _find(view, context, "path", follow=False)
    if found is None:
        return
    user = context.user
    if found.is_attribute:
        _change_attributes(view, context, found, dict.fromkeys(map(str, found.rest[1:2])))
    elif found.is_inner:
        permissions.require(view, found.id, user, "write")
    elif found.rest == (Mark.ASTERISK,):
        permissions.require(view, found.id, user, *_ADD)
        _below(view, found.id, user, "remove")
    elif not found.rest:
        _unlink(view, found.id, user)


def _unlink(view: View, node_id: str, user: str) -> None:
    """Ask for what taking a node out of the tree needs."""
    _subtree(view, node_id, user, "remove")
    place = view.place(node_id)
    if place is not None:
        permissions.require(view, place[0], user, *_ADD)


def _subtree(view: View, node_id: str, user: str, permission: str) -> None:
    permissions.require(view, node_id, user, permission)
    _below(view, node_id, user, permission)


def _below(view: View, node_id: str, user: str, permission: str) -> None:
    for child_id in view.children(node_id).values():
        _subtree(view, child_id, user, permission)


def _create(view: View, context: Context) -> None:
    parameters = context.parameters
    given = arguments.mapping(parameters.get("attributes") or {}, "attributes")
    if parameters.get("path") is None:
        kind = parameters.get("type")
        raise YtError(
            f'Access denied for user "{context.user}": "create" permission for "{kind}" schema is not'
            " allowed by any matching ACE",
            Code.AUTHORIZATION,
            {"user": context.user, "permission": ["create"]},
        )
    _add(view, context, "path", given)


def _link(view: View, context: Context) -> None:
    given = arguments.mapping(context.parameters.get("attributes") or {}, "attributes")
    _add(view, context, "link_path", given)


def _add(view: View, context: Context, parameter: str, given: dict[str, Any]) -> None:
    """Ask for what putting a node at a path needs."""
    found = _find(view, context, parameter, follow=False)
    user = context.user
    if found is None or (not found.rest and not context.parameters.get("force")):
        return
    parent_id = found.id
    if not found.rest:
        _unlink(view, found.id, user)
        parent_id = (view.place(found.id) or (found.id, ""))[0]
    else:
        permissions.require(view, parent_id, user, *_ADD)
    if given.keys() & {*_ADMINISTERED}:
        permissions.require(view, parent_id, user, "administer")
    _use_account(view, user, {"account": quotas.account_of(view, parent_id), **given})


def _copy(view: View, context: Context) -> None:
    source = _find(view, context, "source_path", follow=False)
    if source is None or source.rest:
        return
    _subtree(view, source.id, context.user, "full_read")
    if context.command == "move":
        _unlink(view, source.id, context.user)
    kept: dict[str, Any] = {"acl": []} if context.parameters.get("preserve_acl") else {}
    _add(view, context, "destination_path", kept)


def _lock(view: View, context: Context) -> None:
    is_snapshot = context.parameters.get("mode") == "snapshot"
    _on("read" if is_snapshot else "write")(view, context)


def _concatenate(view: View, context: Context) -> None:
    _every_path(view, context, "source_paths")
    _on("write", "destination_path")(view, context)


_read_consumer = _on("read", "consumer_path", by_proxy=True)


def _advance(view: View, context: Context) -> None:
    if not arguments.flag(context.parameters, "client_side"):
        _read_consumer(view, context)


def _register(view: View, context: Context) -> None:
    found = _find(view, context, "queue_path")
    if found is None or found.rest:
        return
    vital = arguments.flag(context.parameters, "vital")
    wanted = "register_queue_consumer"
    permissions.require(view, found.id, context.user, wanted, vital=vital, by_proxy=True)


def _unregister(view: View, context: Context) -> None:
    queue, consumer = (_find(view, context, name) for name in ("queue_path", "consumer_path"))
    if queue is None or consumer is None or queue.rest or consumer.rest:
        # Anybody may clean up after what is gone.
        return
    if permissions.check(view, queue.id, context.user, ["remove"]).action == "deny":
        permissions.require(view, consumer.id, context.user, "remove", by_proxy=True)


def _change_members(view: View, context: Context) -> None:
    group_id = view.find("groups", str(context.parameters.get("group")))
    if group_id is not None:
        permissions.require(view, group_id, context.user, "write")


_READS = "get get_table_pivot_keys list read_file read_table"
_WRITES = "alter_table write_file write_table"
_MOUNTS = "freeze_table mount_table remount_table reshard_table unfreeze_table unmount_table"
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_READS.split(), _on("read")),
    **dict.fromkeys(_WRITES.split(), _on("write")),
    **dict.fromkeys(_MOUNTS.split(), _mount),
    "add_member": _change_members,
    "advance_consumer": _advance,
    "advance_queue_consumer": _advance,
    "concatenate": _concatenate,
    "copy": _copy,
    "create": _create,
    "link": _link,
    "lock": _lock,
    "lookup_rows": _on("read", by_proxy=True),
    "move": _copy,
    "multiset_attributes": _multiset,
    "pull_consumer": _read_consumer,
    "pull_queue": _on("read", "queue_path", by_proxy=True),
    "pull_queue_consumer": _read_consumer,
    "partition_tables": _every_path,
    "register_queue_consumer": _register,
    "remove": _remove,
    "remove_member": _change_members,
    "set": _set,
    "trim_rows": _on("write", by_proxy=True),
    "unregister_queue_consumer": _unregister,
}
"""By command; the others need no permission of their own, or ask for it where they open a table."""
