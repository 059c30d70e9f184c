"""Copying and moving of nodes with everything below them."""

from __future__ import annotations

from dataclasses import dataclass

from yt_exactly_once.local.cypress import chunks, clock, dynamic, lists, locks, nodes, quotas, tree
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.layout import ROOT_ID
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import YtError

_CREATION_TIME = "creation_time"
_RENEWED = """
    owner creation_time modification_time access_time expiration_time expiration_timeout account acl
"""
_BORN_ANEW = {**{name: name for name in _RENEWED.split()}, "inherit_acl": "acl"}
"""Attributes that a copy does not take over, with the `preserve_` option that makes it.

A move always keeps the time of creation, and who may do what.
"""


@dataclass(frozen=True)
class Options(nodes.Placing):
    """How a node is copied or moved.

    Attributes:
        pessimistic: whether the account of a copy must have room for the content.
        preserve: what a copied or moved node keeps, the names without `preserve_`.
    """

    pessimistic: bool = True
    preserve: frozenset[str] = frozenset()


def copy(view: View, source: YPath, target: YPath, options: Options) -> str:
    """Copy a node; return the id of the copy."""
    position, destination = _ends(view, source, target)
    taken = _check_destination(view, destination, options)
    if taken is not None:
        return taken
    copy_id = make_id(position.type)
    _check_not_below(view, position.id, destination)
    _copy_node(view, position.id, copy_id, position.type, options)
    if "account" in options.preserve:
        view.put_attribute(copy_id, "account", quotas.account_of(view, position.id))
    nodes.place(view, destination, copy_id, recursive=options.recursive, owner=options.owner)
    content = ("chunk_count", "disk_space") if options.pessimistic else ()
    quotas.check(view, copy_id, "node_count", "tablet_count", *content)
    return copy_id


def move(view: View, source: YPath, target: YPath, options: Options) -> str:
    """Move a node; return its id, which stays."""
    if options.ignore_existing:
        raise YtError('Cannot specify "ignore_existing" for move operation')
    position, destination = _ends(view, source, target)
    _check_destination(view, destination, options)
    if position.id == ROOT_ID:
        raise YtError("Cannot move the root")
    _check_not_below(view, position.id, destination)
    if destination.id == position.id and not destination.rest:
        return position.id
    found = view.place(position.id)
    if found is None:
        raise YtError(f"Cannot move {position.path}: no path leads to it")
    _check_movable(view, position.id)
    nodes.lock_subtree(view, position.id)
    parent_id, name = found
    if "account" in options.preserve:
        view.put_attribute(position.id, "account", quotas.account_of(view, position.id))
    # Placed first, so that the node never lacks a path and its storage is never dropped.
    nodes.place(view, destination, position.id, recursive=options.recursive, owner=options.owner)
    nodes.detach(view, parent_id, name)
    _renew(view, position.id, options)
    # For a moment there are two of them.
    tablets = quotas.of_node(view, position.id)["tablet_count"]
    if tablets:
        quotas.check(view, position.id, "tablet_count", more=tablets)
    return position.id


def _check_movable(view: View, node_id: str) -> None:
    """Refuse to move a mounted table, or a folder with one."""
    dynamic.tables().check_movable(view.connection, node_id)
    for child_id in view.children(node_id).values():
        _check_movable(view, child_id)


def _renew(view: View, node_id: str, options: Options) -> None:
    """Give a moved node, and what is below it, the attributes that a new one has at its place."""
    kept = {*options.preserve, _CREATION_TIME, "acl"}
    birth = clock.birth(view.connection, options.owner)
    for name in view.attributes(node_id).keys() & _BORN_ANEW.keys():
        if _BORN_ANEW[name] in kept:
            continue
        if name in birth:
            view.put_attribute(node_id, name, birth[name])
        else:
            view.drop_attribute(node_id, name)
    for child_id in view.children(node_id).values():
        _renew(view, child_id, options)


def _ends(view: View, source: YPath, target: YPath) -> tuple[Position, Position]:
    position = tree.reach(view, source, follow_last=False)
    return position, tree.walk(view, target, follow_last=False)


def _check_destination(view: View, destination: Position, options: Options) -> str | None:
    if destination.rest:
        return None
    if options.ignore_existing:
        if options.lock_existing:
            locks.acquire(view, destination.id)
        return destination.id
    if not options.force:
        raise nodes.already_exists(destination.path)
    if destination.id == ROOT_ID:
        raise YtError("Cannot replace the root")
    return None


def _check_not_below(view: View, node_id: str, destination: Position) -> None:
    """Refuse a destination under, or above, the node itself."""
    for current in view.above(destination.id):
        if current == node_id and (destination.rest or current != destination.id):
            raise YtError("Cannot copy or move a node to its descendant")


def _copy_node(view: View, source_id: str, copy_id: str, node_type: str, options: Options) -> None:
    locks.add_node(view, copy_id, node_type)
    stored = view.attributes(source_id)
    kept = {
        name: value
        for name, value in stored.items()
        if name not in _BORN_ANEW or _BORN_ANEW[name] in options.preserve
    }
    birth = clock.birth(view.connection, options.owner)
    view.put_attributes(copy_id, {**kept, **{k: v for k, v in birth.items() if k not in kept}})
    if node_type == "table" and stored.get("dynamic"):
        dynamic.tables().copy(view.connection, source_id, copy_id)
    elif node_type in {"table", "file"}:
        chunks.replace(view, copy_id, chunks.chunks(view, source_id))
    elif node_type in nodes.COMPOSITE:
        if node_type == lists.LIST:
            view.put_value(copy_id, view.value(source_id))
        for name, child_id in view.children(source_id).items():
            child_type = view.node_type(child_id) or "map_node"
            child_copy = make_id(child_type)
            _copy_node(view, child_id, child_copy, child_type, options)
            view.put_child(copy_id, name, child_copy)
    else:
        view.put_value(copy_id, view.value(source_id))
