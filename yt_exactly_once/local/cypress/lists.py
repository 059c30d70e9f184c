"""List nodes: children in an order of their own.

The children have keys that nobody sees, as the children of a map have names; the content of the list node
is their order. A change of a list locks it whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from yt_exactly_once.local.cypress import locks, values
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.cypress.ypath import Step

LIST = "list_node"


def find(view: View, list_id: str, step: str, where: str) -> int | None:
    """Return the index of the item that a step names; None for no such item, or a place between two."""
    order = view.order(list_id)
    if values.is_insertion(step):
        return None
    index = values.parse_index(step, where)
    index += len(order) if index < 0 else 0
    return index if 0 <= index < len(order) else None


def place_for(view: View, list_id: str, steps: Sequence[Step], where: str) -> int | None:
    """Return the index that a new item gets; None when the steps name no place for one."""
    if len(steps) != 1 or not isinstance(steps[0], str) or not values.is_insertion(steps[0]):
        return None
    return values.insertion_index(view.order(list_id), steps[0], where)


def new_key() -> str:
    """Return a key that no item has."""
    return uuid.uuid4().hex


def insert(view: View, list_id: str, index: int, child_id: str) -> None:
    """Put a node before the item that has the index now."""
    locks.acquire(view, list_id)
    key = new_key()
    order = view.order(list_id)
    order.insert(index, key)
    view.put_value(list_id, order)
    view.put_child(list_id, key, child_id)


def drop(view: View, list_id: str, key: str) -> None:
    """Take an item out of the list, leaving the node."""
    locks.acquire(view, list_id)
    view.put_value(list_id, [other for other in view.order(list_id) if other != key])
    view.put_child(list_id, key, None)
