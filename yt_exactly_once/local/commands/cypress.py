"""Commands of the tree: create, get, set, list, exists, remove, copy, move, link, lock and their kin."""

from __future__ import annotations

import re
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import transactions
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.commands.service import create_object
from yt_exactly_once.local.commands.sessions import note_access, once, path_of, settled, view_of
from yt_exactly_once.local.cypress import (
    changes,
    copying,
    locks,
    master_transactions,
    nodes,
    permissions,
    reading,
    tree,
    virtual,
    ypath,
)
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.tables.schema import parse_schema

_PLAIN = "names of nodes and attributes are UTF-8"
_LEASE = re.compile("(?:#|//sys/(?:topmost_)?transactions/)([^/]+)/@timeout")


@command(
    "create",
    volatile=True,
    partial=f"no journals, replicas and portals; a table that expires keeps its rows until the next command"
    f" on the tree; {_PLAIN}",
)
@once
def create(context: Context, connection: Connection) -> Any:
    """Create a node, or an object without a path."""
    parameters = context.parameters
    object_type = arguments.text(parameters.get("type"), "type")
    given = arguments.mapping(parameters.get("attributes") or {}, "attributes")
    if parameters.get("path") is None:
        return {"object_id": create_object(context, connection, object_type, given)}
    names = ("recursive", "ignore_existing", "ignore_type_mismatch", "lock_existing", "force")
    flags = arguments.flags(parameters, *names)
    path = path_of(context)
    if object_type == "table" and given.get("schema") is not None and not given.get("dynamic"):
        computed.check(parse_schema(given["schema"]), dynamic=False)
    view, placing = view_of(context, connection), nodes.Placing(**flags)
    return {"node_id": nodes.create(view, path, object_type, given, placing)}


def _proxies(context: Context) -> dict[str, Callable[[], list[str]]]:
    http, rpc = context.proxy.live_proxies, context.proxy.live_rpc_proxies
    return {"http_proxies": http, "proxies": http, "rpc_proxies": rpc}


@command("get", partial="rates of queues and consumers are zero; attributes of nodes come whole")
@command("list")
def get_or_list(context: Context) -> Any:
    """Read a node, an attribute or a part of a document, or list the children or keys of one."""
    lists = context.command == "list"
    path, names = path_of(context), _names(context)
    with settled(context) as connection:
        view = view_of(context, connection)
        found = virtual.find(view, path, _proxies(context))
        if found is not None:
            value = found.children(names) if lists else found.get(names)
        else:
            read = reading.list_ if lists else reading.get
            value = read(view, path, names, _max_size(context))
            position = tree.walk(view, path)
            if not position.rest:
                note_access(context, position.id)
    # A bare null would be an empty answer.
    value = yson.YsonEntity() if value is None else value
    return value if arguments.flag(context.parameters, "return_only_value") else {"value": value}


@command("exists")
def exists(context: Context) -> Any:
    """Tell whether a path leads to something."""
    path = path_of(context)
    with settled(context) as connection:
        view = view_of(context, connection)
        found = virtual.find(view, path, _proxies(context))
        value = found.exists() if found is not None else reading.exists(view, path)
    return {"value": value}


@command(
    "set",
    input_type="structured",
    volatile=True,
    partial=f"{_PLAIN}; attributes inside of values change with the whole value",
)
@once
def set_(context: Context, connection: Connection) -> None:
    """Write a scalar, a document, a tree of nodes, an attribute or a part of a value."""
    path = path_of(context)
    value = context.read_value()
    lease = _LEASE.fullmatch(path.text)
    if lease is not None and master_transactions.is_master(lease[1]):
        transactions.set_timeout(context, connection, lease[1], value)
        return
    flags = arguments.flags(context.parameters, "recursive", "force")
    nodes.set_(view_of(context, connection), path, value, **flags)


@command("multiset_attributes", input_type="structured", volatile=True, partial=_PLAIN)
def multiset_attributes(context: Context) -> Any:
    """Write several attributes of one node at once."""
    failures: list[YtError] = []

    @once
    def change(context: Context, connection: Connection) -> None:
        given = arguments.mapping(context.read_value(), "request body")
        view = view_of(context, connection)
        position = tree.walk(view, path_of(context))
        if not position.is_attribute:
            raise YtError('The path of "multiset_attributes" must end with "/@"')
        # Masters run one request for each name, in their order: those before a wrong one stay.
        for name in sorted(given):
            try:
                steps = [*position.rest[1:], *ypath.parse(f"//{name}").steps]
                changes.write(view, tree.load(view, position), steps, given[name])
            except YtError as error:
                failures.append(error)
                break

    answer = change(context)
    if failures:
        raise failures[0]
    return answer


@command("remove", volatile=True)
@once
def remove(context: Context, connection: Connection) -> None:
    """Remove a node, an attribute or a part of a value."""
    path = path_of(context)
    # Recursive by default in the driver; the Python client sends false.
    recursive = arguments.flag(context.parameters, "recursive", default=True)
    force = arguments.flag(context.parameters, "force")
    nodes.remove(view_of(context, connection), path, recursive=recursive, force=force)


@command("copy", volatile=True)
@command("move", volatile=True)
@once
def copy_or_move(context: Context, connection: Connection) -> Any:
    """Copy or move a node with everything below; the id of one that is moved stays."""
    parameters, view = context.parameters, view_of(context, connection)
    source, target = path_of(context, "source_path"), path_of(context, "destination_path")
    options = copying.Options(
        **arguments.flags(parameters, "recursive", "force", "ignore_existing", "lock_existing"),
        pessimistic=arguments.flag(parameters, "pessimistic_quota_check", True),
        preserve=frozenset(
            name.removeprefix("preserve_")
            for name in parameters
            if name.startswith("preserve_") and arguments.flag(parameters, name)
        ),
    )
    if context.command == "move":
        return {"node_id": copying.move(view, source, target, options)}
    note_access(context, tree.reach(view, source, follow_last=False).id)
    return {"node_id": copying.copy(view, source, target, options)}


@command("link", volatile=True)
@once
def link(context: Context, connection: Connection) -> Any:
    """Create a link to a path."""
    parameters = context.parameters
    target = path_of(context, "target_path")
    path = path_of(context, "link_path")
    flags = arguments.flags(parameters, "recursive", "ignore_existing", "lock_existing", "force")
    view = view_of(context, connection)
    if not flags["force"]:
        tree.reach(view, target)
    given = arguments.mapping(parameters.get("attributes") or {}, "attributes")
    given = {**given, "target_path": target.text}
    return {"node_id": nodes.create(view, path, "link", given, nodes.Placing(**flags))}


@command("lock", volatile=True)
@once
def lock(context: Context, connection: Connection) -> Any:
    """Lock a node in a transaction."""
    parameters = context.parameters
    path = path_of(context)
    mode = arguments.text(parameters.get("mode", locks.EXCLUSIVE), "mode")
    if ypath.Mark.ATTRIBUTE in path.steps:
        raise YtError('"Lock" method is not supported', resolve_type="attribute")
    if mode == "none":
        raise YtError('Invalid lock mode "none"')
    if mode not in locks.MODES:
        raise YtError(f'Error parsing ELockMode value "{mode}"')
    keys: list[str | None] = []
    for name in ("child_key", "attribute_key"):
        given = parameters.get(name)
        keys.append(None if given is None else arguments.text(given, name))
        if given is not None and mode != locks.SHARED:
            raise YtError(f'"{name}" can only be specified for shared locks')
    _require_transaction(context)
    view = view_of(context, connection)
    node_id = tree.reach(view, path).id
    permissions.require(view, node_id, "read" if mode == locks.SNAPSHOT else "write")
    wanted = locks.Lock("", node_id, view.tx, mode, keys[0], keys[1], explicit=True)
    taken = locks.take(view, wanted, waitable=arguments.flag(parameters, "waitable"))
    note_access(context, node_id)
    # A waiting lock sees no revision yet.
    revision = view.attribute(node_id, "revision") if taken.acquired else None
    return {"lock_id": taken.id, "node_id": node_id, "revision": revision or yson.YsonUint64(0)}


@command("unlock", volatile=True)
@once
def unlock(context: Context, connection: Connection) -> None:
    """Drop the explicit locks of a transaction on a node."""
    path = path_of(context)
    _require_transaction(context)
    view = view_of(context, connection)
    node_id = tree.reach(view, path).id
    locks.release_explicit(view, node_id)
    master_transactions.destroy_if_unreachable(connection, node_id)


def _require_transaction(context: Context) -> None:
    if arguments.identifier(context.parameters, "transaction_id") is None:
        raise YtError("A valid master transaction is required")


def _max_size(context: Context) -> int | None:
    limit: int | None = arguments.integer(context.parameters, "max_size", None)
    if limit is not None and limit < 0:
        raise YtError('Error parsing parameter "max_size": it must not be negative')
    return limit


def _names(context: Context) -> list[str]:
    wanted = context.parameters.get("attributes")
    if wanted is None:
        return []
    if isinstance(wanted, dict):
        if wanted.get("paths"):
            raise YtError(
                "Paths inside of attributes are not supported by the embedded cluster beside nodes that"
                " are read; name whole attributes"
            )
        wanted = wanted.get("keys") or []
    if not isinstance(wanted, list):
        raise YtError('Error parsing parameter "attributes": expected a list', Code.GENERIC)
    return [arguments.text(name, "attributes") for name in wanted]
