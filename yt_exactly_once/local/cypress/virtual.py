"""Objects that are in the tree but not stored as nodes: transactions, locks, chunks, proxies.

`//sys/transactions`, lists of proxies and ids of transactions, locks and chunks are answered from
what the cluster knows; they can be read, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import chunks, dynamic, locks, master_transactions, tree, values
from yt_exactly_once.local.cypress.ids import TYPES, is_id, type_number
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.cypress.ypath import Mark, Step, YPath

_PREFIX_LENGTH = 2


@dataclass(frozen=True)
class Virtual:
    """A path into a virtual object.

    Attributes:
        whole: the object as a map of its children, each with its attributes; `None` when there is none.
        where: its path.
        steps: the path inside.
    """

    whole: Any
    where: str
    steps: tuple[Step, ...]

    def get(self, names: Sequence[str] = ()) -> Any:
        """Return what the path leads to; of attributes only the named ones, with `@` all without names."""
        if self.whole is None:
            raise tree.unresolved(self.where, f"No such object {self.where[1:]}")
        found = values.get(self.whole, self.steps, self.where)
        if Mark.ATTRIBUTE not in self.steps:
            return _shown(found, names)
        return _chosen(found, names) if names and self.steps[-1] is Mark.ATTRIBUTE else found

    def children(self, names: Sequence[str] = ()) -> list[Any]:
        """Return the names of the children, each with the named attributes."""
        if self.steps:
            return values.keys(self.get(), self.where)
        shown = self.get(names).items()
        return [yson.to_yson_type(name, child.attributes) for name, child in shown]

    def exists(self) -> bool:
        """Tell whether the path leads to something."""
        return self.whole is not None and values.exists(self.whole, self.steps)


def _shown(value: Any, names: Sequence[str]) -> Any:
    """Return a map or an entity with the named attributes only."""
    bare = None
    if isinstance(value, dict):
        bare = {name: _shown(child, names) for name, child in value.items()}
    return yson.to_yson_type(bare, _chosen(value.attributes, names))


def _chosen(attributes: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: attributes[name] for name in names if name in attributes}


def find(view: View, path: YPath, proxies: Mapping[str, Callable[[], list[str]]]) -> Virtual | None:
    """Return the virtual object that a path leads into, if it does.

    Args:
        proxies: names below `//sys` that list proxies, and what returns their addresses.
    """
    if path.root:
        return _by_id(view, path)
    if path.steps[:1] != ("sys",):
        return None
    kind = path.steps[1] if len(path.steps) >= _PREFIX_LENGTH else None
    objects: dict[str, dict[str, Any]] = {}
    if kind == "locks":
        objects = {lock.id: locks.describe(lock) for lock in locks.find(view.connection)}
    elif kind in {"transactions", "topmost_transactions"}:
        kept = {"transaction", "nested_transaction" if kind == "transactions" else ""}
        for name in master_transactions.all_ids(view.connection):
            found = _describe_transaction(view, name)
            if found is not None and found["type"] in kept:
                objects[name] = found
    elif isinstance(kind, str) and kind in proxies:
        proxy = {"type": "map_node", "role": "data", "banned": False}
        objects = {address: {**proxy, "address": address} for address in proxies[kind]()}
    else:
        return None
    content = {name: yson.to_yson_type(None, of) for name, of in objects.items()}
    whole = yson.to_yson_type(content, {"type": "map_node", "count": len(content)})
    return Virtual(whole, f"//sys/{path.steps[1]}", path.steps[_PREFIX_LENGTH:])


def _by_id(view: View, path: YPath) -> Virtual | None:
    if not is_id(path.root):
        return None
    describe = _BY_TYPE.get(type_number(path.root))
    if describe is None:
        return None
    known = describe(view, path.root)
    whole = None if known is None else yson.to_yson_type({}, known)
    return Virtual(whole, f"#{path.root}", path.steps)


def _describe_tablet(view: View, tablet_id: str) -> dict[str, Any] | None:
    known = dynamic.tables().describe_tablet(view.connection, tablet_id)
    if known is None:
        return None
    where = view.path(known["table_id"])
    return {**known, "table_path": where, "owner_path": where}


def _describe_transaction(view: View, transaction_id: str) -> dict[str, Any] | None:
    known = master_transactions.describe(view.connection, transaction_id)
    if known is None:
        return None
    held = locks.find(view.connection, tx=transaction_id)
    return {
        **known,
        "depth": len(locks.chain(view.connection, known["id"])) - 2,
        "cypress_transaction": True,
        "dependent_transaction_ids": master_transactions.dependent(view.connection, transaction_id),
        "lock_ids": [lock.id for lock in held],
        "locked_node_ids": sorted({lock.node_id for lock in held}),
    }


_BY_TYPE: dict[int, Callable[[View, str], dict[str, Any] | None]] = {
    **dict.fromkeys(master_transactions.MASTER_TYPES, _describe_transaction),
    TYPES["chunk"]: chunks.describe,
    TYPES["lock"]: lambda view, lock_id: next(
        map(locks.describe, locks.find(view.connection, id=lock_id)), None
    ),
    TYPES["tablet"]: _describe_tablet,
}
