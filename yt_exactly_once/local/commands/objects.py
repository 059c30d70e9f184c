"""Objects that are created without a path: users, groups, accounts and tablet cell bundles.

They are nodes under `//sys` that clients can look up.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import clock, nodes, tree, ypath
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError

if TYPE_CHECKING:
    from yt_exactly_once.local.commands.registry import Context

_FOLDERS = {
    "user": "users",
    "group": "groups",
    "account": "accounts",
    "tablet_cell_bundle": "tablet_cell_bundles",
    "tablet_cell": "tablet_cells",
}


def create_object(
    context: Context, connection: sqlite3.Connection, object_type: str, given: dict[str, Any]
) -> str:
    """Create an object and return its id; raise `YtError` 501 when its name is taken."""
    folder = _FOLDERS.get(object_type)
    if folder is None:
        raise YtError(f'Cannot create an object of type "{object_type}" in the embedded cluster')
    object_id = make_id(object_type)
    name = object_id
    if object_type != "tablet_cell":
        name = arguments.text(given.get("name"), "attributes/name")
    where = f"//sys/{folder}/{ypath.escape(name)}"
    view = View(connection)
    position = tree.walk(view, ypath.parse(where))
    if not position.rest:
        if arguments.flag(context.parameters, "ignore_existing"):
            return position.id
        raise nodes.already_exists(where)
    nodes.place(view, position, object_id, recursive=False)
    view.add_node(object_id, object_type)
    defaults = {"health": "good"} if object_type.startswith("tablet_cell") else {}
    view.put_attributes(object_id, {**clock.birth(connection, context.user), **defaults, **given})
    return object_id
