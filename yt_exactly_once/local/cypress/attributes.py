"""Attributes of nodes: the stored ones, the computed ones, and which of them may be changed.

Names and rules follow the master's node proxies. Attributes of dynamic tables come from `dynamic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local import arguments, support
from yt_exactly_once.local.cypress import (
    accesses,
    chunks,
    clock,
    dynamic,
    limits,
    locks,
    mount_options,
    permissions,
    quotas,
    storage_settings,
    values,
)
from yt_exactly_once.local.cypress.ids import CELL_TAG
from yt_exactly_once.local.cypress.layout import ROOT_ID, TRUNK
from yt_exactly_once.local.cypress.mount_options import MOUNT_CONFIG
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import Mark, Step
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import last_timestamp

if TYPE_CHECKING:
    Computed = dict[str, Callable[[], Any]]

EXPIRATION = ("expiration_time", "expiration_timeout")

_SETTABLE_NAMES = """
    account acl annotation compression_codec erasure_codec executable expiration_time expiration_timeout
    file_name inherit_acl media opaque optimize_for owner primary_medium replication_factor
    resource_limits vital
"""
SETTABLE_SYSTEM = frozenset(_SETTABLE_NAMES.split())
"""System attributes that `set` may change on any node; the others are refused."""

ACCESS_CONTROL = ("acl", "inherit_acl", "owner")
_STORED_NAMES = """
    access_time attribute_revision content_revision creation_time dynamic modification_time revision schema
    schema_mode
"""
_STORED_SYSTEM = frozenset(_STORED_NAMES.split())
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

_OPAQUE = frozenset(
    ("chunk_ids", "locks", "path", "queue_partitions", "queue_status", "tablets", "user_attributes")
)
"""Computed attributes that `@` shows as entities; they are read one by one."""


_OF_LOCKS = ("id", "state", "transaction_id", "mode", "child_key", "attribute_key")
"""What `@locks` says of each; the lock itself has more."""


def computed(view: View, node: Node) -> Computed:
    """Return the attributes that are worked out on demand, by name."""
    options: Computed = {}
    if node.type == "table":
        config = node.attributes.get(MOUNT_CONFIG) or {}
        options = _constants(config)
        options["effective_mount_config"] = lambda: mount_options.effective(config)
    return {**options, **_common(view, node), **_by_type(view, node)}


def _common(view: View, node: Node) -> Computed:
    """Return the computed attributes that every node has."""
    found: Computed = {
        "id": lambda: node.id,
        "type": lambda: node.type,
        "path": lambda: node.path,
        "parent_id": lambda: node.parent_id or "0-0-0-0",
        "builtin": lambda: False,
        "external": lambda: False,
        "foreign": lambda: False,
        "native_cell_tag": lambda: CELL_TAG,
        "ref_counter": lambda: 1,
        "lock_mode": lambda: _lock_mode(view, node),
        "lock_count": lambda: len(locks.of_node(view, node.id)),
        "locks": lambda: [
            {name: item for name, item in locks.describe(lock).items() if name in _OF_LOCKS}
            for lock in locks.of_node(view, node.id)
        ],
        "user_attribute_keys": lambda: sorted(user_attributes(view, node)),
        "user_attributes": lambda: user_attributes(view, node),
        "access_counter": lambda: accesses.known(view.connection, node.id)[0],
        "access_time": lambda: max(
            str(node.attributes.get("access_time", "")), accesses.known(view.connection, node.id)[1]
        ),
        "annotation": lambda: _annotation(view, node)[0],
        "annotation_path": lambda: _annotation(view, node)[1],
        "effective_expiration": lambda: _effective_expiration(view, node.id),
        "effective_acl": lambda: permissions.effective(view, node.id),
        "account": lambda: quotas.account_of(view, node.id),
        "resource_usage": lambda: quotas.shown(quotas.of_node(view, node.id)),
        "recursive_resource_usage": lambda: quotas.shown(quotas.below(view, node.id)),
    }
    if node.type == "document":
        found["value"] = lambda: view.value(node.id)
    if node.name:
        found["key"] = lambda: node.name
    return found | _defaults(node, acl=[], inherit_acl=True, opaque=False)


def _effective_expiration(view: View, node_id: str) -> dict[str, Any]:
    """Return the earliest ends of a node and of the folders above it, each with its place."""
    found: dict[str, Any] = {"time": None, "timeout": None}
    for above in view.above(node_id):
        at, timeout = (view.attribute(above, name) for name in EXPIRATION)
        moment = arguments.moment({"time": at}, "time")
        ends = {"time": None if moment is None else clock.spell(moment), "timeout": timeout}
        for name, end in ends.items():
            if end is not None and (found[name] is None or end < found[name]["value"]):
                found[name] = {"value": end, "path": view.path(above)}
    return found


def _by_type(view: View, node: Node) -> Computed:
    if node.type in {"map_node", "list_node"}:
        found: Computed = {"count": lambda: len(view.children(node.id))}
        if node.path == "//sys":
            newest = yson.YsonUint64(last_timestamp(view.connection))
            found["current_commit_revision"] = lambda: newest
        return found
    if node.type == "link":
        return {
            "target_path": lambda: view.value(node.id),
            "broken": lambda: _is_broken(view, node),
        }
    if node.type in _OF_OBJECTS:
        return _OF_OBJECTS[node.type](view, node)
    if _is_dynamic(node):
        return dynamic.tables().attributes(view.connection, node)
    if node.type in {"file", "table"}:
        return _chunked(view, node)
    return {}


def _quota(view: View, node: Node) -> Computed:
    def used() -> dict[str, Any]:
        return quotas.used_by(view, node.type, node.name)

    found = _defaults(node, resource_limits={"disk_space_per_medium": {}})
    if node.type == quotas.BUNDLE:
        return {**found, "resource_usage": used}
    return {
        **found,
        "resource_usage": lambda: quotas.shown(used()),
        "committed_resource_usage": lambda: quotas.shown(used()),
        "violated_resource_limits": lambda: quotas.violated(view, node.name),
    }


def _membership(view: View, node: Node) -> Computed:
    view = view.trunk
    found: Computed = {
        "member_of": lambda: permissions.member_of(view, node.name),
        "member_of_closure": lambda: permissions.member_of(view, node.name, closure=True),
    }
    if node.type == "group":
        found["members"] = lambda: permissions.members(view, node.name)
    return found


_OF_OBJECTS: dict[str, Callable[[View, Node], Computed]] = {
    "user": _membership,
    "group": _membership,
    quotas.ACCOUNT: _quota,
    quotas.BUNDLE: _quota,
}


def _constants(values: dict[str, Any]) -> Computed:
    def constant(value: Any) -> Callable[[], Any]:
        return lambda: value

    return {name: constant(value) for name, value in values.items()}


def _defaults(node: Node, **values: Any) -> Computed:
    """Return what attributes are as long as nobody has set them."""
    return _constants({k: v for k, v in values.items() if k not in node.attributes})


def _chunked(view: View, node: Node) -> Computed:
    listed = chunks.chunks(view, node.id)
    size = sum(chunk.size for chunk in listed)
    found: Computed = {
        "chunk_count": lambda: len(listed),
        "chunk_ids": lambda: [chunk.object_id for chunk in listed],
        "uncompressed_data_size": lambda: size,
        "compressed_data_size": lambda: size,
    }
    found |= _defaults(node, compression_codec="lz4", erasure_codec="none")
    found |= _defaults(node, replication_factor=1, primary_medium="default")
    return found | _tabular(view, node, listed, size) if node.type == "table" else found


def _tabular(view: View, node: Node, listed: Sequence[chunks.Chunk], size: int) -> Computed:
    row_count = sum(chunk.row_count for chunk in listed)
    schema = node.attributes.get("schema", [])
    keys = [column["name"] for column in schema if column.get("sort_order")]

    def boundary_keys() -> dict[str, list[Any]]:
        edges = zip(("min_key", "max_key"), chunks.edge_rows(view, listed), strict=False)
        return {name: [row.get(key) for key in keys] for name, row in edges}

    return {
        "row_count": lambda: row_count,
        "chunk_row_count": lambda: row_count,
        "data_weight": lambda: size,
        "dynamic": lambda: False,
        "tablet_state": lambda: "none",
        "sorted": lambda: bool(keys),
        "key_columns": lambda: keys,
        **({"sorted_by": lambda: keys, "boundary_keys": boundary_keys} if keys else {}),
        **_defaults(node, optimize_for="lookup"),
    }


def read_all(view: View, node: Node) -> dict[str, Any]:
    """Return what `@` shows: everything, with opaque attributes as entities."""
    shown = dict(node.attributes)
    for name, compute in computed(view, node).items():
        shown[name] = None if name in _OPAQUE else compute()
    return dict(sorted(shown.items()))


def read(view: View, node: Node, name: str) -> Any:
    """Return one attribute; raise `YtError` 500 when the node has none of that name."""
    compute = computed(view, node).get(name)
    if compute is not None:
        return compute()
    if name not in node.attributes:
        raise YtError(f'Attribute "{name}" is not found', Code.RESOLVE)
    return node.attributes[name]


def read_some(view: View, node: Node, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that the node has."""
    known = computed(view, node)
    found = {}
    for name in names:
        if name in known:
            found[name] = known[name]()
        elif name in node.attributes:
            found[name] = node.attributes[name]
    return found


def names(view: View, node: Node) -> list[str]:
    """Return the names of all attributes."""
    return sorted({*node.attributes, *computed(view, node)})


def user_attributes(view: View, node: Node) -> dict[str, Any]:
    """Return the attributes that users have made up."""
    system = {*SETTABLE_SYSTEM, *_STORED_SYSTEM}
    options: dict[str, Any] = {}
    if node.type == "table":
        system.add(MOUNT_CONFIG)
        options = node.attributes.get(MOUNT_CONFIG) or {}
    if _is_dynamic(node):
        system |= dynamic.tables().attributes(view.connection, node).keys()
    own = {name: value for name, value in node.attributes.items() if name not in system}
    return {**options, **own}


def write(view: View, node: Node, steps: Sequence[Step], value: Any) -> None:
    """Set an attribute, or a part of it; without any step, replace all those of users."""
    if not steps:
        _replace_all(view, node, value)
        return
    if node.type == "document" and steps[0] == "value":
        _put_document(view, node, values.set_(view.value(node.id), steps[1:], value, node.path))
        return
    steps = _in_mount_config(node, steps)
    name = attribute_name(steps[0])
    if len(steps) > 1:
        whole = {} if name == MOUNT_CONFIG else read(view, node, name)
        whole = node.attributes.get(name, whole)
        value = values.set_(whole, steps[1:], value, f"{node.path}/@{name}")
    if _is_dynamic(node):
        dynamic.tables().check_change(
            view.connection, node, name, value, in_transaction=view.tx != TRUNK
        )
    check_settable(view, node, name)
    check_value(view, node.type, name, value)
    _check_outside(view, node, name)
    if name in EXPIRATION and node.id == ROOT_ID:
        raise YtError(f'Cannot set "{name}" for the root')
    locks.acquire(view, node.id, locks.SHARED, attribute_key=name)
    clock.touch(view, node.id, "attribute")
    if name == "account":
        _pin_account_below(view, node)
    if name in ACCESS_CONTROL and view.tx != TRUNK:
        raise YtError("Operation cannot be performed in transaction")
    view.put_attribute(node.id, name, normalized(view, name, value))
    quotas.check(view, node.id, *_CHARGED.get(name, ()))


def normalized(view: View, name: str, value: Any) -> Any:
    """Return an attribute as it is kept; refuse wrong access control, owners and ends of nodes."""
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


def _check_outside(view: View, node: Node, name: str) -> None:
    """Refuse to change in a transaction what is fixed there; a folder may change most of it."""
    fixed = {quotas.BUNDLE} if node.type == "map_node" else _NOT_IN_TRANSACTIONS
    if name in fixed and view.tx != TRUNK:
        raise YtError(
            f'Operation cannot be performed in transaction: change "{name}" outside of it'
        )


def exists(view: View, node: Node, name: str) -> bool:
    """Tell whether a node has an attribute."""
    return name in node.attributes or name in computed(view, node)


def check_value(view: View, node_type: str, name: str, value: Any) -> None:
    """Refuse a value that no node of the type can have as this attribute."""
    support.check_attribute(name, value)
    limits.check_attribute(view, name, value)
    storage_settings.check(view, name, value)
    if node_type == "table" and name == MOUNT_CONFIG:
        mount_options.check_values(value)


def _in_mount_config(node: Node, steps: Sequence[Step]) -> Sequence[Step]:
    """Return the path inside `@mount_config` for an option of a mount, else the path as it is."""
    is_option = node.type == "table" and steps[0] in mount_options.NAMES
    return [MOUNT_CONFIG, *steps] if is_option else steps


def _pin_account_below(view: View, node: Node) -> None:
    """Leave the children of a folder with the account that they had when it gets another one."""
    if view.children(node.id):
        before = quotas.account_of(view, node.id)
        for child_id in view.children(node.id).values():
            if view.attribute(child_id, "account") is None:
                view.put_attribute(child_id, "account", before)


def _annotation(view: View, node: Node) -> tuple[Any, Any]:
    """Return the text on a node, or on the nearest folder above it, and where it is."""
    for current in view.above(node.id):
        text = view.attribute(current, "annotation")
        if text is not None:
            return text, view.path(current)
    return None, None


def check_settable(view: View, node: Node, name: str) -> None:
    """Refuse to change a system attribute that cannot be changed."""
    if name in SETTABLE_SYSTEM:
        return
    # What a dynamic table computes it has checked itself.
    known = _common(view, node) if _is_dynamic(node) else computed(view, node)
    if name in _STORED_SYSTEM or name in known:
        raise YtError(f'Builtin attribute "{name}" cannot be set')


def delete(view: View, node: Node, steps: Sequence[Step], *, force: bool) -> None:
    """Remove an attribute, a part of it, or all user attributes."""
    if not steps or steps[0] is Mark.ASTERISK:
        for name in user_attributes(view, node):
            delete(view, node, [name], force=True)
        return
    if len(_in_mount_config(node, steps)) > 1:
        _delete_part(view, node, steps, force=force)
        return
    name = attribute_name(steps[0])
    if name in _STORED_SYSTEM or (name not in node.attributes and name in computed(view, node)):
        raise YtError(f'Builtin attribute "{name}" cannot be removed')
    if name not in node.attributes:
        if force or (
            node.type in {"map_node", "list_node"} and name in storage_settings.INHERITABLE["table"]
        ):
            return
        raise YtError(f'Attribute "{name}" is not found', Code.RESOLVE)
    _check_outside(view, node, name)
    if _is_dynamic(node):
        dynamic.tables().check_change(view.connection, node, name, in_transaction=view.tx != TRUNK)
    locks.acquire(view, node.id, locks.SHARED, attribute_key=name)
    view.drop_attribute(node.id, name)
    clock.touch(view, node.id, "attribute")


def _delete_part(view: View, node: Node, steps: Sequence[Step], *, force: bool) -> None:
    if node.type == "document" and steps[0] == "value":
        rest = values.remove(view.value(node.id), steps[1:], node.path, force=force)
        _put_document(view, node, rest)
        return
    steps = _in_mount_config(node, steps)
    name = attribute_name(steps[0])
    if not force or exists(view, node, name):
        whole = read(view, node, name)
        rest = values.remove(whole, steps[1:], f"{node.path}/@{name}", force=force)
        write(view, node, [name], rest)


def _put_document(view: View, node: Node, value: Any) -> None:
    locks.acquire(view, node.id)
    view.put_value(node.id, value)
    clock.touch(view, node.id, "content")


def attribute_name(step: Step) -> str:
    """Return the name in an attribute path."""
    if not isinstance(step, str) or not step:
        raise YtError("Attribute key cannot be empty or special")
    return step


def _replace_all(view: View, node: Node, value: Any) -> None:
    if not isinstance(value, dict):
        raise YtError("Attributes must be a map")
    for name in {*user_attributes(view, node), *(_REPLACED & node.attributes.keys())}:
        if name not in value:
            delete(view, node, [name], force=True)
    for name, item in value.items():
        write(view, node, [str(name)], item)


def _is_dynamic(node: Node) -> bool:
    return node.type == "table" and bool(node.attributes.get("dynamic"))


def _lock_mode(view: View, node: Node) -> str:
    own = [lock.mode for lock in locks.of_node(view, node.id) if lock.tx == view.tx != TRUNK]
    return next((mode for mode in ("exclusive", "shared", "snapshot") if mode in own), "none")


def _is_broken(view: View, node: Node) -> bool:
    # The tree walks links, and it imports this module.
    from yt_exactly_once.local.cypress import tree, ypath  # noqa: PLC0415

    try:
        return bool(tree.walk(view, ypath.parse(view.value(node.id))).rest)
    except YtError:
        return True
