"""Creating, replacing and removing nodes, with the locks that each change needs.

Every function takes the view of the transaction that the change belongs to. Reading is the business
of `reading`, copying that of `copying`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import (
    attributes,
    branches,
    clock,
    dynamic,
    limits,
    lists,
    locks,
    mount_options,
    quotas,
    storage_settings,
    tree,
    values,
    ypath,
)
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.layout import ROOT_ID, TRUNK
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import View
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
COMPOSITE = frozenset(("map_node", lists.LIST))
"""Nodes that have children."""

CREATABLE = frozenset(
    (
        *SCALAR_DEFAULTS,
        *COMPOSITE,
        tree.DOCUMENT,
        "table",
        "file",
        "link",
        "queue_consumer",
        "queue_producer",
    )
)


@dataclass(frozen=True, kw_only=True)
class Placing:
    """How a new node, a copy or a moved node gets to its path.

    Attributes:
        owner: who does it.
        recursive: whether missing parents are created.
        ignore_existing: whether an existing node will do; one of the type, where a node is created.
        ignore_type_mismatch: whether one of any type will.
        lock_existing: whether an existing node that will do is locked exclusively.
        force: whether an existing node is replaced.
    """

    owner: str = "root"
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


@dataclass(frozen=True)
class Creation(Placing):
    """A node that is to be created, with what the user has given."""

    node_type: str
    attributes: dict[str, Any] = field(default_factory=dict)


def create(view: View, path: YPath, wish: Creation) -> str:
    """Create a node, return the id of what is there then; raise 501 (taken), 500 (no parent), 402 (lock)."""
    if wish.node_type not in CREATABLE:
        raise YtError(f'Cannot create a node of type "{wish.node_type}" in the embedded cluster')
    position = tree.walk(view, path, follow_last=False)
    if not position.rest:
        if wish.ignore_existing:
            return _accept_existing(view, position, wish)
        if not wish.force or position.id == ROOT_ID:
            raise already_exists(position.path)
    node_type, stored = _initial(wish)
    node_id = make_id(node_type)
    place(view, position, node_id, recursive=wish.recursive, owner=wish.owner)
    locks.add_node(view, node_id, node_type)
    view.put_attributes(node_id, clock.birth(view.connection, wish.owner))
    _fill(view, node_id, node_type, stored)
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
    view: View, position: Position, node_id: str, *, recursive: bool, owner: str = "root"
) -> None:
    """Lead a path to a node: make missing parents, take locks, and unlink what was there."""
    index: int | None = None
    if not position.rest:
        found = view.place(position.id)
        if found is None:
            raise YtError(f"{position.path} has no place in the tree to put a node at")
        parent_id, name = found
        if view.node_type(parent_id) == lists.LIST:
            index = view.order(parent_id).index(name)
        unlink(view, position.id)
    elif position.type == lists.LIST:
        parent_id, name = position.id, ""
        index = lists.place_for(view, parent_id, position.rest, position.path)
        if index is None:
            raise position.missing()
        if recursive:
            raise YtError(f'List node {position.path} does not support "recursive" option')
    else:
        parent_id, name = _make_parents(view, position, recursive=recursive, owner=owner)
    if index is None:
        locks.acquire(view, parent_id, locks.SHARED, child_key=name)
        view.put_child(parent_id, name, node_id)
    else:
        lists.insert(view, parent_id, index, node_id)
    clock.touch(view, parent_id, "content")


def _make_parents(
    view: View, position: Position, *, recursive: bool, owner: str
) -> tuple[str, str]:
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
        made = make_id("map_node")
        locks.acquire(view, parent_id, locks.SHARED, child_key=step)
        locks.add_node(view, made, "map_node")
        view.put_attributes(made, clock.birth(view.connection, owner))
        view.put_child(parent_id, step, made)
        parent_id = made
    return parent_id, name


def _accept_existing(view: View, position: Position, wish: Creation) -> str:
    wanted = "table" if wish.node_type.startswith("queue_") else wish.node_type
    if position.type != wanted and not wish.ignore_type_mismatch:
        raise YtError(
            f'{position.path} already exists and has type "{position.type}" while node of'
            f' "{wanted}" type is about to be created',
            Code.ALREADY_EXISTS,
        )
    if wish.lock_existing:
        locks.acquire(view, position.id)
    return position.id


def _initial(wish: Creation) -> tuple[str, dict[str, Any]]:
    """Return the type a node really gets, and its attributes."""
    given = {str(name): value for name, value in wish.attributes.items()}
    if wish.node_type in {"queue_consumer", "queue_producer"}:
        return "table", {**given, "dynamic": True, f"treat_as_{wish.node_type}": True}
    return wish.node_type, given


def _fill(view: View, node_id: str, node_type: str, given: dict[str, Any]) -> None:
    """Give a new node its content and attributes."""
    if node_type in storage_settings.INHERITABLE:
        above = storage_settings.inherited(view, node_id, node_type)
        given = {**above, **mount_options.fold(given)}
    for name, value in given.items():
        attributes.check_value(view, node_type, name, value)
    if node_type in SCALAR_DEFAULTS:
        view.put_value(node_id, SCALAR_DEFAULTS[node_type])
    elif node_type == tree.DOCUMENT:
        view.put_value(node_id, given.pop("value", None))
    elif node_type == lists.LIST:
        view.put_value(node_id, [])
    elif node_type == "link":
        view.put_value(node_id, _link_target(given.pop("target_path", None)))
    elif node_type == "table" and given.get("dynamic"):
        given = {**dynamic.tables().create(view.connection, node_id, given), "dynamic": True}
    elif node_type == "table":
        given = _static_table(view, given)
    if not given.get("dynamic"):
        _check_given(view, node_id, given)
    stored = {name: attributes.normalized(view, name, value) for name, value in given.items()}
    view.put_attributes(node_id, stored)


def _check_given(view: View, node_id: str, given: dict[str, Any]) -> None:
    node = tree.find(view, node_id)
    if node is None:
        raise YtError(f"Node {node_id} vanished while it was created")
    for name in given.keys() - {"schema", "schema_mode", "dynamic"}:
        attributes.check_settable(view, node, name)


def _static_table(view: View, given: dict[str, Any]) -> dict[str, Any]:
    raw = given.get("schema")
    mode = "weak" if raw is None else "strong"
    schema = TableSchema((), strict=False) if raw is None else parse_schema(raw)
    limits.check_order(view, schema)
    return {**given, "schema": schema.to_yson(), "schema_mode": mode}


def _link_target(target: Any) -> str:
    if not isinstance(target, str):
        raise YtError('A link needs the attribute "target_path"')
    return str(target)


def unlink(view: View, node_id: str) -> None:
    """Take a node with everything below out of the tree."""
    if node_id == ROOT_ID:
        raise YtError("Cannot remove the root")
    found = view.place(node_id)
    if found is None:
        raise YtError(f"Cannot remove {view.path(node_id)}: no path leads to it")
    lock_subtree(view, node_id)
    detach(view, *found)
    if view.tx == TRUNK:
        branches.destroy_if_unreachable(view.connection, node_id)


def detach(view: View, parent_id: str, name: str) -> None:
    """Take a child out of its map or list, leaving the node."""
    if view.node_type(parent_id) == lists.LIST:
        lists.drop(view, parent_id, name)
    else:
        locks.acquire(view, parent_id, locks.SHARED, child_key=name)
        view.put_child(parent_id, name, None)
    clock.touch(view, parent_id, "content")


def lock_subtree(view: View, node_id: str) -> None:
    """Take exclusive locks on a node and everything below it."""
    locks.acquire(view, node_id)
    for child_id in view.children(node_id).values():
        lock_subtree(view, child_id)


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
        attributes.delete(view, node, position.rest[1:], force=force)
    elif position.is_inner:
        _remove_inner(view, position, force=force)
    elif position.rest == (Mark.ASTERISK,) and position.type in COMPOSITE:
        for child_id in view.children(position.id).values():
            _check_empty(view, child_id, recursive=recursive)
            unlink(view, child_id)
    elif position.rest:
        if not force:
            raise position.missing()
    else:
        _check_empty(view, position.id, recursive=recursive)
        unlink(view, position.id)


def _check_empty(view: View, node_id: str, *, recursive: bool) -> None:
    if not recursive and view.children(node_id):
        raise YtError(
            "Cannot remove non-empty composite node when recursive option is not set",
            Code.CANNOT_REMOVE_NONEMPTY,
        )


def _remove_inner(view: View, position: Position, *, force: bool) -> None:
    locks.acquire(view, position.id)
    value = view.value(position.id)
    view.put_value(position.id, values.remove(value, position.rest, position.path, force=force))
    clock.touch(view, position.id, "content")


def set_(
    view: View, path: YPath, value: Any, *, recursive: bool, force: bool, owner: str = "root"
) -> None:
    """Set a node, an attribute, or a part of a value; raise 500 when the parent is missing."""
    position = tree.walk(view, path)
    if position.is_attribute:
        attributes.write(view, tree.load(view, position), position.rest[1:], value)
        return
    if position.is_inner:
        locks.acquire(view, position.id)
        whole = view.value(position.id)
        changed = values.set_(whole, position.rest, value, position.path, recursive=recursive)
        view.put_value(position.id, changed)
        clock.touch(view, position.id, "content")
        return
    if position.rest:
        _build(view, position, value, recursive=recursive, owner=owner)
    else:
        _set_self(view, position, value, force=force, owner=owner)


def _build(view: View, position: Position, value: Any, *, recursive: bool, owner: str) -> None:
    """Create a node, or a tree of nodes, from a value."""
    values.check_depth(value, position.path.count("/") + len(position.rest), position.path)
    node_type = type_of(value)
    node_id = make_id(node_type)
    place(view, position, node_id, recursive=recursive, owner=owner)
    _plant(view, node_id, node_type, value, owner)


def _plant(view: View, node_id: str, node_type: str, value: Any, owner: str) -> None:
    locks.add_node(view, node_id, node_type)
    given = {str(k): v for k, v in (getattr(value, "attributes", None) or {}).items()}
    given = {name: attributes.normalized(view, name, value) for name, value in given.items()}
    view.put_attributes(node_id, {**clock.birth(view.connection, owner), **given})
    if node_type in COMPOSITE:
        _plant_children(view, node_id, node_type, value, owner)
    else:
        _check_scalar(view, node_type, value)
        view.put_value(node_id, without_attributes(value))


def _check_scalar(view: View, node_type: str, value: Any) -> None:
    if node_type == "string_node":
        limits.check_string(view, value)


def _plant_children(view: View, node_id: str, node_type: str, value: Any, owner: str) -> None:
    if node_type == lists.LIST:
        named = {lists.new_key(): item for item in value}
        view.put_value(node_id, list(named))
    else:
        named = {ypath.name_of(name): item for name, item in value.items()}
    for name, item in named.items():
        child_type = type_of(item)
        child_id = make_id(child_type)
        view.put_child(node_id, name, child_id)
        _plant(view, child_id, child_type, item, owner)


def _set_self(view: View, position: Position, value: Any, *, force: bool, owner: str) -> None:
    if position.type == tree.DOCUMENT:
        locks.acquire(view, position.id)
        view.put_value(position.id, value)
    elif position.type in SCALAR_DEFAULTS:
        given = type_of(value)
        if given != position.type:
            raise YtError(
                f'Cannot update "{position.type.removesuffix("_node")}" node with'
                f' "{given.removesuffix("_node")}" value; types must match'
            )
        _check_scalar(view, given, value)
        locks.acquire(view, position.id)
        view.put_value(position.id, without_attributes(value))
    elif position.type in COMPOSITE and type_of(value) == position.type:
        if not force:
            raise YtError(
                f'"set" of {position.path} without "force" flag is forbidden; use "create" instead'
            )
        values.check_depth(value, position.path.count("/"), position.path)
        locks.acquire(view, position.id)
        for child_id in view.children(position.id).values():
            unlink(view, child_id)
        _plant_children(view, position.id, position.type, value, owner)
    else:
        raise YtError(
            f'"Set" method is not supported for {position.path} of type "{position.type}"'
            f' with a value of type "{type_of(value).removesuffix("_node")}"'
        )
    clock.touch(view, position.id, "content")


def type_of(value: Any) -> str:
    """Return the type of node that holds a value; raise `YtError` if no node holds entities."""
    if isinstance(value, bool | yson.YsonBoolean):
        return "boolean_node"
    if isinstance(value, yson.YsonUint64):
        return "uint64_node"
    for kinds, name in (
        (int, "int64_node"),
        (float, "double_node"),
        (dict, "map_node"),
        (list, "list_node"),
        ((str, bytes, yson.YsonStringProxy), "string_node"),
    ):
        if isinstance(value, kinds):
            return name
    raise YtError("Entity nodes cannot be created inside Cypress")


def without_attributes(value: Any) -> Any:
    """Return a value without its own attributes."""
    if not getattr(value, "attributes", None):
        return value
    if isinstance(value, yson.YsonUint64):
        return yson.YsonUint64(int(value))
    if isinstance(value, yson.YsonBoolean):
        return bool(value)
    if isinstance(value, yson.YsonStringProxy):
        return yson.get_bytes(value)
    kinds: tuple[Any, ...] = (int, float, str, bytes, list, dict)
    return next((kind(value) for kind in kinds if isinstance(value, kind)), value)
