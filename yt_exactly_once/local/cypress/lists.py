"""List nodes: children in an order of their own.

The children have keys that nobody sees, as the children of a map have names; the content of the list node
is their order. A change of a list locks it whole.
"""

from __future__ import annotations

import uuid

from yt_exactly_once.local.cypress import locks
from yt_exactly_once.local.cypress.view import View

LIST = "list_node"


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
