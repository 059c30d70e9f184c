"""Reading the tree: `get`, `list` and `exists` for nodes, attributes and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import attributes, permissions, tree, values, ypath
from yt_exactly_once.local.cypress.nodes import COMPOSITE, SCALAR_DEFAULTS, without_attributes
from yt_exactly_once.local.cypress.tree import Position
from yt_exactly_once.local.cypress.view import LIST, View
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import Code, YtError


def get(view: View, path: YPath, names: Sequence[str], max_size: int | None) -> Any:
    """Return what a path leads to; raise 500 when that is nothing.

    Nodes carry the named attributes. A map shows so many children, as entities those not to be read.
    """
    position = _readable(view, path)
    if position.is_attribute:
        return _get_attribute(view, position, names)
    if position.is_inner:
        try:
            return values.get(view.value(position.id), position.rest, position.path)
        except YtError as error:
            raise tree.unresolved(position.given, error) from error
    return _show(view, position, names, max_size, is_root=True)


def _readable(view: View, path: YPath) -> Position:
    """Return where a path leads to; refuse (901) what the user may not read, and (500) nothing."""
    position = tree.walk(view, path)
    if position.rest and not position.is_attribute and not position.is_inner:
        raise position.missing()
    permissions.require(view, position.id, "read")
    return position


def exists(view: View, path: YPath) -> bool:
    """Tell whether a path leads to something; a path that cannot be followed leads nowhere."""
    try:
        position = tree.walk(view, path)
        if position.is_attribute:
            return _attribute_exists(view, position)
    except YtError as error:
        if error.contains(Code.RESOLVE):
            return False
        raise
    if position.is_inner:
        return values.exists(view.value(position.id), position.rest)
    return not position.rest


def list_(view: View, path: YPath, names: Sequence[str], max_size: int | None) -> list[Any]:
    """Return the names of the children of a map, or the keys of an attribute or value."""
    position = _readable(view, path)
    if position.is_attribute:
        node = tree.load(view, position)
        if len(position.rest) == 1:
            return sorted(attributes.known(view, node))
        return values.keys(_get_attribute(view, position, []), position.given)
    if position.type == tree.DOCUMENT:
        inner = values.get(view.value(position.id), position.rest, position.path)
        return values.keys(inner, position.given)
    if position.type != "map_node":
        raise YtError(f'"List" method is not supported by {position.path} of type {position.type}')
    children = view.children(position.id)
    shown = []
    for name, child_id in list(children.items())[:max_size]:
        is_open = bool(names) and permissions.may(view, child_id, "read")
        wanted = _attributes_of(view, child_id, _below(position, name), names) if is_open else {}
        shown.append(with_attributes(name, wanted))
    if max_size is not None and len(children) > max_size:
        incomplete: list[Any] = with_attributes(shown, {"incomplete": True})
        return incomplete
    return shown


def _get_attribute(view: View, position: Position, names: Sequence[str]) -> Any:
    node = tree.load(view, position)
    _, *steps = position.rest
    if not steps:
        return attributes.read_some(view, node, names) if names else attributes.read_all(view, node)
    name = attributes.attribute_name(steps[0])
    value = attributes.read(view, node, name)
    return values.get(value, steps[1:], f"{node.path}/@{name}")


def _attribute_exists(view: View, position: Position) -> bool:
    _, *steps = position.rest
    if not steps:
        return True
    known, name = attributes.known(view, tree.load(view, position)), steps[0]
    attributes.attribute_name(name)
    return name in known and (len(steps) == 1 or values.exists(known[name](), steps[1:]))


def _show(
    view: View, position: Position, names: Sequence[str], max_size: int | None, *, is_root: bool
) -> Any:
    shown: Any = yson.YsonEntity()
    if not is_root and not permissions.may(view, position.id, "read"):
        return shown
    if position.type in COMPOSITE:
        if is_root or not view.attribute(position.id, "opaque"):
            shown = _show_children(view, position, names, max_size)
    elif position.type in SCALAR_DEFAULTS or (is_root and position.type == tree.DOCUMENT):
        shown = view.value(position.id)
    return with_attributes(shown, _attributes_of(view, position.id, position.path, names))


def _show_children(
    view: View, position: Position, names: Sequence[str], max_size: int | None
) -> Any:
    children = view.children(position.id)
    in_list = position.type == LIST
    keys = view.order(position.id) if in_list else list(children)[:max_size]
    shown: dict[str, Any] = {}
    for index, name in enumerate(keys):
        where = _below(position, str(index) if in_list else name)
        child_type = view.node_type(children[name]) or ""
        child = Position(children[name], child_type, where, (), position.given)
        shown[name] = _show(view, child, names, None, is_root=False)
    if in_list:
        return list(shown.values())
    if max_size is not None and len(children) > max_size:
        return with_attributes(shown, {"incomplete": True})
    return shown


def _below(position: Position, name: str) -> str:
    return f"{position.path}/{ypath.escape(name)}"


def _attributes_of(view: View, node_id: str, where: str, names: Sequence[str]) -> dict[str, Any]:
    if not names:
        return {}
    node = tree.load(view, Position(node_id, view.node_type(node_id) or "", where, (), where))
    return attributes.read_some(view, node, names)


def with_attributes(value: Any, wanted: dict[str, Any]) -> Any:
    """Return a value with attributes beside those that it has."""
    if not wanted:
        return value
    typed = yson.to_yson_type(without_attributes(value))
    typed.attributes = {**(getattr(value, "attributes", None) or {}), **wanted}
    return typed
