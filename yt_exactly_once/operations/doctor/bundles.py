"""What tables need around them: healthy tablet cell bundles, and accounts with space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from yt_exactly_once.operations.doctor.finding import Finding, Level, ok, problem
from yt_exactly_once.ytsaurus.browsing import attributes_of

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Look at each bundle and account of the query's tables."""
    paths = [*subject.targets, *(queue.path for queue in subject.queues)]
    paths += [queue.consumer for queue in subject.queues if queue.consumer is not None]
    if subject.ledger_path is not None:
        paths.append(subject.ledger_path)
    users: dict[tuple[str, str], str] = {}
    for path in paths:
        found = attributes_of(connection, path, ["tablet_cell_bundle", "account"]) or {}
        for kind, name in found.items():
            users.setdefault((kind, str(name)), path)
    for (kind, name), path in sorted(users.items()):
        if kind == "account":
            yield from _account(connection, name, path)
        else:
            yield from _bundle(connection, name, path)


def _bundle(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    check, place = "tablet cell bundle", f"//sys/tablet_cell_bundles/{name}"
    found = attributes_of(connection, place, ["health"]) or {}
    health = found.get("health")
    if health is None:
        what = f"The health of the bundle {name} of {path} cannot be read"
        yield Finding(check, Level.UNKNOWN, what, "", f"yt get {place}/@health")
    elif health != "good":
        yield problem(
            check,
            f"The bundle {name} of {path} has the health {health}",
            "Its tablets may refuse reads and writes. Queries wait, and give up after their retries",
            f"yt get {place}/@tablet_cell_ids, and ask the administrators of the cluster",
        )
    else:
        yield ok(check, f"The bundle {name} is healthy")


def _account(connection: Connection, name: str, path: str) -> Iterator[Finding]:
    place = f"//sys/accounts/{name}"
    found = attributes_of(connection, place, ["resource_limits", "resource_usage"]) or {}
    exceeded = list(
        _exceeded(found.get("resource_usage") or {}, found.get("resource_limits") or {})
    )
    for resource, used, limit in exceeded:
        yield problem(
            "account",
            f"The account {name} of {path} uses {used} of {limit} {resource}",
            "The cluster refuses writes of an account without space (code 902)",
            f"Free space, or raise the limit: yt set {place}/@resource_limits/{resource} NUMBER",
        )
    if not exceeded:
        yield ok("account", f"The account {name} is within its limits")


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
