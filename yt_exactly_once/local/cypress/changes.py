"""Changes of what a node holds: its value and its attributes, with the rights, checks and locks they need.

Rules follow the master's node proxies. Those of dynamic tables are checked by `dynamic` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yt_exactly_once.local import arguments, support
from yt_exactly_once.local.cypress import (
    attributes,
    clock,
    dynamic,
    limits,
    locks,
    mount_options,
    permissions,
    quotas,
    values,
)
from yt_exactly_once.local.cypress.layout import ROOT_ID, TRUNK
from yt_exactly_once.local.cypress.mount_options import MOUNT_CONFIG
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import Mark, Step
from yt_exactly_once.local.errors import Code, YtError

_ACCESS_CONTROL = ("acl", "inherit_acl", "owner")
_NOT_IN_TRANSACTIONS = frozenset(
    ("media", "primary_medium", "replication_factor", "tablet_cell_bundle", "vital")
)
_CHARGED = {
    quotas.ACCOUNT: ("node_count", "chunk_count", "disk_space"),
    quotas.BUNDLE: ("tablet_count",),
}
"""What a change of who pays must leave room for."""

_REPLACED = frozenset(("annotation", "expiration_time", "expiration_timeout", "opaque"))
"""System attributes that go when all attributes of a node are replaced."""


def put_value(view: View, node_id: str, value: Any) -> None:
    """Change the value of a node."""
    permissions.require(view, node_id, "write")
    locks.acquire(view, node_id)
    view.put_value(node_id, value)
    clock.touch(view, node_id, "content")


def write(view: View, node: Node, steps: Sequence[Step], value: Any) -> None:
    """Set an attribute, or a part of it; without any step, replace all those of users."""
    if not steps:
        _replace_all(view, node, value)
        return
    if node.type == "document" and steps[0] == "value":
        put_value(view, node.id, values.set_(view.value(node.id), steps[1:], value, node.path))
        return
    name, *inside = _named(node, steps)
    if inside:
        known = {MOUNT_CONFIG: {}, **node.attributes}
        whole = known[name] if name in known else attributes.read(view, node, name)
        value = values.set_(whole, inside, value, f"{node.path}/@{name}")
    permissions.require_to_change(view, node.id, name, value)
    attributes.check_settable(view, node, name)
    value = checked(view, node.type, name, value)
    if name in permissions.EXPIRATION and node.id == ROOT_ID:
        raise YtError(f'Cannot set "{name}" for the root')
    if name in _ACCESS_CONTROL and view.tx != TRUNK:
        raise YtError("Operation cannot be performed in transaction")
    _hold(view, node, name, value)
    if name == "account":
        _pin_account_below(view, node)
    view.put_attribute(node.id, name, value)
    quotas.check(view, node.id, *_CHARGED.get(name, ()))


def _named(node: Node, steps: Sequence[Step]) -> list[Any]:
    """Return the name of an attribute, and the path inside; options of a mount are inside of one."""
    if node.type == "table" and steps[0] in mount_options.NAMES:
        return [MOUNT_CONFIG, *steps]
    return [attributes.attribute_name(steps[0]), *steps[1:]]


def _hold(view: View, node: Node, name: str, *value: Any) -> None:
    """Lock an attribute that may change now; without a value, be removed.

    What is fixed in a transaction is mostly free for a folder, which only hands it down.
    """
    fixed = {quotas.BUNDLE} if node.type == "map_node" else _NOT_IN_TRANSACTIONS
    inside = view.tx != TRUNK
    if name in fixed and inside:
        raise YtError(
            f'Operation cannot be performed in transaction: change "{name}" outside of it'
        )
    if attributes.is_dynamic(node):
        tables = dynamic.tables()
        tables.check_change(view.connection, node, name, *value, in_transaction=inside)
    locks.acquire(view, node.id, locks.SHARED, attribute_key=name)
    clock.touch(view, node.id, "attribute")


def checked(view: View, node_type: str, name: str, value: Any) -> Any:
    """Return an attribute as it is kept; refuse a value that no node of the type can have."""
    support.check_attribute(name, value)
    limits.check_attribute(view, name, value)
    limits.check(view, name, value)
    if node_type == "table" and name == MOUNT_CONFIG:
        mount_options.check_values(value)
    if name == "acl":
        return permissions.parse(view.trunk, value)
    if name == "expiration_time":
        arguments.moment({name: value}, name)
    if name == "expiration_timeout":
        arguments.integer({name: value}, name, unsigned=True)
    if name == "inherit_acl" and not isinstance(value, bool):
        raise YtError(f'Error setting builtin attribute "{name}": expected a boolean')
    if name == "owner" and permissions.find_subject(view.trunk, value) is None:
        raise YtError(f'No such subject "{value}"')
    return value


def _pin_account_below(view: View, node: Node) -> None:
    """Leave the children of a folder with the account that they had when it gets another one."""
    children = view.children(node.id).values()
    before = quotas.account_of(view, node.id) if children else None
    for child_id in children:
        if view.attribute(child_id, "account") is None:
            view.put_attribute(child_id, "account", before)


def delete(view: View, node: Node, steps: Sequence[Step], *, force: bool) -> None:
    """Remove an attribute, a part of it, or all user attributes."""
    if not steps or steps[0] is Mark.ASTERISK:
        for each in attributes.user_attributes(view, node):
            delete(view, node, [each], force=True)
        return
    name, *inside = _named(node, steps)
    if not inside:
        _delete_whole(view, node, name, force=force)
    elif node.type == "document" and name == "value":
        rest = values.remove(view.value(node.id), inside, node.path, force=force)
        put_value(view, node.id, rest)
    elif not force or name in attributes.known(view, node):
        whole = attributes.read(view, node, name)
        rest = values.remove(whole, inside, f"{node.path}/@{name}", force=force)
        write(view, node, [name], rest)


def _delete_whole(view: View, node: Node, name: str, *, force: bool) -> None:
    permissions.require_to_change(view, node.id, name)
    is_stored = name in node.attributes
    if name in attributes.STORED or (not is_stored and name in attributes.known(view, node)):
        raise YtError(f'Builtin attribute "{name}" cannot be removed')
    if is_stored:
        _hold(view, node, name)
        view.drop_attribute(node.id, name)
        return
    is_folder = node.type in {"map_node", "list_node"}
    if not force and not (is_folder and name in limits.INHERITABLE["table"]):
        raise YtError(f'Attribute "{name}" is not found', Code.RESOLVE)


def _replace_all(view: View, node: Node, value: Any) -> None:
    if not isinstance(value, dict):
        raise YtError("Attributes must be a map")
    for name in {*attributes.user_attributes(view, node), *(_REPLACED & node.attributes.keys())}:
        if name not in value:
            delete(view, node, [name], force=True)
    for name, item in value.items():
        write(view, node, [str(name)], item)
