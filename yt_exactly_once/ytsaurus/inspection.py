"""Reads for people who look for a fault: users, permissions, attributes, time. No query needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt.wrapper import get_user_name
from yt.wrapper.http_helpers import make_request_with_retries

from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.reach import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yt_exactly_once.ytsaurus.client import Connection

_SECONDS_SHIFT = 30
"""Low bits of a YTsaurus timestamp that count within a second."""


def attributes_of(connection: Connection, path: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Return attributes of the object at a path, those that it has; `None` when nothing is there."""
    with translated("read attributes", path=path):
        if not connection.reader.exists(path):
            return None
        found = connection.reader.get(path, attributes=list(names))
    return dict(found.attributes)


def user_of(connection: Connection) -> str:
    """Return the user that the token belongs to; HTTP only."""
    with translated("ask for the user of the token"):
        return str(get_user_name(client=connection.reader))


def may(connection: Connection, user: str, permission: str, path: str) -> bool:
    """Check whether the user has a permission on what is at the path."""
    with translated("check a permission", path=path):
        answer = connection.reader.check_permission(user, permission, path)
    return str(answer["action"]) == "allow"


def cluster_time(connection: Connection) -> int:
    """Return the seconds since 1970 by the clock that orders transactions."""
    with translated("ask for the time"):
        return int(connection.reader.generate_timestamp()) >> _SECONDS_SHIFT


def proxies_of(connection: Connection, kind: str) -> list[str]:
    """Return the addresses of the live proxies.

    Args:
        connection: the cluster.
        kind: `http` or `rpc`.
    """
    url = address_of(connection.reader).url
    listing = "/hosts" if kind == "http" else "/api/v4/discover_proxies?type=rpc"
    with translated("list the proxies", proxy=url):
        answer = make_request_with_retries("get", url + listing, client=connection.reader).json()
    return [str(each) for each in (answer if kind == "http" else answer["proxies"])]
