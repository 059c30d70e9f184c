"""The nodes that a new cluster begins with: `//home`, `//tmp` and the few of `//sys` that clients read."""

from __future__ import annotations

import sqlite3
from typing import Any

from yt_exactly_once.local.cypress import clock, dynamic, layout, locks
from yt_exactly_once.local.cypress.ids import CELL_ID, make_id
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


def _object(path: str, attributes: dict[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    _, folder, name = path.split("/")
    kind = folder.removesuffix("s")
    return path, kind, make_id(kind), {"name": name, **attributes}


def plant(connection: sqlite3.Connection) -> None:
    """Create the tree with its initial nodes, unless it is there."""
    if not layout.create(connection):
        return
    view = View(connection)
    view.put_attributes(layout.ROOT_ID, clock.birth(view))
    known = {"": layout.ROOT_ID}
    planted: list[tuple[str, str, str, dict[str, Any]]] = [
        *((path, "map_node", make_id("map_node"), {}) for path in _MAPS.split()),
        *(_object(path, attributes) for path, attributes in _OBJECTS.items()),
        (f"sys/tablet_cells/{CELL_ID}", "tablet_cell", CELL_ID, _CELL),
        *(
            (path.removeprefix("//"), "table", node_id, {"dynamic": True})
            for path, node_id in dynamic.tables().create_system_tables(connection).items()
        ),
    ]
    for path, node_type, node_id, attributes in planted:
        parent, _, name = path.rpartition("/")
        known[path] = locks.add_node(view, node_type, attributes, node_id)
        view.put_child(known[parent], name, node_id)
    # A name of its own, as `TCypressManager` gives the attribute.
    view.put_attribute(known["sys"], "cluster_name", layout.CLUSTER_NAME)
    for path, rules in _ACCESS.items():
        view.put_attributes(known[path], rules)
    for path, account in (("sys", "sys"), ("tmp", "tmp"), ("home", "tmp")):
        view.put_attribute(known[path], "account", account)
