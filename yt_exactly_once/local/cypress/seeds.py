"""The nodes that a new cluster begins with: `//home`, `//tmp` and the few of `//sys` that clients read."""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress import clock, layout, locks
from yt_exactly_once.local.cypress.ids import CELL_ID
from yt_exactly_once.local.cypress.view import View

_MAPS = """
    home tmp sys sys/accounts sys/cypress_tokens sys/groups sys/queue_agents sys/tablet_cell_bundles
    sys/tablet_cells sys/users
"""
_OBJECTS: dict[str, dict[str, Any]] = {
    **{f"sys/accounts/{name}": {"resource_limits": {}} for name in ("default", "sys", "tmp")},
    "sys/groups/everyone": {},
    "sys/groups/superusers": {"members": ["root"]},
    "sys/groups/users": {},
    "sys/tablet_cell_bundles/default": {"health": "good", "options": {}},
    "sys/users/guest": {"banned": False},
    "sys/users/root": {"banned": False},
}
"""Accounts, groups and so on: each is of the type that its folder names, and has its own name."""


def _allow(subject: str, *named: str) -> list[dict[str, Any]]:
    return [
        {
            "action": "allow",
            "subjects": [subject],
            "permissions": list(named),
            "inheritance_mode": "object_and_descendants",
        }
    ]


_ACCESS: dict[str, dict[str, Any]] = {
    "": {"acl": _allow("everyone", "read"), "inherit_acl": False},
    "tmp": {"acl": _allow("users", "read", "write", "remove")},
    "sys/accounts/default": {"acl": _allow("users", "use")},
    "sys/accounts/tmp": {"acl": _allow("users", "use")},
    "sys/cypress_tokens": {"acl": [], "inherit_acl": False},
    "sys/tablet_cell_bundles/default": {"acl": _allow("users", "use")},
}
"""Access control that masters begin with."""
_CELL = {"health": "good", "state": "running", "tablet_cell_bundle": "default", "peers": []}


def plant(connection: Connection, system_tables: Callable[[Connection], dict[str, str]]) -> None:
    """Create the tree with its initial nodes, unless it is there; dynamic tables come as ids by path."""
    if not layout.create(connection):
        return
    view = View(connection)
    view.put_attributes(layout.ROOT_ID, clock.birth(view))
    known = {"": layout.ROOT_ID}

    def add(path: str, node_type: str, given: dict[str, Any], node_id: str | None = None) -> None:
        parent, _, name = path.rpartition("/")
        known[path] = locks.add_node(view, node_type, given, node_id)
        view.put_child(known[parent], name, known[path])

    for path in _MAPS.split():
        add(path, "map_node", {})
    for path, given in _OBJECTS.items():
        _, folder, name = path.split("/")
        add(path, folder.removesuffix("s"), {"name": name, **given})
    add(f"sys/tablet_cells/{CELL_ID}", "tablet_cell", _CELL, CELL_ID)
    for path, node_id in system_tables(connection).items():
        add(path.removeprefix("//"), "table", {"dynamic": True}, node_id)
    # A name of its own, as `TCypressManager` gives the attribute.
    view.put_attribute(known["sys"], "cluster_name", layout.CLUSTER_NAME)
    for path, rules in _ACCESS.items():
        view.put_attributes(known[path], rules)
    for path, account in (("sys", "sys"), ("tmp", "tmp"), ("home", "tmp")):
        view.put_attribute(known[path], "account", account)
