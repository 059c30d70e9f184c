"""Places of queues and consumers: a cluster, a path without links, the name inside a shared table."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME
from yt_exactly_once.local.cypress.tree import Cypress
from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues.consumer_tables import CONSUMER_NAME
from yt_exactly_once.local.tablets.access import cluster_of


@dataclass(frozen=True)
class Place:
    """A queue or a consumer: a physical path on a cluster.

    Attributes:
        cluster: its short name.
        path: without links.
        consumer_name: which of the consumers that share a table.
    """

    cluster: str
    path: str
    consumer_name: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the rich path."""
        named = {} if self.consumer_name is None else {CONSUMER_NAME: self.consumer_name}
        return {"cluster": self.cluster, **named}

    def __str__(self) -> str:
        return f"{self.cluster}:{self.path}"


def locate(
    cypress: Cypress,
    connection: sqlite3.Connection,
    path: Any,
    what: str,
    *,
    must_exist: bool = False,
) -> Place:
    """Return the physical place of a queue or a consumer.

    Nothing is known here about other clusters: places on them are taken as given.

    Raises:
        YtError: 500 inside when there is nothing and there should be something.
    """
    parsed = ypath.parse(path, what)
    cluster = cluster_of(parsed)
    name = parsed.attributes.get(CONSUMER_NAME) if what == "consumer_path" else None
    name = None if name is None else str(name)
    if cluster != CLUSTER_NAME:
        return Place(cluster, parsed.text, name)
    try:
        node = cypress.resolve(connection, parsed.text)
        if must_exist:
            _check_table(node)
        return Place(cluster, node.path, name)
    except YtError as error:
        if not error.contains(Code.RESOLVE):
            raise
        if must_exist:
            raise YtError(
                "Failed to get table mount info to perform registration manager resolutions for"
                f' object "{parsed.text}"',
                inner=[error],
            ) from error
        return Place(cluster, parsed.text, name)


def _check_table(node: Node) -> None:
    if node.type != "table":
        raise YtError(f"Object {node.path} is a {node.type} and not a table", Code.RESOLVE)
