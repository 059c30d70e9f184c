"""Places of queues and consumers: a cluster, and a path without links."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME
from yt_exactly_once.local.cypress.tree import Cypress
from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tablets.access import cluster_of

CONSUMER_NAME = "queue_consumer_name"
"""Attribute of a path, and key column, that tells consumers in one table apart."""


@dataclass(frozen=True)
class Place:
    """A queue or a consumer: a physical path on a cluster.

    Attributes:
        cluster: its short name.
        path: without links.
    """

    cluster: str
    path: str

    @property
    def rich(self) -> str:
        """The text of the rich path."""
        return f"<cluster={self.cluster}>{self.path}"

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
        YtError: 500 inside when there is nothing and there should be something; the path names one of
            several consumers.
    """
    parsed = ypath.parse(path, what)
    cluster = cluster_of(parsed)
    if CONSUMER_NAME in parsed.attributes:
        raise shared_consumers()
    if cluster != CLUSTER_NAME:
        return Place(cluster, parsed.text)
    try:
        node = cypress.resolve(connection, parsed.text)
        if must_exist:
            _check_table(node)
        return Place(cluster, node.path)
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


def _check_table(node: Node) -> None:
    if node.type != "table":
        raise YtError(f"Object {node.path} is a {node.type} and not a table", Code.RESOLVE)
