"""Nodes that remove themselves: at `@expiration_time`, or `@expiration_timeout` after the last access.

Looked at before each command on the tree, so rows of an expired dynamic table are there until one comes. A
node that somebody has locked stays until it can be removed, and its timeout begins when the lock is gone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from math import inf
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import clock, nodes, permissions, tree, ypath
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import load_yson
from yt_exactly_once.local.store import scalar, scalars

AT, AFTER = permissions.EXPIRATION
_STORED = (
    "SELECT node_id, name, value FROM cypress_attributes"
    " WHERE tx = '' AND name IN ('expiration_time', 'expiration_timeout')"
)

_LOCKED = (
    "SELECT node_id FROM cypress_attributes WHERE tx = '' AND name = 'expiration_timeout'"
    " AND node_id IN (SELECT node_id FROM cypress_locks)"
)


def expire(connection: Connection) -> None:
    """Remove the nodes that should be gone, with everything below them."""
    view = View(connection)
    for node_id in scalars(connection, _LOCKED):
        view.put_attribute(node_id, "access_time", clock.now())
    now = time.time()
    for node_id, name, stored in connection.execute(_STORED).fetchall():
        # It may have gone with another one.
        if view.node_type(node_id) is None:
            continue
        value = load_yson(stored, "attribute")
        if name == AT:
            at = arguments.moment({name: value}, name)
            end = at.timestamp() if at else inf
        else:
            accessed = view.attribute(node_id, "access_time")
            end = datetime.fromisoformat(accessed).timestamp() + int(value) / 1000
        if end <= now:
            # One that a lock holds stays; masters try again later too.
            with suppress(YtError):
                nodes.unlink(view, node_id)


def is_used(connection: Connection) -> bool:
    """Tell whether any node has an end."""
    return scalar(connection, _STORED + " LIMIT 1") is not None


def touch(view: View, path: Any) -> None:
    """Note an access, if it keeps the node from being removed."""
    with suppress(YtError):
        position = tree.walk(view, ypath.parse(path))
        if view.attribute(position.id, AFTER) is not None:
            view.put_attribute(position.id, "access_time", clock.now())
