"""Quotas: how much an account or a tablet cell bundle may hold, and what it holds.

Only limits that somebody has set count (`@resource_limits`): a new account has none. What is used is summed
up when it is asked for. Texts and codes follow `ValidateResourceUsageIncrease` of masters and the security
manager of tablet nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yt_exactly_once.local.cypress import chunks, dynamic
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.store import scalar, scalars

ACCOUNT, BUNDLE = "account", "tablet_cell_bundle"
_TITLES = {
    "node_count": "Cypress node count",
    "chunk_count": "chunk count",
    "disk_space": "disk space",
    "tablet_count": "tablet count",
    "tablet_static_memory": "tablet static memory",
}
_OF = {ACCOUNT: tuple(_TITLES), BUNDLE: ("tablet_count", "tablet_static_memory")}
_CODES = {ACCOUNT: Code.ACCOUNT_LIMIT_EXCEEDED, BUNDLE: Code.BUNDLE_LIMIT_EXCEEDED}
_MEDIUM = "default"


def account_of(view: View, node_id: str) -> str:
    """Return who pays for a node: its own account, or that of the folder above it."""
    accounts = (view.attribute(current, ACCOUNT) for current in view.above(node_id))
    return str(next((own for own in accounts if own is not None), "tmp"))


def of_node(view: View, node_id: str) -> dict[str, Any]:
    """Return what one node takes."""
    found = dict.fromkeys(_TITLES, 0) | {"node_count": 1}
    kind, stored = view.node_type(node_id), view.attributes(node_id)
    if kind == "table" and stored.get("dynamic"):
        node = Node(node_id, kind, None, "", "", stored)
        statistics = dynamic.tables().attributes(view.connection, node)["tablet_statistics"]()
        found["chunk_count"] = statistics["chunk_count"]
        # What is not flushed is not on disk.
        found["disk_space"] = statistics["disk_space"] if statistics["chunk_count"] else 0
        found["tablet_count"] = statistics["tablet_count"]
        found["tablet_static_memory"] = statistics["memory_size"]
    elif kind in {"file", "table"}:
        listed = chunks.chunks(view, node_id)
        found["chunk_count"] = len(listed)
        found["disk_space"] = sum(chunk.size for chunk in listed)
    return found


def shown(used: dict[str, Any]) -> dict[str, Any]:
    """Return what is used as `@resource_usage` has it."""
    space = used["disk_space"]
    return {**used, "disk_space_per_medium": {_MEDIUM: space} if space else {}}


def below(view: View, node_id: str) -> dict[str, Any]:
    """Return what a node and everything below it take."""
    total: Counter[str] = Counter()
    for each in view.below(node_id):
        total.update(of_node(view, each))
    return dict(total)


def used_by(view: View, kind: str, name: str) -> dict[str, Any]:
    """Return what an account, with the accounts below it, or a bundle has used."""
    total = Counter(dict.fromkeys(_OF[kind], 0))
    query = "SELECT id FROM cypress_nodes WHERE type = 'table' OR ?"
    for node_id in scalars(view.connection, query, kind == ACCOUNT):
        owner = _owners(view, node_id).get(kind)
        paid = owner is not None and name in (_chain(view, owner) if kind == ACCOUNT else [owner])
        if paid and view.place(node_id) is not None:
            found = of_node(view, node_id)
            total.update({key: found[key] for key in _OF[kind]})
    return dict(total)


def violated(view: View, name: str) -> dict[str, Any]:
    """Return which limits an account is over."""
    limits, used = _limits(view, ACCOUNT, name), used_by(view, ACCOUNT, name)
    found = {key: used[key] > limits.get(key, used[key]) for key in _OF[ACCOUNT]}
    return {**found, "disk_space_per_medium": {_MEDIUM: found["disk_space"]}}


def check(view: View, node_id: str, *resources: str, more: int = 0) -> None:
    """Refuse what a node has just taken, or would take with `more`: 902 an account, 1720 a bundle."""
    if not _any_limits(view):
        return
    own = of_node(view, node_id)
    taken = [each for each in resources if own[each] + more]
    for kind, owner in _owners(view, node_id).items():
        for height, name, resource in _exceeded(view, kind, owner, taken, more):
            what = ("Account", "Parent account", "Ancestor account")[min(height, 2)]
            what = what if kind == ACCOUNT else "Tablet cell bundle"
            raise YtError(
                f'{what} "{name}" is over {_TITLES[resource]} limit{_medium(" in", resource)}',
                _CODES[kind],
            )


def payers(view: View, node_id: str) -> dict[str, Any]:
    """Return what `check_rows` must know of a table; its tablets learn it when they are mounted."""
    in_memory = (view.attribute(node_id, "in_memory_mode") or "none") != "none"
    return {BUNDLE: "default", **_owners(view, node_id), "in_memory": in_memory}


def check_rows(view: View, options: Mapping[str, Any]) -> None:
    """Refuse to write rows into a table of an account (902) or a bundle (1720) over a limit."""
    if not _any_limits(view):
        return
    memory = ["tablet_static_memory"] * options["in_memory"]
    for kind, wanted in ((ACCOUNT, ["chunk_count", "disk_space", *memory]), (BUNDLE, memory)):
        owner, title = options[kind].decode(), kind.replace("_", " ").capitalize()
        for _, _, resource in _exceeded(view, kind, owner, wanted):
            raise YtError(
                f'{title} "{owner}" violates {_TITLES[resource]} limit{_medium(" for", resource)}',
                _CODES[kind],
            )


def _owners(view: View, node_id: str) -> dict[str, str]:
    owners = {ACCOUNT: account_of(view, node_id)}
    if view.attribute(node_id, "dynamic"):
        owners[BUNDLE] = str(view.attribute(node_id, BUNDLE) or "default")
    return owners


def _exceeded(
    view: View, kind: str, owner: str, wanted: Sequence[str], more: int = 0
) -> Iterator[tuple[int, str, str]]:
    """Yield the limits that an account, those above it, or a bundle are over: height, name and resource."""
    for height, name in enumerate(_chain(view, owner) if kind == ACCOUNT else [owner]):
        limits = _limits(view, kind, name)
        asked = [each for each in wanted if each in limits]
        used = used_by(view, kind, name) if asked else {}
        yield from ((height, name, each) for each in asked if used[each] + more > limits[each])


def _medium(preposition: str, resource: str) -> str:
    return f'{preposition} medium "{_MEDIUM}"' if resource == "disk_space" else ""


def _chain(view: View, account: str) -> Iterator[str]:
    """Yield an account and those above it."""
    current: Any = account
    while current is not None:
        yield str(current)
        found = view.find(f"{ACCOUNT}s", current)
        current = None if found is None else view.attribute(found, "parent_name")


_NO_LIMITS = dump_yson({})


def _any_limits(view: View) -> bool:
    """Tell whether anybody has set a limit; an index answers."""
    query = "SELECT 1 FROM cypress_attributes WHERE name = 'resource_limits' AND value != ? LIMIT 1"
    return scalar(view.connection, query, _NO_LIMITS) is not None


def _limits(view: View, kind: str, name: str) -> dict[str, int]:
    """Return the limits that were set, by resource."""
    found = view.find(f"{kind}s", name)
    given = None if found is None else view.attribute(found, "resource_limits")
    if not isinstance(given, dict) or not given:
        return {}
    space = (given.get("disk_space_per_medium") or {}).get(_MEDIUM, given.get("disk_space"))
    limits = {**given, "disk_space": space}
    if kind == BUNDLE:
        limits = {"tablet_static_memory": 0, **given}
    return {key: int(limits[key]) for key in _OF[kind] if limits.get(key) is not None}
