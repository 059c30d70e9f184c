"""Copying and moving of nodes with everything below them."""

from __future__ import annotations

from dataclasses import dataclass

from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    dynamic,
    locks,
    nodes,
    permissions,
    quotas,
    tree,
)
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import LIST, View
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
    taken = options.accept(view, destination)
    if taken is not None:
        return taken
    _check_not_below(view, position.id, destination)
    copy_id = _copy_node(view, position.id, position.type, options)
    if "account" in options.preserve:
        view.put_attribute(copy_id, "account", quotas.account_of(view, position.id))
    kept = dict.fromkeys(options.preserve & {"acl"})
    nodes.place(view, destination, copy_id, kept, recursive=options.recursive)
    content = ("chunk_count", "disk_space") if options.pessimistic else ()
    quotas.check(view, copy_id, "node_count", "tablet_count", *content)
    return copy_id


def move(view: View, source: YPath, target: YPath, options: Options) -> str:
    """Move a node; return its id, which stays."""
    if options.ignore_existing:
        raise YtError('Cannot specify "ignore_existing" for move operation')
    position, destination = _ends(view, source, target)
    options.accept(view, destination)
    parent_id, name = nodes.hold(view, position.id, "move")
    _check_not_below(view, position.id, destination)
    if destination.id == position.id and not destination.rest:
        return position.id
    for each in view.below(position.id):
        dynamic.tables().check_movable(view.connection, each)
    if "account" in options.preserve:
        view.put_attribute(position.id, "account", quotas.account_of(view, position.id))
    # Placed first, so that the node never lacks a path and its storage is never dropped.
    kept = dict.fromkeys(options.preserve & {"acl"})
    nodes.place(view, destination, position.id, kept, recursive=options.recursive)
    nodes.detach(view, parent_id, name)
    for each in view.below(position.id):
        _renew(view, each, options)
    # For a moment there are two of them.
    tablets = quotas.of_node(view, position.id)["tablet_count"]
    if tablets:
        quotas.check(view, position.id, "tablet_count", more=tablets)
    return position.id


def _renew(view: View, node_id: str, options: Options) -> None:
    """Give a moved node the attributes that a new one has at its place."""
    kept = {*options.preserve, _CREATION_TIME, "acl"}
    birth = clock.birth(view)
    for name in view.attributes(node_id).keys() & _BORN_ANEW.keys():
        if _BORN_ANEW[name] in kept:
            continue
        if name in birth:
            view.put_attribute(node_id, name, birth[name])
        else:
            view.drop_attribute(node_id, name)


def _ends(view: View, source: YPath, target: YPath) -> tuple[Position, Position]:
    position = tree.reach(view, source, follow_last=False)
    permissions.require_below(view, position.id, "full_read")
    return position, tree.walk(view, target, follow_last=False)


def _check_not_below(view: View, node_id: str, destination: Position) -> None:
    """Refuse a destination under, or above, the node itself."""
    for current in view.above(destination.id):
        if current == node_id and (destination.rest or current != destination.id):
            raise YtError("Cannot copy or move a node to its descendant")


def _copy_node(view: View, source_id: str, node_type: str, options: Options) -> str:
    stored = view.attributes(source_id)
    kept = {
        name: value
        for name, value in stored.items()
        if name not in _BORN_ANEW or _BORN_ANEW[name] in options.preserve
    }
    copy_id = locks.add_node(view, node_type, kept)
    if node_type == "table" and stored.get("dynamic"):
        dynamic.tables().copy(view.connection, source_id, copy_id)
    elif node_type in {"table", "file"}:
        chunks.replace(view, copy_id, chunks.chunks(view, source_id))
    elif node_type in nodes.COMPOSITE:
        if node_type == LIST:
            view.put_value(copy_id, view.value(source_id))
        for name, child_id in view.children(source_id).items():
            child_type = view.node_type(child_id) or "map_node"
            view.put_child(copy_id, name, _copy_node(view, child_id, child_type, options))
    else:
        view.put_value(copy_id, view.value(source_id))
    return copy_id
