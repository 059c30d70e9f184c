"""The cluster around the tables: its proxies, its clock, permissions, tablet cell bundles, and accounts."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yt_exactly_once import advice
from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.errors import AccessError, ExactlyOnceError
from yt_exactly_once.operations.doctor.subject import (
    Finding,
    Subject,
    about,
    note,
    ok,
    problem,
    refused,
    unknown,
    warning,
)
from yt_exactly_once.ytsaurus.browsing import attributes_of, may, now, parent, proxies_of, user_of
from yt_exactly_once.ytsaurus.reach import require_proxy

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

Need = tuple[str, str, str]
"""A path, a permission on it, and what the query does with it."""

_KEPT = {
    "ledger": "Each batch reads and writes the ledger",
    "producer table": "Tasks keep their sessions there",
    "dead-letter table": "Rejected rows are written there",
}
_TOLERATED_SECONDS = 5
_PATIENCE_SECONDS = 5
_ASK = "Ask the administrators of the cluster for its proxies"
_WHY = "Transactions go to one of these proxies directly, from the driver and in some modes from executors"


def examine_proxies(kind: str, connection: Connection) -> Iterator[Finding]:
    """Connect to every proxy of a kind that the cluster lists."""
    try:
        listed = proxies_of(connection, kind)
    except ExactlyOnceError as error:
        what = f"The cluster lists no {kind} proxies: {error.placed}"
        yield problem(what, _WHY, error.remedy or _ASK)
        return
    if not listed:
        repair = _ASK + (", or use the backend http" if kind == "rpc" else "")
        yield problem(f"The cluster lists no {kind} proxies", _WHY, repair)
        return
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(_connect, listed))
    for address, reason in zip(listed, answers, strict=True):
        if reason:
            yield warning(
                f"No connection to {address}, which the cluster lists: {reason}",
                f"{_WHY}. Each batch that begins there costs an attempt",
                "Open the network from this machine to the proxy, or let the cluster ban it",
            )
    reached = answers.count("")
    if reached:
        yield ok(f"{reached} of {len(listed)} {kind} proxies can be reached")


def _connect(listed: str) -> str:
    """Return why there is no connection; empty if there is one."""
    split = urlsplit(listed if "://" in listed else f"//{listed}")
    try:
        socket.create_connection(
            (split.hostname or "", split.port or 80), _PATIENCE_SECONDS
        ).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def examine_clock(connection: Connection) -> Iterator[Finding]:
    """Compare the clocks, give or take the time of the request."""
    before = time.time()
    theirs = now(connection)
    after = time.time()
    # The cluster counts whole seconds.
    skew = max(before - (theirs + 1), theirs - after, 0.0)
    if skew > _TOLERATED_SECONDS:
        yield warning(
            f"The clocks of this machine and of the cluster differ by {skew:.0f} s",
            "Exactly-once does not depend on it. Lags in seconds, committed_at in the ledger and watermarks "
            "on include_timestamp are wrong by as much",
            "timedatectl set-ntp true, or synchronise the clock of this machine in another way",
        )
    else:
        yield ok("The clocks of this machine and of the cluster agree")


def examine_bundles(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Look at each bundle and account of the query's tables."""
    paths = [*subject.written, *(queue.path for queue in subject.queues)]
    paths += [queue.consumer for queue in subject.queues if queue.consumer is not None]
    paths += (*subject.kept.values(), *subject.tombstones)
    looks = {"account": _account, "tablet_cell_bundle": _bundle}
    users: dict[tuple[str, str], str] = {}
    for path in paths:
        found = attributes_of(connection, path, list(looks)) or {}
        for kind, name in found.items():
            users.setdefault((kind, str(name)), path)
    for (kind, name), path in sorted(users.items()):
        yield from about(kind.replace("_", " "), looks[kind](connection, name, path))


def _bundle(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    node = f"//sys/tablet_cell_bundles/{name}"
    found = attributes_of(connection, node, ["health"]) or {}
    health = found.get("health")
    if health is None:
        what = f"The health of the bundle {name} of {path} cannot be read"
        yield unknown(what, "", f"yt get {node}/@health")
    elif health != "good":
        yield problem(
            f"The bundle {name} of {path} has the health {health}",
            "Its tablets may refuse reads and writes. Queries wait, and give up after their retries",
            f"yt get {node}/@tablet_cell_ids, and ask the administrators of the cluster",
        )
    else:
        yield ok(f"The bundle {name} is healthy")


def _account(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    node = f"//sys/accounts/{name}"
    found = attributes_of(connection, node, ["resource_limits", "resource_usage"]) or {}
    exceeded = list(
        _exceeded(found.get("resource_usage") or {}, found.get("resource_limits") or {})
    )
    for resource, used, limit in exceeded:
        yield problem(
            f"The account {name} of {path} uses {used} of {limit} {resource}",
            "The cluster refuses writes of an account without space (code 902)",
            f"Free space, or raise the limit: yt set {node}/@resource_limits/{resource} NUMBER",
        )
    if not exceeded:
        yield ok(f"The account {name} is within its limits")


def _exceeded(
    usage: Mapping[str, Any], limits: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, int, int]]:
    """Yield the resources that are used up, with what is used and what is allowed."""
    for resource, limit in limits.items():
        used = usage.get(resource)
        if isinstance(limit, dict) and isinstance(used, dict):
            yield from _exceeded(used, limit, f"{prefix}{resource}/")
        elif isinstance(limit, int) and isinstance(used, int) and used >= limit > 0:
            yield f"{prefix}{resource}", used, limit


def examine_entry(subject: Subject, connection: Connection) -> Generator[Finding, None, str | None]:
    """Say what is at the address and whose token it is; return the user if the cluster accepts it."""
    try:
        url = require_proxy(connection.reader)
    except ExactlyOnceError as error:
        yield refused(error, "Nothing works without a proxy", "proxy")
        return None
    yield ok(f"A proxy answers at {url}", check="proxy")
    token = subject.cluster.token
    try:
        user = user_of(connection)
    except AccessError as error:
        what = error.placed if token else "No token is set, and the proxy wants one"
        yield problem(what, "The cluster does not know who asks", error.remedy, check="token")
        return None
    except ExactlyOnceError as error:
        yield refused(error, "No query runs while the proxy does not answer", "token")
        return None
    if token is None:
        yield note(
            f"No token is set, and the cluster takes this for the user {user}", check="token"
        )
    else:
        yield ok(f"The token belongs to the user {user}", check="token")
    return user


def examine_permissions(subject: Subject, connection: Connection, user: str) -> Iterator[Finding]:
    """Ask the cluster for each permission that the query needs."""
    needs = list(_needs(subject, connection))
    granted = 0
    for path, permission, purpose in needs:
        try:
            allowed = may(connection, user, permission, path)
        except ExactlyOnceError as error:
            yield unknown(error.placed, "", error.remedy)
            continue
        granted += allowed
        if not allowed:
            what = f"{user} lacks the permission {permission} on {path}"
            yield problem(what, purpose, advice.grant(user, permission, path))
    yield from _may_create(subject, connection, user)
    if needs and granted == len(needs):
        yield ok(f"{user} has the {len(needs)} permissions that the query needs")
    yield from about("ledger rights", _forgers(subject, connection, user))


def _may_create(subject: Subject, connection: Connection, user: str) -> Iterator[Finding]:
    """Say where a query whose rows name their tables could create none; it needs that with `create` only."""
    for pattern in filter(None, map(PathPattern.of, subject.targets)):
        for path, permission, _ in _to_create(connection, f"{pattern.folder}/any"):
            if not may(connection, user, permission, path):
                yield note(
                    f"{user} lacks the permission {permission} on {path}, which the option create of the "
                    f"target needs for new tables in {pattern.folder}",
                    "Without the option nothing is created",
                    advice.grant(user, permission, path),
                )


def _forgers(subject: Subject, connection: Connection, user: str) -> Iterator[Finding]:
    """Name those who may write a target, and the ledger too though they neither run nor operate the query."""
    ledger = subject.path_of("ledger")
    if ledger is None:
        return
    writers = _allowed(connection, ledger, "write")
    trusted = _allowed(connection, ledger, "administer") | {user}
    for target in subject.written:
        forgers = sorted((writers & _allowed(connection, target, "write")) - trusted)
        if forgers:
            names = ", ".join(forgers)
            yield warning(
                f"{names} may write {target}, and the ledger {ledger} too",
                "A forged entry of the ledger makes the sink skip a batch, without an error",
                f"yt-exactly-once create-ledger {' '.join(map(quote, subject.targets))} --writer "
                f"{quote(user)}",
            )


def _allowed(connection: Connection, path: str, permission: str) -> set[str]:
    """Return the users and groups that the access control of an object names with a permission."""
    found = attributes_of(connection, path, ["effective_acl"]) or {}
    return {
        str(subject)
        for entry in found.get("effective_acl", ())
        if entry["action"] == "allow" and permission in entry["permissions"]
        for subject in entry["subjects"]
    }


def _needs(subject: Subject, connection: Connection) -> Iterator[Need]:
    paths: dict[str, tuple[str, str]] = {}
    for queue in subject.queues:
        paths[queue.path] = "read", "The source reads the queue"
        if queue.consumer is not None:
            paths[queue.consumer] = "read write", "Source and sink read and move the consumer"
    paths |= dict.fromkeys(subject.written, ("read write", "The sink reads and writes it"))
    paths |= {path: ("read write", _KEPT[name]) for name, path in subject.kept.items()}
    paths |= dict.fromkeys(
        subject.tombstones, ("read write", "Each batch compares its changes with it")
    )
    if subject.claims is not None:
        paths[subject.claims] = "read write", "Tasks claim their partitions there"
    for path, (permissions, purpose) in paths.items():
        if attributes_of(connection, path, []) is not None:
            yield from ((path, permission, purpose) for permission in permissions.split())
        elif path in {*subject.kept.values(), *subject.tombstones}:
            # A target is the user's to create; these are created by the sink.
            yield from _to_create(connection, path)


def _to_create(connection: Connection, path: str) -> Iterator[Need]:
    """Yield what creating a table at the path needs, on the nearest directory that is there."""
    folder = parent(path)
    while folder != "/" and attributes_of(connection, folder, []) is None:
        folder = parent(folder)
    yield folder, "write", f"The sink creates {path} on its first batch"
    yield folder, "mount", f"The sink mounts {path} on its first batch"
    found = attributes_of(connection, folder, ["account"]) or {}
    if "account" in found:
        account = f"//sys/accounts/{found['account']}"
        yield account, "use", f"{path} will belong to this account"
