"""Reading what is there: attributes, folders, small tables, registrations, users, the cluster's clock.

For tools, and for the checks before the first batch. No batch of a query reads anything here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from yt.wrapper import YsonFormat, get_user_name
from yt.wrapper.errors import YtResolveError, create_response_error
from yt.wrapper.http_helpers import make_request_with_retries

from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.reach import url_of
from yt_exactly_once.ytsaurus.sender import BINARY

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

T = TypeVar("T")
K = TypeVar("K")

_MOST_REQUESTS = 200
_POOL = ThreadPoolExecutor(8, thread_name_prefix="yt-look")
"""Its threads start on demand, and keep their clients."""

_WHOLE = {
    **dict.fromkeys(("input_row_limit", "output_row_limit"), 1_000_000),
    "fail_on_incomplete_result": True,
    "output_format": BINARY,
}
_LAST_NAME = re.compile(r"/(?:[^/\\]|\\.)*$", re.DOTALL)
_MOST_CHILDREN = 100_000
_CLOCKS_SECONDS = 60.0
"""The clock of rows and that of tables may differ by so much."""

COUNTER_BITS = 30
"""Low bits of a timestamp of the cluster that count within a second."""


class Cluster(NamedTuple):
    """What tells a cluster from others.

    Attributes:
        name: as it is configured; consumer rows are keyed by it, and two clusters may have the same.
        id: object id of `//sys`. A cluster makes it when it is initialized, and a part of it is random.
    """

    name: str
    id: str


def cluster_of(connection: Connection) -> Cluster:
    """Return what tells the cluster from others, with one request."""
    wanted = [
        request("get", path=f"//sys/@{name}", return_only_value=True)
        for name in ("cluster_name", "id")
    ]
    with translated("tell the cluster from others"):
        results = connection.reader.execute_batch(wanted)["results"]
        return Cluster(*(str(output(result)) for result in results))


def attributes_of(connection: Connection, path: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Return some attributes of the object at a path, those that it has; `None` when nothing is there."""
    with translated("read attributes", path=path):
        try:
            # Of a folder with much in it, one child is enough.
            found = connection.reader.get(path, attributes=list(names), max_size=1)
        except YtResolveError:
            return None
    return {name: found.attributes[name] for name in names if name in found.attributes}


def request(command: str, **parameters: Any) -> dict[str, Any]:
    """Return one of several requests that are sent together."""
    return {"command": command, "parameters": parameters}


def output(result: Mapping[str, Any]) -> Any:
    """Return what one of several requests returned; raise `YtError` if it failed."""
    if "error" in result:
        raise create_response_error(result["error"])
    return result["output"]


def answers(connection: Connection, requests: Mapping[K, Mapping[str, Any]]) -> dict[K, Any]:
    """Send light requests together, and return what each of them returned, or its `ExactlyOnceError`."""
    found: dict[K, Any] = {}
    keys = list(requests)
    for start in range(0, len(keys), _MOST_REQUESTS):
        sent = {key: requests[key] for key in keys[start : start + _MOST_REQUESTS]}
        with translated("look at several objects"):
            results = connection.reader.execute_batch(list(sent.values()))["results"]
        for (key, one), result in zip(sent.items(), results, strict=True):
            path = one["parameters"].get("path")
            try:
                with translated(f"{one['command'].replace('_', ' ')}", path=path):
                    found[key] = output(result)
            except ExactlyOnceError as error:
                found[key] = error
    return found


def or_raise(answer: T | ExactlyOnceError) -> T:
    """Return an answer; raise it if it is an error."""
    if isinstance(answer, ExactlyOnceError):
        raise answer
    return answer


def attributes_of_all(
    connection: Connection, paths: Iterable[str], names: Collection[str]
) -> dict[str, dict[str, Any] | ExactlyOnceError | None]:
    """Return by path what `attributes_of` returns, or the error that it raises."""
    given = {"attributes": list(names), "max_size": 1, "return_only_value": True}
    found = answers(connection, {path: request("get", path=path, **given) for path in paths})
    for path, answer in found.items():
        if not isinstance(answer, ExactlyOnceError):
            has = answer.attributes
            found[path] = {name: has[name] for name in names if name in has}
        elif isinstance(answer.__cause__, YtResolveError):
            found[path] = None
    return found


def side_by_side(calls: Mapping[K, Callable[[], T]]) -> dict[K, T | ExactlyOnceError]:
    """Make calls in threads, and return what each of them returned, or its `ExactlyOnceError`."""

    def made(call: Callable[[], T]) -> T | ExactlyOnceError:
        try:
            return call()
        except ExactlyOnceError as error:
            return error

    return dict(zip(calls, _POOL.map(made, calls.values()), strict=True))


def children(
    connection: Connection, folders: Iterable[str], names: Collection[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return what each folder holds: the name of each child as `name`, and some of its attributes."""
    given = {"attributes": list(names), "max_size": _MOST_CHILDREN, "return_only_value": True}
    asked = {folder: request("list", path=folder, **given) for folder in folders}
    return {
        folder: [{**node.attributes, "name": str(node)} for node in or_raise(answer)]
        for folder, answer in answers(connection, asked).items()
    }


def marked(connection: Connection, paths: Iterable[str], name: str) -> Iterator[str]:
    """Yield the paths of what lies beside some paths and has an attribute."""
    folders = sorted({parent(path) for path in paths})
    for folder, held in children(connection, folders, [name]).items():
        yield from (f"{folder}/{escaped(child['name'])}" for child in held if name in child)


def parent(path: str) -> str:
    """Return the path of the node above; a slash in a name has a backslash before it."""
    return _LAST_NAME.sub("", path)


def escaped(name: str) -> str:
    """Return the name of a child as a path has it."""
    return "".join("\\" + char if char in "\\/@&*[{" else char for char in name)


def all_rows(connection: Connection, path: str) -> list[dict[str, Any]]:
    """Return all rows of a small sorted table; raise `RequestRefusedError` if it has over a million."""
    rows = selected(connection, f"* from [{path}]", path=path)
    return list(YsonFormat().load_rows(BytesIO(rows)))


def registration(connection: Connection, queue: str, consumer: str) -> Any:
    """Return how a consumer is registered for a queue, with `vital`; nothing if it is not."""
    with translated("read the registrations", queue=queue, consumer=consumer):
        found = connection.reader.list_queue_consumer_registrations(
            queue_path=queue, consumer_path=consumer
        )
        return next(iter(found), None)


def now(connection: Connection) -> float:
    """Return the seconds since 1970 by the clock that orders transactions; it counts whole ones."""
    with translated("ask for the time"):
        return float(int(connection.reader.generate_timestamp()) >> COUNTER_BITS)


def row_time(timestamp: int) -> float:
    """Return a value of the column `$timestamp` in seconds since 1970."""
    return float(timestamp >> COUNTER_BITS)


def is_copied(first_row: float, creation_time: str) -> bool:
    """Return whether a table is a copy: its first row, by `row_time`, is older than itself.

    A table that is moved keeps its time of creation.
    """
    created = datetime.fromisoformat(creation_time).timestamp()
    return first_row + _CLOCKS_SECONDS < created


def selected(connection: Connection, query: str, *, path: str | None = None) -> bytes:
    """Return rows of a query as binary YSON; raise `RequestRefusedError` if it reads over a million."""
    with connection.sending() as sender, translated("read rows", path=path):
        return sender.send("select_rows", {**_WHOLE, "query": query})


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
    """Return the addresses of the live proxies of a kind, `http` or `rpc`."""
    url = url_of(connection.reader)
    listing = "/hosts" if kind == "http" else "/api/v4/discover_proxies?type=rpc"
    with translated("list the proxies", proxy=url):
        answer = make_request_with_retries("get", url + listing, client=connection.reader).json()
    return [str(each) for each in (answer if kind == "http" else answer["proxies"])]
