"""Permissions of the token's user, as docs/how-to/run.md lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from yt_exactly_once import advice
from yt_exactly_once.errors import AccessError, ExactlyOnceError
from yt_exactly_once.operations.doctor.finding import Finding, Level, ok, problem
from yt_exactly_once.ytsaurus.browsing import attributes_of, may, user_of

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection

_CHECK = "permission"


class _Need(NamedTuple):
    """A permission that the query needs."""

    path: str
    permission: str
    purpose: str


def examine_token(subject: Subject, connection: Connection) -> tuple[Finding, str | None]:
    """Return whose token it is, and the name of that user if the cluster accepts it."""
    try:
        user = user_of(connection)
    except AccessError as error:
        what = error.placed if subject.cluster.token else "No token is set, and the proxy wants one"
        why = "The cluster does not know who asks"
        return problem("token", what, why, error.remedy), None
    except ExactlyOnceError as error:
        why = "No query runs while the proxy does not answer"
        return problem("token", error.placed, why, error.remedy), None
    if subject.cluster.token is None:
        what = f"No token is set, and the cluster takes this for the user {user}"
        return Finding("token", Level.NOTE, what), user
    return ok("token", f"The token belongs to the user {user}"), user


def examine(subject: Subject, connection: Connection, user: str) -> Iterator[Finding]:
    """Ask the cluster for each permission that the query needs."""
    needs = list(_needs(subject, connection))
    missing = 0
    for need in needs:
        try:
            allowed = may(connection, user, need.permission, need.path)
        except ExactlyOnceError as error:
            yield Finding(_CHECK, Level.UNKNOWN, error.placed, "", error.remedy)
            continue
        if not allowed:
            missing += 1
            what = f"{user} lacks the permission {need.permission} on {need.path}"
            repair = advice.grant(user, need.permission, need.path)
            yield problem(_CHECK, what, need.purpose, repair)
    if needs and not missing:
        yield ok(_CHECK, f"{user} has the {len(needs)} permissions that the query needs")
    yield from _forgers(subject, connection, user)


def _forgers(subject: Subject, connection: Connection, user: str) -> Iterator[Finding]:
    """Name those who may write a target, and the ledger too though they neither run nor operate the query."""
    if subject.ledger_path is None:
        return
    writers = _allowed(connection, subject.ledger_path, "write")
    trusted = _allowed(connection, subject.ledger_path, "administer") | {user}
    for target in subject.targets:
        forgers = sorted((writers & _allowed(connection, target, "write")) - trusted)
        if forgers:
            names = ", ".join(forgers)
            yield Finding(
                "ledger rights",
                Level.WARNING,
                f"{names} may write {target}, and the ledger {subject.ledger_path} too",
                "A forged entry of the ledger makes the sink skip a batch, without an error",
                f"yt-exactly-once create-ledger {' '.join(subject.targets)} --writer {user}",
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


def _needs(subject: Subject, connection: Connection) -> Iterator[_Need]:
    for queue in subject.queues:
        yield from _of(connection, queue.path, ("read",), "The source reads the queue")
        if queue.consumer is not None:
            purpose = "Source and sink read and move the consumer"
            yield from _of(connection, queue.consumer, ("read", "write"), purpose)
    kept = dict.fromkeys(subject.targets, "The sink reads and writes it")
    if subject.ledger_path is not None:
        kept[subject.ledger_path] = "Each batch reads and writes the ledger"
    if subject.mode.traits.has_sessions and subject.producer_path is not None:
        kept[subject.producer_path] = "Tasks keep their sessions there"
    if subject.dead_letter is not None:
        kept[subject.dead_letter] = "Rejected rows are written there"
    for path, purpose in kept.items():
        if not connection_has(connection, path):
            # A target is the user's to create; the others are created by the sink.
            if path not in subject.targets:
                yield from _to_create(connection, path)
            continue
        yield from _of(connection, path, ("read", "write"), purpose)


def connection_has(connection: Connection, path: str) -> bool:
    """Check whether something is at a path."""
    return attributes_of(connection, path, []) is not None


def _of(
    connection: Connection, path: str, permissions: tuple[str, ...], purpose: str
) -> Iterator[_Need]:
    if connection_has(connection, path):
        for permission in permissions:
            yield _Need(path, permission, purpose)


def _to_create(connection: Connection, path: str) -> Iterator[_Need]:
    """Yield what creating a table at the path needs, on the nearest directory that is there."""
    parent = path.rpartition("/")[0]
    while parent != "/" and not connection_has(connection, parent):
        parent = parent.rpartition("/")[0]
    yield _Need(parent, "write", f"The sink creates {path} on its first batch")
    yield _Need(parent, "mount", f"The sink mounts {path} on its first batch")
    found = attributes_of(connection, parent, ["account"]) or {}
    if "account" in found:
        account = f"//sys/accounts/{found['account']}"
        yield _Need(account, "use", f"{path} will belong to this account")
