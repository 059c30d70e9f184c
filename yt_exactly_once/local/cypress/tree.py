"""The tree: from paths to nodes.

It resolves paths through maps and links as a transaction sees them, and answers where a node is. It
changes nothing but raw attributes; `nodes` creates and removes, `locks` forbids.
"""

from __future__ import annotations

from dataclasses import dataclass

from yt_exactly_once.local.cypress import layout, values, ypath
from yt_exactly_once.local.cypress.ids import CELL_TAG, NULL, cell_tag, is_id
from yt_exactly_once.local.cypress.view import LIST, Node, View
from yt_exactly_once.local.cypress.ypath import Mark, Step, YPath
from yt_exactly_once.local.errors import Code, YtError

_MAX_LINKS = 32
TOO_MANY_LINKS = "Too many links on the way"
DOCUMENT = "document"
"""The type of nodes whose content is one value that a path may reach into."""


@dataclass(frozen=True)
class Position:
    """How far a path leads.

    Attributes:
        id: the deepest existing node.
        path: its path without links.
        rest: the steps that are left; empty when the path is a node.
        given: the path as the client wrote it.
    """

    id: str
    type: str
    path: str
    rest: tuple[Step, ...]
    given: str

    @property
    def is_attribute(self) -> bool:
        """Whether the path leads to an attribute, or to all of them."""
        return bool(self.rest) and self.rest[0] is Mark.ATTRIBUTE

    @property
    def is_inner(self) -> bool:
        """Whether the path leads into the value of a document."""
        return bool(self.rest) and self.type == DOCUMENT and not self.is_attribute

    def missing(self) -> YtError:
        """Return the error for a path that does not exist."""
        step = self.rest[0] if self.rest else ""
        name = step.value if isinstance(step, Mark) else step
        if self.type == "map_node":
            reason = f'Node {self.path} has no child with key "{name}"'
        elif self.type == LIST:
            reason = f"Node {self.path} has no child with index {name}"
        else:
            reason = f"{self.path} cannot have children"
        return unresolved(self.given, reason)


def unresolved(path: str, reason: str | YtError) -> YtError:
    """Return the error for a path that leads nowhere."""
    inner = YtError(reason, Code.RESOLVE) if isinstance(reason, str) else reason
    return YtError(f"Error resolving path {path}", Code.RESOLVE, inner=[inner])


def walk(view: View, path: YPath, *, follow_last: bool = True) -> Position:
    """Follow a path as far as it leads.

    Links on the way are followed; a link at the end too, unless `&` comes after it or the caller
    wants the link itself.

    Raises:
        YtError: with code 500 when the root or the target of a link does not exist.
    """
    return _walk(view, path, _MAX_LINKS, follow_last=follow_last)


def reach(view: View, path: YPath, *, follow_last: bool = True) -> Position:
    """Follow a path to its end, see `walk`; raise 500 when it does not lead to a node."""
    position = walk(view, path, follow_last=follow_last)
    if position.rest:
        raise position.missing()
    return position


def _walk(view: View, path: YPath, links_left: int, *, follow_last: bool) -> Position:
    node_id, node_type, where = _start(view, path)
    rest = path.steps
    while True:
        if node_type == "link":
            if rest and rest[0] is Mark.AMPERSAND:
                return Position(node_id, node_type, where, rest[1:], path.text)
            if not rest and not follow_last:
                break
            target = _follow(view, node_id, where, path, links_left)
            node_id, node_type, where = target.id, target.type, target.path
            links_left -= 1
            if target.rest:
                return Position(node_id, node_type, where, target.rest + rest, path.text)
            continue
        if rest and rest[0] is Mark.AMPERSAND:
            rest = rest[1:]
            continue
        child = _child(view, node_id, node_type, rest[0], where) if rest else None
        if child is None:
            break
        node_id, node_type, where = child
        rest = rest[1:]
    return Position(node_id, node_type, where, rest, path.text)


def _child(
    view: View, node_id: str, node_type: str, step: Step, where: str
) -> tuple[str, str, str] | None:
    """Return id, type and path of the child that a step leads to."""
    if not isinstance(step, str):
        return None
    if node_type == "map_node":
        name, shown = step, ypath.escape(step)
    elif node_type == LIST:
        order = view.order(node_id)
        if not values.exists(order, [step]):
            return None
        index = values.item_index(order, step, where)
        name, shown = order[index], str(index)
    else:
        return None
    child = view.typed_child(node_id, name)
    return (*child, f"{where}/{shown}") if child and child[1] else None


def _start(view: View, path: YPath) -> tuple[str, str, str]:
    if not path.root:
        return layout.ROOT_ID, "map_node", "/"
    node_type = view.node_type(path.root)
    if node_type is not None:
        return path.root, node_type, view.path(path.root)
    if is_id(path.root) and path.root != NULL and cell_tag(path.root) != CELL_TAG:
        raise YtError(f"Unknown cell tag {cell_tag(path.root)} in {path.text}")
    raise unresolved(path.text, f"No such object {path.root}")


def _follow(view: View, link_id: str, where: str, path: YPath, links_left: int) -> Position:
    target = view.value(link_id)
    if links_left == 0:
        raise unresolved(path.text, f"{TOO_MANY_LINKS}, the last one is {where}")
    try:
        return _walk(view, ypath.parse(target, "target_path"), links_left - 1, follow_last=True)
    except YtError as error:
        raise unresolved(path.text, error) from error


def node_at(view: View, path: YPath) -> Node:
    """Return the node that a path leads to; raise 500 when there is none."""
    return load(view, reach(view, path))


def load(view: View, position: Position) -> Node:
    """Return the node at a position."""
    place = view.place(position.id)
    parent_id, name = place or (None, "")
    if parent_id is not None and view.node_type(parent_id) == LIST:
        name = ""
    return Node(
        position.id, position.type, parent_id, name, position.path, view.attributes(position.id)
    )
