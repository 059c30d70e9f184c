"""Dynamic tables, as far as the tree knows them.

Other rooms keep their rows, schemas and tablets. They register here what the tree calls when such a node
is created, copied, removed or read.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, Protocol

from yt_exactly_once.local.cypress.view import Node


class DynamicTables(Protocol):
    """The keeper of dynamic tables. Every change needs a connection of `Store.write`."""

    def create(
        self, connection: Connection, node_id: str, given: dict[str, Any], /
    ) -> dict[str, Any]:
        """Create the storage of a table from the attributes given; return those to store."""

    def copy(self, connection: Connection, source_id: str, copy_id: str, /) -> None:
        """Copy the storage of a table."""

    def drop(self, connection: Connection, node_id: str, /) -> None:
        """Drop the storage of a table."""

    def check_movable(self, connection: Connection, node_id: str, /) -> None:
        """Refuse to move a table that is not unmounted; other nodes may move."""

    def attributes(self, connection: Connection, node: Node, /) -> dict[str, Callable[[], Any]]:
        """Return the computed attributes of a table."""

    def moments(self, connection: Connection, node_id: str, /) -> dict[str, Any]:
        """Return the attributes that a snapshot lock keeps still."""

    def check_change(
        self, connection: Connection, node: Node, name: str, *value: Any, in_transaction: bool
    ) -> None:
        """Refuse a change of an attribute that is not allowed now; without a value, its removal."""

    def describe_tablet(self, connection: Connection, tablet_id: str, /) -> dict[str, Any] | None:
        """Return the attributes of a tablet, `table_id` with them; None when there is none."""


_keepers: list[DynamicTables] = []


def register(keeper: DynamicTables) -> None:
    """Let a keeper of dynamic tables answer from now on."""
    _keepers[:] = [keeper]


def tables() -> DynamicTables:
    """Return the keeper of dynamic tables."""
    return _keepers[0]
