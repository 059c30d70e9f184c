"""Times and revisions of nodes: what is stamped on a node when it is created or changed."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.store import next_timestamp

_REVISIONS = ("revision", "attribute_revision", "content_revision")


def now() -> str:
    """Return the current time as attributes spell it."""
    return spell(datetime.now(UTC))


def spell(moment: datetime) -> str:
    """Return a time as attributes spell it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def spell_unix(seconds: float) -> str:
    """Return a unix time as attributes spell it."""
    return spell(datetime.fromtimestamp(seconds, UTC))


def revision(connection: sqlite3.Connection) -> Any:
    """Return a new revision, greater than every earlier one."""
    return yson.YsonUint64(next_timestamp(connection))


def birth(view: View) -> dict[str, Any]:
    """Return the attributes that every node is created with."""
    times = dict.fromkeys(("creation_time", "modification_time", "access_time"), now())
    return {"owner": view.user, **times, **dict.fromkeys(_REVISIONS, revision(view.connection))}


def touch(view: View, node_id: str, *kinds: str) -> None:
    """Stamp a change of `content`, of `attribute`, or of both on a node."""
    if view.is_quiet:
        return
    number = revision(view.connection)
    stamps = {f"{kind}_revision": number for kind in kinds}
    view.put_attributes(node_id, {"modification_time": now(), "revision": number, **stamps})


def restamp(connection: sqlite3.Connection, tx: str) -> None:
    """Give what a transaction changed the revision of its commit, where new timeouts begin too."""
    connection.execute(
        "UPDATE cypress_attributes SET value = ? WHERE name = 'access_time' AND tx = ''"
        " AND node_id IN (SELECT node_id FROM cypress_attributes"
        " WHERE tx = ? AND name = 'expiration_timeout')",
        (dump_yson(now()), tx),
    )
    connection.execute(
        "UPDATE cypress_attributes SET value = ? WHERE tx = ?"
        " AND name IN ('revision', 'attribute_revision', 'content_revision')",
        (dump_yson(revision(connection)), tx),
    )
