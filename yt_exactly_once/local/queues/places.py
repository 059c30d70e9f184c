"""Places of queues and consumers: a cluster, and a path without links."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any

from yt_exactly_once.local.cypress import tree, ypath
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tablets.access import cluster_of

CONSUMER_NAME = "queue_consumer_name"
"""Attribute of a path, and key column, that tells consumers in one table apart."""


@dataclass(frozen=True)
class Place:
    """A queue or a consumer: the short name of a cluster, and a path without links; its id if it is here."""

    cluster: str
    path: str
    node_id: str | None = field(default=None, compare=False)

    @property
    def rich(self) -> str:
        """The text of the rich path."""
        return f"<cluster={self.cluster}>{self.path}"

    def key(self, kind: str = "queue") -> dict[str, Any]:
        """Return the columns that name it, as a queue or as a consumer, in tables of the queue agent."""
        return {f"{kind}_cluster": self.cluster.encode(), f"{kind}_path": self.path.encode()}

    def __str__(self) -> str:
        return f"{self.cluster}:{self.path}"


def locate(
    connection: sqlite3.Connection, path: Any, what: str, *, must_exist: bool = False
) -> Place:
    """Return the physical place of a queue or a consumer.

    Nothing is known here about other clusters: places on them are taken as given.
    """
    parsed = ypath.parse(path, what)
    cluster = cluster_of(parsed)
    if CONSUMER_NAME in parsed.attributes:
        raise shared_consumers()
    if cluster != CLUSTER_NAME:
        return Place(cluster, parsed.text)
    try:
        found = tree.reach(View(connection), parsed)
        if must_exist and found.type != "table":
            reason = f"Object {found.path} is a {found.type} and not a table"
            raise YtError(reason, Code.RESOLVE)  # noqa: TRY301 - wrapped like a missing one
        return Place(cluster, found.path, found.id)
    except YtError as error:
        if not error.contains(Code.RESOLVE):
            raise
        if must_exist:
            raise YtError(
                "Failed to get table mount info to perform registration manager resolutions for"
                f' object "{parsed.text}"',
                inner=[error],
            ) from error
        return Place(cluster, parsed.text)


def shared_consumers() -> YtError:
    """Return the refusal of a table for several consumers."""
    return YtError(
        f"Consumers that share a table ({CONSUMER_NAME}) are not supported by the embedded cluster;"
        " create a table for each"
    )
