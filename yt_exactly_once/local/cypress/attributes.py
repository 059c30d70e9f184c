"""Attributes of nodes: the stored ones, the computed ones, and which of them may be changed.

Names follow the master's node proxies. Attributes of dynamic tables come from `dynamic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    dynamic,
    locks,
    mount_options,
    permissions,
    quotas,
    tree,
    ypath,
)
from yt_exactly_once.local.cypress.ids import CELL_TAG, NULL
from yt_exactly_once.local.cypress.layout import TRUNK
from yt_exactly_once.local.cypress.mount_options import MOUNT_CONFIG
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import Step
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import last_timestamp

if TYPE_CHECKING:
    Computed = dict[str, Callable[[], Any]]

_SETTABLE_NAMES = """
    account acl annotation compression_codec erasure_codec executable expiration_time expiration_timeout
    file_name inherit_acl media opaque optimize_for owner primary_medium replication_factor
    resource_limits vital
"""
SETTABLE_SYSTEM = frozenset(_SETTABLE_NAMES.split())
"""System attributes that `set` may change on any node; the others are refused."""

_STORED_NAMES = """
    access_time attribute_revision content_revision creation_time dynamic modification_time revision schema
    schema_mode
"""
STORED = frozenset(_STORED_NAMES.split())
"""Stored attributes that nobody sets or removes."""

_OPAQUE_NAMES = """
    chunk_ids locks path queue_consumer_partitions queue_consumer_status queue_partitions
    queue_producer_partitions queue_producer_status queue_status tablets user_attributes
"""
_OPAQUE = frozenset(_OPAQUE_NAMES.split())
"""Computed attributes that `@` shows as entities; they are read one by one."""


_OF_LOCKS = ("id", "state", "transaction_id", "mode", "child_key", "attribute_key")
"""What `@locks` says of each; the lock itself has more."""


def known(view: View, node: Node) -> Computed:
    """Return what gives each attribute of a node; what is worked out goes before what is stored."""
    return {**_constants(node.attributes), **_computed(view, node)}


def _computed(view: View, node: Node) -> Computed:
    options: Computed = {}
    if node.type == "table":
        config = node.attributes.get(MOUNT_CONFIG) or {}
        options = _constants(config)
        options["effective_mount_config"] = lambda: mount_options.effective(config)
    return {**options, **_common(view, node), **_by_type(view, node)}


def _common(view: View, node: Node) -> Computed:
    """Return the computed attributes that every node has."""
    fixed = {"id": node.id, "type": node.type, "path": node.path, "native_cell_tag": CELL_TAG}
    found: Computed = {
        **_constants({**fixed, "parent_id": node.parent_id or NULL, "ref_counter": 1}),
        **_constants(dict.fromkeys(("builtin", "external", "foreign"), False)),
        "lock_mode": lambda: _lock_mode(view, node),
        "lock_count": lambda: len(locks.of_node(view, node.id)),
        "locks": lambda: [
            {name: item for name, item in locks.describe(lock).items() if name in _OF_LOCKS}
            for lock in locks.of_node(view, node.id)
        ],
        "user_attribute_keys": lambda: sorted(user_attributes(view, node)),
        "user_attributes": lambda: user_attributes(view, node),
        "access_counter": lambda: clock.accesses(view.connection, node.id)[0],
        "access_time": lambda: max(
            str(node.attributes.get("access_time", "")), clock.accesses(view.connection, node.id)[1]
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
        at, timeout = (view.attribute(above, name) for name in permissions.EXPIRATION)
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
    if node.type in {"user", "group"}:
        return _membership(view, node)
    if node.type in {quotas.ACCOUNT, quotas.BUNDLE}:
        return _quota(view, node)
    if is_dynamic(node):
        return dynamic.tables().attributes(view.connection, node)
    return _chunked(view, node) if node.type in {"file", "table"} else {}


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
    if node.type == "file":
        return found
    row_count = sum(chunk.row_count for chunk in listed)
    schema = node.attributes.get("schema", [])
    keys = [column["name"] for column in schema if column.get("sort_order")]

    def boundary_keys() -> dict[str, list[Any]]:
        edges = zip(("min_key", "max_key"), chunks.edge_rows(view, listed), strict=False)
        return {name: [row.get(key) for key in keys] for name, row in edges}

    return {
        **found,
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
    found = sorted(known(view, node).items())
    return {name: None if name in _OPAQUE else compute() for name, compute in found}


def read(view: View, node: Node, name: str) -> Any:
    """Return one attribute; raise `YtError` 500 when the node has none of that name."""
    compute = known(view, node).get(name)
    if compute is None:
        raise YtError(f'Attribute "{name}" is not found', Code.RESOLVE)
    return compute()


def read_some(view: View, node: Node, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that the node has."""
    found = known(view, node)
    return {name: found[name]() for name in names if name in found}


def user_attributes(view: View, node: Node) -> dict[str, Any]:
    """Return the attributes that users have made up."""
    system = {*SETTABLE_SYSTEM, *STORED}
    options: dict[str, Any] = {}
    if node.type == "table":
        system.add(MOUNT_CONFIG)
        options = node.attributes.get(MOUNT_CONFIG) or {}
    if is_dynamic(node):
        system |= dynamic.tables().attributes(view.connection, node).keys()
    own = {name: value for name, value in node.attributes.items() if name not in system}
    return {**options, **own}


def _annotation(view: View, node: Node) -> tuple[Any, Any]:
    """Return the text on a node, or on the nearest folder above it, and where it is."""
    found = ((view.attribute(each, "annotation"), each) for each in view.above(node.id))
    return next(((text, view.path(each)) for text, each in found if text is not None), (None, None))


def check_settable(view: View, node: Node, name: str) -> None:
    """Refuse to change a system attribute that cannot be changed."""
    if name in SETTABLE_SYSTEM:
        return
    # What a dynamic table computes it has checked itself.
    computed = _common(view, node) if is_dynamic(node) else _computed(view, node)
    if name in STORED or name in computed:
        raise YtError(f'Builtin attribute "{name}" cannot be set')


def attribute_name(step: Step) -> str:
    """Return the name in an attribute path."""
    if not isinstance(step, str) or not step:
        raise YtError("Attribute key cannot be empty or special")
    return step


def is_dynamic(node: Node) -> bool:
    """Tell whether a node is a dynamic table."""
    return node.type == "table" and bool(node.attributes.get("dynamic"))


def _lock_mode(view: View, node: Node) -> str:
    own = [lock.mode for lock in locks.of_node(view, node.id) if lock.tx == view.tx != TRUNK]
    return next((mode for mode in ("exclusive", "shared", "snapshot") if mode in own), "none")


def _is_broken(view: View, node: Node) -> bool:
    try:
        return bool(tree.walk(view, ypath.parse(view.value(node.id))).rest)
    except YtError:
        return True
