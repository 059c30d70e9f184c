"""The tree as one transaction sees it: versioned facts read through a chain of transactions.

A chain is the transaction, its ancestors, and the trunk. Reads take the nearest version, writes go to
the first of the chain. This module knows rows and versions, not paths, types or rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress.layout import ROOT_ID, TRUNK
from yt_exactly_once.local.cypress.ypath import escape
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.store import scalar

OVERWRITE = "overwrite"
APPEND = "append"
LIST = "list_node"
FROZEN = ""
"""Name of the entry that marks frozen children; no child can have it."""


@dataclass(frozen=True)
class Node:
    """One object of the tree, as a transaction saw it.

    Attributes:
        type: object type, such as `map_node` or `table`.
        parent_id: id of the parent; `None` for the root and for objects without a path.
        name: key in the parent; empty in a list.
        path: the one path without links that leads here; `#id` for objects without a path.
        attributes: every stored attribute, system and user.
    """

    id: str
    type: str
    parent_id: str | None
    name: str
    path: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Facts about nodes, seen from a transaction.

    Attributes:
        connection: open read or write transaction of the store.
        chain: transaction ids from the innermost to the trunk.
        user: who looks and changes, with the rights that this one has.
        is_quiet: whether changes leave times and revisions as they are.
    """

    connection: Connection
    chain: tuple[str, ...] = (TRUNK,)
    user: str = "root"
    is_quiet: bool = False

    @property
    def tx(self) -> str:
        """The transaction that writes belong to."""
        return self.chain[0]

    @property
    def trunk(self) -> View:
        """The view of everybody."""
        return replace(self, chain=(TRUNK,))

    def _nearest(self, versions: Iterable[tuple[str, Any]], default: Any) -> Any:
        """Pick from `(transaction, value)` pairs the one that this view sees."""
        best, best_rank = default, len(self.chain)
        for tx, value in versions:
            rank = self.chain.index(tx) if tx in self.chain else len(self.chain)
            if rank < best_rank:
                best, best_rank = value, rank
        return best

    def node_type(self, node_id: str) -> str | None:
        """Return the type of an object, or `None` when there is none."""
        query = "SELECT type FROM cypress_nodes WHERE id = ?"
        node_type: str | None = scalar(self.connection, query, node_id)
        return node_type

    def child(self, parent_id: str, name: str) -> str | None:
        """Return the id of a child."""
        found = self.typed_child(parent_id, name)
        return None if found is None else found[0]

    def typed_child(self, parent_id: str, name: str) -> tuple[str, str] | None:
        """Return the id and the type of a child."""
        frozen = self._frozen_in(parent_id)
        view = self if frozen is None else replace(self, chain=(frozen,))
        found = self.connection.execute(
            "SELECT tx, child_id, type FROM cypress_entries LEFT JOIN cypress_nodes ON id = child_id"
            " WHERE parent_id = ? AND name = ?",
            (parent_id, name),
        )
        versions = [(tx, child and (child, kind)) for tx, child, kind in found]
        child: tuple[str, str] | None = view._nearest(versions, None)  # noqa: SLF001 - of this very class
        return child

    def children(self, parent_id: str) -> dict[str, str]:
        """Return the children of a map or list node by name, in the order of names."""
        frozen = self._frozen_in(parent_id)
        if frozen is not None and len(self.chain) > 1:
            return replace(self, chain=(frozen,)).children(parent_id)
        versions: dict[str, list[tuple[str, str | None]]] = {}
        for name, tx, child_id in self.connection.execute(
            "SELECT name, tx, child_id FROM cypress_entries WHERE parent_id = ? ORDER BY name",
            (parent_id,),
        ):
            versions.setdefault(name, []).append((tx, child_id))
        seen = {name: self._nearest(found, None) for name, found in versions.items()}
        return {name: child_id for name, child_id in seen.items() if child_id is not None}

    def order(self, list_id: str) -> list[str]:
        """Return the names of the children of a list node in their order."""
        return [str(name) for name in self.value(list_id)]

    def _frozen_in(self, parent_id: str) -> str | None:
        """Return the transaction of the chain in which the children are frozen, if any."""
        if self.chain == (TRUNK,):
            return None
        found = self.connection.execute(
            "SELECT tx, tx FROM cypress_entries WHERE parent_id = ? AND name = ?",
            (parent_id, FROZEN),
        )
        frozen: str | None = self._nearest(found, None)
        return frozen

    def place(self, node_id: str) -> tuple[str, str] | None:
        """Return parent and name of a node, or `None` for one that no path leads to."""
        for parent_id, name in self.connection.execute(
            "SELECT DISTINCT parent_id, name FROM cypress_entries WHERE child_id = ?", (node_id,)
        ).fetchall():
            if self.child(parent_id, name) == node_id:
                return parent_id, name
        return None

    def above(self, node_id: str) -> Iterator[str]:
        """Yield a node, its parent, and so on to the root."""
        current: str | None = node_id
        while current is not None:
            yield current
            place = self.place(current)
            current = None if place is None else place[0]

    def below(self, node_id: str) -> Iterator[str]:
        """Yield a node and everything below it, each before what is below it."""
        yield node_id
        for child_id in self.children(node_id).values():
            yield from self.below(child_id)

    def find(self, *names: str) -> str | None:
        """Return the id of an object below `//sys`."""
        found: str | None = ROOT_ID
        for step in ("sys", *names):
            found = None if found is None else self.child(found, step)
        return found

    def path(self, node_id: str) -> str:
        """Return the path of a node; `#id` when none leads to it."""
        names: list[str] = []
        current = node_id
        while current != ROOT_ID:
            place = self.place(current)
            if place is None:
                return f"#{node_id}"
            current, name = place
            in_list = self.node_type(current) == LIST
            names.append(str(self.order(current).index(name)) if in_list else escape(name))
        return "/" + "".join("/" + name for name in reversed(names))

    def put_child(self, parent_id: str, name: str, child_id: str | None) -> None:
        """Set or, with `None`, remove a child."""
        if child_id is None and self.tx == TRUNK:
            self.connection.execute(
                "DELETE FROM cypress_entries WHERE parent_id = ? AND name = ? AND tx = ''",
                (parent_id, name),
            )
            return
        self.connection.execute(
            "INSERT OR REPLACE INTO cypress_entries VALUES (?, ?, ?, ?)",
            (parent_id, name, self.tx, child_id),
        )

    def attribute(self, node_id: str, name: str) -> Any:
        """Return a stored attribute, `None` when there is none."""
        for tx in self.chain:
            found = self.connection.execute(
                "SELECT value FROM cypress_attributes WHERE node_id = ? AND tx = ? AND name = ?",
                (node_id, tx, name),
            ).fetchone()
            if found is not None:
                return None if found[0] is None else load_yson(found[0], "attribute")
        return None

    def attributes(self, node_id: str) -> dict[str, Any]:
        """Return every stored attribute."""
        merged: dict[str, bytes | None] = {}
        for tx in reversed(self.chain):
            merged.update(
                self.connection.execute(
                    "SELECT name, value FROM cypress_attributes WHERE node_id = ? AND tx = ?",
                    (node_id, tx),
                ).fetchall()
            )
        return {
            name: load_yson(value, "attribute")
            for name, value in merged.items()
            if value is not None
        }

    def put_attribute(self, node_id: str, name: str, value: Any) -> None:
        """Store an attribute."""
        self.put_attributes(node_id, {name: value})

    def put_attributes(self, node_id: str, values: dict[str, Any]) -> None:
        """Store several attributes."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO cypress_attributes VALUES (?, ?, ?, ?)",
            [(node_id, self.tx, name, dump_yson(value)) for name, value in values.items()],
        )

    def drop_attribute(self, node_id: str, name: str) -> None:
        """Forget an attribute."""
        statement = "INSERT OR REPLACE INTO cypress_attributes (node_id, tx, name) VALUES (?, ?, ?)"
        if self.tx == TRUNK:
            statement = "DELETE FROM cypress_attributes WHERE node_id = ? AND tx = ? AND name = ?"
        self.connection.execute(statement, (node_id, self.tx, name))

    def value(self, node_id: str) -> Any:
        """Return the content of a scalar, a document or a link, or the order of a list."""
        found = self.connection.execute(
            "SELECT tx, value FROM cypress_contents WHERE node_id = ?", (node_id,)
        )
        value = self._nearest(found, None)
        return None if value is None else load_yson(value, "content")

    def put_value(self, node_id: str, value: Any) -> None:
        """Replace the content of a scalar, a document or a link."""
        self.put_content(node_id, OVERWRITE, dump_yson(value))

    def put_content(self, node_id: str, mode: str, value: bytes | None) -> None:
        """Record that the content changed in this transaction."""
        self.connection.execute(
            "INSERT OR REPLACE INTO cypress_contents VALUES (?, ?, ?, ?)",
            (node_id, self.tx, mode, value),
        )
