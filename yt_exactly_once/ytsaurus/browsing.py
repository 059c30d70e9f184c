"""Reading what is there: attributes, folders, small tables, registrations, users, the cluster's clock.

For tools, and for the checks before the first batch. No batch of a query reads anything here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt.wrapper import YsonFormat, get_user_name
from yt.wrapper.errors import YtResolveError
from yt.wrapper.http_helpers import make_request_with_retries

from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.reach import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from yt_exactly_once.ytsaurus.client import Connection

_MOST_ROWS = 1_000_000
_MOST_CHILDREN = 100_000
_COUNTER_BITS = 30
"""Low bits of a timestamp of the cluster that count within a second."""


def attributes_of(connection: Connection, path: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Return some attributes of the object at a path, those that it has; `None` when nothing is there."""
    with translated("read attributes", path=path):
        try:
            # Of a folder with much in it, one child is enough.
            found = connection.reader.get(path, attributes=list(names), max_size=1)
        except YtResolveError:
            return None
    return {name: found.attributes[name] for name in names if name in found.attributes}


def children(connection: Connection, folder: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the names of what a folder holds, each as `name` together with some attributes."""
    with translated("list the folder", path=folder):
        found = connection.reader.list(folder, attributes=list(names), max_size=_MOST_CHILDREN)
        return [{**node.attributes, "name": str(node)} for node in found]


def all_rows(connection: Connection, path: str) -> list[dict[str, Any]]:
    """Return all rows of a small sorted table.

    Raises:
        RequestRefusedError: it has over a million.
    """
    with translated("read the table", path=path):
        return list(
            connection.reader.select_rows(
                f"* from [{path}]",
                input_row_limit=_MOST_ROWS,
                output_row_limit=_MOST_ROWS,
                fail_on_incomplete_result=True,
                format=YsonFormat(),
            )
        )


def registration(connection: Connection, queue: str, consumer: str) -> Mapping[str, Any] | None:
    """Return how a consumer is registered for a queue, with `vital`; nothing if it is not."""
    with translated("read the registrations", queue=queue, consumer=consumer):
        found = connection.reader.list_queue_consumer_registrations(
            queue_path=queue, consumer_path=consumer
        )
        return next((dict(one) for one in found), None)


def now(connection: Connection) -> float:
    """Return the seconds since 1970 by the clock that orders transactions; it counts whole ones."""
    with translated("ask for the time"):
        return float(int(connection.reader.generate_timestamp()) >> _COUNTER_BITS)


def row_time(timestamp: int) -> float:
    """Return a value of the column `$timestamp` in seconds since 1970."""
    return float(timestamp >> _COUNTER_BITS)


def selected(connection: Connection, query: str, *, limit: int) -> bytes:
    """Return the rows of a query in YTsaurus QL, as a binary YSON list fragment.

    Args:
        connection: the cluster.
        query: without `limit`.
        limit: most rows to read and to return.
    """
    with translated("read rows"):
        answer = connection.reader.select_rows(
            f"{query} limit {limit}",
            input_row_limit=_MOST_ROWS,
            output_row_limit=_MOST_ROWS,
            format=YsonFormat(format="binary"),
            raw=True,
        )
        return bytes(answer.read())


def user_of(connection: Connection) -> str:
    """Return the user that the token belongs to; HTTP only."""
    with translated("ask for the user of the token"):
        return str(get_user_name(client=connection.reader))


def may(connection: Connection, user: str, permission: str, path: str) -> bool:
    """Check whether the user has a permission on what is at the path."""
    with translated("check a permission", path=path):
        answer = connection.reader.check_permission(user, permission, path)
    return str(answer["action"]) == "allow"


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
