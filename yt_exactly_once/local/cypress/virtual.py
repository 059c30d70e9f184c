"""Objects that are in the tree but not stored as nodes: transactions, locks, chunks, proxies.

`//sys/transactions`, `//sys/http_proxies` and ids of transactions, locks and chunks are answered from
what the cluster knows; they can be read, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    dynamic,
    locks,
    master_transactions,
    tree,
    values,
)
from yt_exactly_once.local.cypress.ids import TYPES, is_id, type_number
from yt_exactly_once.local.cypress.reading import with_attributes
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.cypress.ypath import Mark, Step, YPath
from yt_exactly_once.local.errors import Code, YtError

_PREFIX_LENGTH = 2


@dataclass(frozen=True)
class Virtual:
    """A path into a virtual object.

    Attributes:
        content: children by name, each with its attributes; `None` when there is no such object.
        attributes: of the object itself.
        steps: the path inside.
        text: the whole path.
    """

    content: dict[str, dict[str, Any]] | None
    attributes: dict[str, Any]
    steps: tuple[Step, ...]
    text: str

    def get(self, names: Sequence[str] = ()) -> Any:
        """Return what the path leads to.

        Args:
            names: attributes that every shown object carries; with `@`, the only ones that are shown.
        """
        if self.content is None:
            raise self._missing()
        if not self.steps:
            shown = {
                name: with_attributes(yson.YsonEntity(), _chosen(child, names))
                for name, child in self.content.items()
            }
            return with_attributes(shown, _chosen(self.attributes, names))
        first, *rest = self.steps
        if first is Mark.ATTRIBUTE:
            return self._attribute(_only(self.attributes, names), rest)
        child = self._child(first)
        if not rest:
            return with_attributes(yson.YsonEntity(), _chosen(child, names))
        if rest[0] is Mark.ATTRIBUTE:
            return self._attribute(_only(child, names), rest[1:])
        raise self._missing()

    def children(self, names: Sequence[str] = ()) -> list[Any]:
        """Return the names of the children, each with the named attributes."""
        if self.content is None or self.steps:
            value = self.get()
            return values.keys(value, self.text)
        return [
            with_attributes(name, _chosen(child, names)) for name, child in self.content.items()
        ]

    def exists(self) -> bool:
        """Tell whether the path leads to something."""
        try:
            self.get()
        except YtError:
            return False
        return True

    def _child(self, name: Step) -> dict[str, Any]:
        if self.content is None or not isinstance(name, str) or name not in self.content:
            raise self._missing()
        return self.content[name]

    def _attribute(self, known: dict[str, Any], steps: list[Step]) -> Any:
        if not steps:
            return known
        if steps[0] not in known:
            raise YtError(f'Attribute "{steps[0]}" is not found', Code.RESOLVE)
        return values.get(known, steps, self.text)

    def _missing(self) -> YtError:
        name = self.text.partition("/")[0][1:]
        return tree.unresolved(self.text, f"No such object {name}")


def _chosen(attributes: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: attributes[name] for name in names if name in attributes}


def _only(attributes: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return _chosen(attributes, names) if names else attributes


def find(view: View, path: YPath, proxies: Callable[[], list[str]]) -> Virtual | None:
    """Return the virtual object that a path leads into, if it does."""
    if path.root:
        return _by_id(view, path)
    if path.steps[:1] != ("sys",):
        return None
    makers: dict[Step, Callable[[], dict[str, dict[str, Any]]]] = {
        "locks": lambda: {lock.id: _describe_lock(lock) for lock in locks.all_(view.connection)},
        "transactions": lambda: _transactions(view),
        "topmost_transactions": lambda: {
            name: known
            for name, known in _transactions(view).items()
            if known["type"] == "transaction"
        },
        "http_proxies": lambda: {address: _proxy(address) for address in proxies()},
        "proxies": lambda: {address: _proxy(address) for address in proxies()},
    }
    maker = makers.get(path.steps[1]) if len(path.steps) >= _PREFIX_LENGTH else None
    if maker is None:
        return None
    content = maker()
    own = {"type": "map_node", "count": len(content)}
    return Virtual(content, own, path.steps[_PREFIX_LENGTH:], path.text)


def _transactions(view: View) -> dict[str, dict[str, Any]]:
    described = {
        transaction_id: _describe_transaction(view, transaction_id)
        for transaction_id in master_transactions.all_ids(view.connection)
    }
    return {name: found for name, found in described.items() if found is not None}


def _by_id(view: View, path: YPath) -> Virtual | None:
    if not is_id(path.root):
        return None
    number = type_number(path.root)
    if number in master_transactions.MASTER_TYPES:
        known = _describe_transaction(view, path.root)
    elif number == TYPES["chunk"]:
        known = chunks.describe(view, path.root)
    elif number == TYPES["lock"]:
        lock = locks.find(view.connection, path.root)
        known = None if lock is None else _describe_lock(lock)
    elif number == TYPES["tablet"]:
        known = _describe_tablet(view, path.root)
    else:
        return None
    return Virtual(None if known is None else {}, known or {}, path.steps, path.text)


def _describe_lock(lock: locks.Lock) -> dict[str, Any]:
    times = {"creation_time": lock.created, "acquisition_time": lock.acquired}
    return {
        "id": lock.id,
        "type": "lock",
        "state": lock.state,
        "mode": lock.mode,
        "node_id": lock.node_id,
        "transaction_id": lock.tx,
        "implicit": not lock.explicit,
        **{name: clock.spell_unix(at) for name, at in times.items() if at is not None},
        **{k: v for k in ("child_key", "attribute_key") if (v := getattr(lock, k)) is not None},
    }


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
    try:
        depth = len(master_transactions.chain(view.connection, transaction_id)) - 2
    except YtError:
        # Its lease, or that of an ancestor, has run out since.
        return None
    held = locks.of_transaction(view.connection, transaction_id)
    return {
        **known,
        "depth": depth,
        "cypress_transaction": True,
        "dependent_transaction_ids": master_transactions.dependent(view.connection, transaction_id),
        "lock_ids": [lock.id for lock in held],
        "locked_node_ids": sorted({lock.node_id for lock in held}),
    }


def _proxy(address: str) -> dict[str, Any]:
    return {"type": "map_node", "role": "data", "banned": False, "address": address}
