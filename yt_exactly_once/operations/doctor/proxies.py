"""The proxies: the address that was given, and those that the cluster lists."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.operations.doctor.finding import Finding, ok, problem, warning
from yt_exactly_once.ytsaurus.browsing import proxies_of
from yt_exactly_once.ytsaurus.reach import Address, require_proxy

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection

_PATIENCE_SECONDS = 5
_WHY = "Transactions go to one of these proxies directly, from the driver and in some modes from executors"


def examine_address(connection: Connection) -> tuple[Finding, bool]:
    """Return what is at the configured address, and whether that is a proxy."""
    try:
        address = require_proxy(connection.reader)
    except ExactlyOnceError as error:
        why = "Nothing works without a proxy"
        return problem("proxy", error.placed, why, error.remedy), False
    return ok("proxy", f"A proxy answers at {address.url}"), True


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Connect to every proxy that the cluster lists."""
    kind = str(subject.cluster.client_config.get("backend") or "http")
    check = f"{kind} proxies"
    try:
        listed = proxies_of(connection, kind)
    except ExactlyOnceError as error:
        repair = error.remedy or "Ask the administrators of the cluster for its proxies"
        yield problem(check, f"The cluster lists no {kind} proxies: {error.placed}", _WHY, repair)
        return
    if not listed:
        yield problem(
            check,
            f"The cluster lists no {kind} proxies",
            _WHY,
            "Ask the administrators of the cluster for its proxies"
            + (", or use the backend http" if kind == "rpc" else ""),
        )
        return
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(_connect, listed))
    for address, reason in zip(listed, answers, strict=True):
        if reason:
            yield warning(
                check,
                f"No connection to {address}, which the cluster lists: {reason}",
                f"{_WHY}. Each batch that begins there costs an attempt",
                "Open the network from this machine to the proxy, or let the cluster ban it",
            )
    reached = answers.count("")
    if reached:
        yield ok(check, f"{reached} of {len(listed)} {kind} proxies can be reached")


def _connect(listed: str) -> str:
    """Return why there is no connection; empty if there is one."""
    parts = urlsplit(listed if "://" in listed else f"//{listed}")
    address = Address(listed, parts.hostname or "", parts.port or 80)
    try:
        socket.create_connection((address.host, address.port), _PATIENCE_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
