"""Creating, replacing and removing nodes, with the locks that each change needs.

Every function takes the view of the transaction that the change belongs to. Reading is the business
of `reading`, copying that of `copying`. The children of a list have keys that nobody sees, as those of a map
have names; the content of the list is their order, and a change of it locks the list whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import (
    attributes,
    changes,
    clock,
    dynamic,
    limits,
    locks,
    master_transactions,
    mount_options,
    permissions,
    quotas,
    tree,
    values,
    ypath,
)
from yt_exactly_once.local.cypress.layout import ROOT_ID, TRUNK
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import LIST, View
from yt_exactly_once.local.cypress.ypath import Mark, YPath
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema

SCALAR_DEFAULTS: dict[str, Any] = {
    "string_node": "",
    "int64_node": 0,
    "uint64_node": yson.YsonUint64(0),
    "double_node": 0.0,
    "boolean_node": False,
}
_KINDS: dict[str, tuple[type, ...]] = {
    "boolean_node": (bool, yson.YsonBoolean),
    "uint64_node": (yson.YsonUint64,),
    "int64_node": (int,),
    "double_node": (float,),
    "map_node": (dict,),
    "list_node": (list,),
    "string_node": (str, bytes, yson.YsonStringProxy),
}
"""Which values nodes hold; the first type that fits counts, since some of YSON are numbers of Python too."""

COMPOSITE = frozenset(("map_node", LIST))
"""Nodes that have children."""

CREATABLE = frozenset(
    (
        *SCALAR_DEFAULTS,
        *COMPOSITE,
        *(tree.DOCUMENT, "table", "file", "link", "queue_consumer", "queue_producer"),
    )
)


@dataclass(frozen=True, kw_only=True)
class Placing:
    """How a new node, a copy or a moved node gets to its path.

    Attributes:
        recursive: whether missing parents are created.
        ignore_existing: whether an existing node will do; one of the type, where a node is created.
        ignore_type_mismatch: whether one of any type will.
        lock_existing: whether an existing node that will do is locked exclusively.
        force: whether an existing node is replaced.
    """

    recursive: bool = False
    ignore_existing: bool = False
    ignore_type_mismatch: bool = False
    lock_existing: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse flags that contradict each other."""
        if self.force and self.ignore_existing:
            raise YtError(
                'Cannot specify both "ignore_existing" and "force" options simultaneously'
            )
        for name in ("lock_existing", "ignore_type_mismatch"):
            if getattr(self, name) and not self.ignore_existing:
                raise YtError(f'Cannot specify "{name}" without "ignore_existing"')

    def accept(self, view: View, position: Position, node_type: str | None = None) -> str | None:
        """Return the id of an existing node that will do, if there is one; refuse (501) one in the way."""
        if position.rest:
            return None
        if not self.ignore_existing:
            if not self.force or position.id == ROOT_ID:
                raise already_exists(position.path)
            return None
        if node_type not in {None, position.type} and not self.ignore_type_mismatch:
            raise YtError(
                f'{position.path} already exists and has type "{position.type}" while node of'
                f' "{node_type}" type is about to be created',
                Code.ALREADY_EXISTS,
            )
        if self.lock_existing:
            locks.acquire(view, position.id)
        return position.id


def create(
    view: View, path: YPath, node_type: str, wanted: dict[str, Any], placing: Placing
) -> str:
    """Create a node, return the id of what is there then; raise 501 (taken), 500 (no parent), 402 (lock)."""
    if node_type not in CREATABLE:
        raise YtError(f'Cannot create a node of type "{node_type}" in the embedded cluster')
    given = {str(name): value for name, value in wanted.items()}
    if node_type.startswith("queue_"):
        given |= {"dynamic": True, f"treat_as_{node_type}": True}
        node_type = "table"
    position = tree.walk(view, path, follow_last=False)
    existing = placing.accept(view, position, node_type)
    if existing is not None:
        return existing
    node_id = locks.add_node(view, node_type, {})
    place(view, position, node_id, given, recursive=placing.recursive)
    _fill(view, node_id, node_type, given)
    if node_type == "link":
        _check_ends(view, path)
    quotas.check(view, node_id, "node_count", "tablet_count")
    return node_id


def _check_ends(view: View, link: YPath) -> None:
    """Refuse a link that leads to itself; one that leads nowhere is fine."""
    try:
        tree.walk(view, link)
    except YtError as error:
        if tree.TOO_MANY_LINKS in str(error.to_dict()):
            raise YtError("Failed to create link: link is cyclic") from error


def already_exists(where: str) -> YtError:
    """Return the error for a path that is taken."""
    return YtError(f"Node {where} already exists", Code.ALREADY_EXISTS)


def place(
    view: View, position: Position, node_id: str, given: Mapping[str, Any], *, recursive: bool
) -> None:
    """Lead a path to a node: make missing parents, take locks, and unlink what was there.

    The given attributes of the node may need rights of their own.
    """
    index: int | None = None
    parent_id, name = position.id, ""
    if not position.rest:
        found = view.place(position.id)
        if found is None:
            raise YtError(f"{position.path} has no place in the tree to put a node at")
        parent_id, name = found
        if view.node_type(parent_id) == LIST:
            index = view.order(parent_id).index(name)
        unlink(view, position.id)
    permissions.require_to_add(view, parent_id, given)
    if position.rest and position.type == LIST:
        step, *below = position.rest
        if below or not isinstance(step, str):
            raise position.missing()
        # Whatever else it may be was found as an item, or missed.
        index = values.insertion_index(view.order(parent_id), step, position.path)
        if recursive:
            raise YtError(f'List node {position.path} does not support "recursive" option')
    elif position.rest:
        parent_id, name = _make_parents(view, position, recursive=recursive)
    if index is None:
        locks.acquire(view, parent_id, locks.SHARED, child_key=name)
    else:
        locks.acquire(view, parent_id)
        order, name = view.order(parent_id), uuid.uuid4().hex
        order.insert(index, name)
        view.put_value(parent_id, order)
    view.put_child(parent_id, name, node_id)
    clock.touch(view, parent_id, "content")


def _make_parents(view: View, position: Position, *, recursive: bool) -> tuple[str, str]:
    """Return the id of the parent-to-be and the name under it."""
    if position.type != "map_node" or not all(isinstance(step, str) for step in position.rest):
        raise position.missing()
    if len(position.rest) > 1 and not recursive:
        raise position.missing()
    *missing, name = (str(step) for step in position.rest)
    if view.path(position.id).count("/") + len(missing) > values.MAX_DEPTH:
        raise YtError(f"Depth limit of {values.MAX_DEPTH} exceeded at {position.path}")
    limits.check_key(view, name.encode())
    parent_id = position.id
    for step in missing:
        locks.acquire(view, parent_id, locks.SHARED, child_key=step)
        made = locks.add_node(view, "map_node", {})
        view.put_child(parent_id, step, made)
        parent_id = made
    return parent_id, name


def _fill(view: View, node_id: str, node_type: str, given: dict[str, Any]) -> None:
    """Give a new node its content and attributes."""
    if node_type in limits.INHERITABLE:
        above = limits.inherited(view, node_id, node_type)
        given = {**above, **mount_options.fold(given)}
    given = {name: changes.checked(view, node_type, name, of) for name, of in given.items()}
    if node_type in SCALAR_DEFAULTS:
        view.put_value(node_id, SCALAR_DEFAULTS[node_type])
    elif node_type == tree.DOCUMENT:
        view.put_value(node_id, given.pop("value", None))
    elif node_type == LIST:
        view.put_value(node_id, [])
    elif node_type == "link":
        view.put_value(node_id, _link_target(given.pop("target_path", None)))
    elif node_type == "table" and given.get("dynamic"):
        given = {**dynamic.tables().create(view.connection, node_id, given), "dynamic": True}
    elif node_type == "table":
        given = _static_table(view, given)
    if not given.get("dynamic"):
        node = tree.load(view, Position(node_id, node_type, "", (), ""))
        for name in given.keys() - {"schema", "schema_mode", "dynamic"}:
            attributes.check_settable(view, node, name)
    view.put_attributes(node_id, given)


def _link_target(target: Any) -> str:
    if not isinstance(target, str):
        raise YtError('A link needs the attribute "target_path"')
    return str(target)


def _static_table(view: View, given: dict[str, Any]) -> dict[str, Any]:
    raw = given.get("schema")
    mode = "weak" if raw is None else "strong"
    schema = TableSchema((), strict=False) if raw is None else parse_schema(raw)
    limits.check_order(view, schema)
    return {**given, "schema": schema.to_yson(), "schema_mode": mode}


def unlink(view: View, node_id: str, *, recursive: bool = True) -> None:
    """Take a node with everything below out of the tree, see `hold`."""
    detach(view, *hold(view, node_id, "remove", recursive=recursive))
    if view.tx == TRUNK:
        master_transactions.destroy_if_unreachable(view.connection, node_id)


def hold(view: View, node_id: str, action: str, *, recursive: bool = True) -> tuple[str, str]:
    """Ask for and lock what taking a node away needs; raise 506 for children; return parent and name."""
    if node_id == ROOT_ID:
        raise YtError(f"Cannot {action} the root")
    found = view.place(node_id)
    if found is None:
        raise YtError(f"Cannot {action} {view.path(node_id)}: no path leads to it")
    permissions.require_below(view, node_id, "remove")
    permissions.require(view, found[0], *permissions.ADD)
    if not recursive and view.children(node_id):
        raise YtError(
            "Cannot remove non-empty composite node when recursive option is not set",
            Code.CANNOT_REMOVE_NONEMPTY,
        )
    for each in view.below(node_id):
        locks.acquire(view, each)
    return found


def detach(view: View, parent_id: str, name: str) -> None:
    """Take a child out of its map or list, leaving the node."""
    if view.node_type(parent_id) == LIST:
        locks.acquire(view, parent_id)
        view.put_value(parent_id, [other for other in view.order(parent_id) if other != name])
    else:
        locks.acquire(view, parent_id, locks.SHARED, child_key=name)
    view.put_child(parent_id, name, None)
    clock.touch(view, parent_id, "content")


def remove(view: View, path: YPath, *, recursive: bool, force: bool) -> None:
    """Remove a node, an attribute, or a part of a value.

    Args:
        path: `/*` at its end means all children, `/@*` for all user attributes.
        recursive: whether a map with children may go.
        force: whether a path that leads nowhere is fine.

    Raises:
        YtError: 500 when there is nothing, 506 when there are children.
    """
    try:
        position = tree.walk(view, path, follow_last=False)
    except YtError as error:
        if force and error.contains(Code.RESOLVE):
            return
        raise
    if position.is_attribute:
        node = tree.load(view, position)
        changes.delete(view, node, position.rest[1:], force=force)
    elif position.is_inner:
        rest = values.remove(view.value(position.id), position.rest, position.path, force=force)
        changes.put_value(view, position.id, rest)
    elif position.rest == (Mark.ASTERISK,) and position.type in COMPOSITE:
        for child_id in view.children(position.id).values():
            unlink(view, child_id, recursive=recursive)
    elif not position.rest:
        unlink(view, position.id, recursive=recursive)
    elif not force:
        raise position.missing()


def set_(view: View, path: YPath, value: Any, *, recursive: bool, force: bool) -> None:
    """Set a node, an attribute, or a part of a value; raise 500 when the parent is missing."""
    position = tree.walk(view, path)
    if position.is_attribute:
        changes.write(view, tree.load(view, position), position.rest[1:], value)
    elif position.is_inner:
        whole = view.value(position.id)
        changed = values.set_(whole, position.rest, value, position.path, recursive=recursive)
        changes.put_value(view, position.id, changed)
    elif position.rest:
        values.check_depth(value, position.path.count("/") + len(position.rest), position.path)
        place(view, position, _plant(view, value), {}, recursive=recursive)
    else:
        _set_self(view, position, value, force=force)


def _plant(view: View, value: Any) -> str:
    """Create a node, or a tree of nodes, from a value; return its id."""
    node_type = type_of(value)
    given = (getattr(value, "attributes", None) or {}).items()
    given = {str(name): changes.checked(view, node_type, str(name), of) for name, of in given}
    node_id = locks.add_node(view, node_type, given)
    if node_type in COMPOSITE:
        _plant_children(view, node_id, node_type, value)
    else:
        view.put_value(node_id, _scalar(view, node_type, value))
    return node_id


def _scalar(view: View, node_type: str, value: Any) -> Any:
    """Return the value that a scalar node keeps."""
    if node_type == "string_node":
        limits.check_string(view, value)
    return without_attributes(value)


def _plant_children(view: View, node_id: str, node_type: str, value: Any) -> None:
    if node_type == LIST:
        named = {uuid.uuid4().hex: item for item in value}
        view.put_value(node_id, list(named))
    else:
        named = {ypath.name_of(name): item for name, item in value.items()}
    for name, item in named.items():
        view.put_child(node_id, name, _plant(view, item))


def _set_self(view: View, position: Position, value: Any, *, force: bool) -> None:
    permissions.require(view, position.id, "write")
    if position.type == tree.DOCUMENT:
        changes.put_value(view, position.id, value)
    elif position.type in SCALAR_DEFAULTS:
        given = type_of(value)
        if given != position.type:
            raise YtError(
                f'Cannot update "{position.type.removesuffix("_node")}" node with'
                f' "{given.removesuffix("_node")}" value; types must match'
            )
        changes.put_value(view, position.id, _scalar(view, given, value))
    elif position.type in COMPOSITE and type_of(value) == position.type:
        if not force:
            raise YtError(
                f'"set" of {position.path} without "force" flag is forbidden; use "create" instead'
            )
        values.check_depth(value, position.path.count("/"), position.path)
        locks.acquire(view, position.id)
        for child_id in view.children(position.id).values():
            unlink(view, child_id)
        _plant_children(view, position.id, position.type, value)
        clock.touch(view, position.id, "content")
    else:
        raise YtError(
            f'"Set" method is not supported for {position.path} of type "{position.type}"'
            f' with a value of type "{type_of(value).removesuffix("_node")}"'
        )


def type_of(value: Any) -> str:
    """Return the type of node that holds a value; raise `YtError` if no node holds entities."""
    node_type = next((name for name, kinds in _KINDS.items() if isinstance(value, kinds)), None)
    if node_type is None:
        raise YtError("Entity nodes cannot be created inside Cypress")
    return node_type


def without_attributes(value: Any) -> Any:
    """Return a value without its own attributes."""
    if not getattr(value, "attributes", None):
        return value
    if isinstance(value, yson.YsonStringProxy):
        return yson.get_bytes(value)
    bare = copy(value)
    bare.attributes = {}
    return bare
