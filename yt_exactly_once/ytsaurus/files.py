"""Files in Cypress: written, renamed and removed as a whole, and read in pieces.

A file of one request goes straight to a scratch name, and everything else is written in one master
transaction. So a reader never sees a part of a file under the name it waits for. Every operation is
repeated as a whole while the cluster does not answer, and a repeat never acts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, TypeVar

from yt.wrapper.driver import make_request
from yt.wrapper.ypath import escape_ypath_literal

from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import RequestRefusedError, TableNotFoundError
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.ytsaurus.failures import translated

if TYPE_CHECKING:
    from yt.wrapper import YtClient

    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.ytsaurus.client import Connection

T = TypeVar("T")

PIECE = 16 * 1024 * 1024
"""Bytes of one request."""

_LEASE = timedelta(minutes=5)
"""How long a transaction may live, and so how long what a killed process left holds a lock."""

_POLICY = RetryPolicy(deadline=timedelta(seconds=40), max_wait=timedelta(seconds=2), attempts=100)
"""Ends before a Hadoop client gives up waiting (60 s)."""

_SHOWN = ["type", "uncompressed_data_size", "modification_time"]

_WRITTEN_AS = "written_as"
"""Attribute of a file: the scratch name it was written under, so that a repeated rename finds its work."""


@dataclass(frozen=True)
class Node:
    """What is known of a file or folder.

    Attributes:
        name: last segment of its path; empty where only one node was asked for.
        is_link: neither, but a link to another path.
        size: bytes of a file, 0 of a folder.
        modified: time of the last change.
    """

    name: str
    is_folder: bool
    size: int
    modified: datetime
    is_link: bool = False


def path_of(segments: Sequence[str]) -> str:
    """Return the Cypress path of a sequence of names."""
    return "/" + "".join("/" + escape_ypath_literal(segment) for segment in segments)


class CypressFiles:
    """Files of one cluster; may be used by several threads.

    Paths are sequences of names, without escapes.

    Args:
        emit: gets `retry.scheduled`.
    """

    def __init__(self, connection: Connection, emit: Emitter) -> None:
        self._connection = connection
        self._emit = emit

    def describe(self, segments: Sequence[str]) -> Node | None:
        """Return a node, a link as itself, or `None` where there is none."""
        path = path_of(segments)

        def attempt(client: YtClient) -> Node:
            # `get` of a folder itself would send everything below.
            return _node("", client.get(f"{path}{'&' if segments else ''}/@", attributes=_SHOWN))

        try:
            return self._run("look at", path, attempt)
        except TableNotFoundError:
            return None

    def children(self, segments: Sequence[str]) -> list[Node]:
        """Return what is in a folder.

        Raises:
            TableNotFoundError: there is no such folder.
            RequestRefusedError: there is more in it than the cluster lists.
        """
        path = path_of(segments)
        found = self._run("list", path, lambda client: client.list(path, attributes=_SHOWN))
        if found.attributes.get("incomplete"):
            raise RequestRefusedError(
                f"The folder has more than {len(found)} files, and the cluster lists no more",
                remedy="Let Spark keep fewer batches: spark.sql.streaming.minBatchesToRetain",
                path=path,
            )
        return [_node(str(name), name.attributes) for name in found]

    def read(self, segments: Sequence[str], offset: int, length: int) -> bytes:
        """Return some of a file, less at its end only; raise `TableNotFoundError` if there is none."""
        path = path_of(segments)
        where = {"path": path, "offset": offset, "length": length}
        return self._run("read", path, lambda _client: bytes(self._heavy("read_file", where)))

    def write(
        self,
        segments: Sequence[str],
        content: IO[bytes],
        size: int,
        *,
        scratch: bool,
        replace: bool,
    ) -> None:
        """Write a file with everything above it that is missing.

        Args:
            content: read from its start, as often as it takes.
            size: of the content, in bytes.
            scratch: nobody reads the file before it is renamed, and no other file has its name.

        Raises:
            PathExistsError: a folder is there, or a file that must not be replaced.
        """
        path = path_of(segments)
        attributes = {_WRITTEN_AS: segments[-1]} if scratch else None
        made: set[str] = set()

        def put(client: YtClient, within: dict[str, str]) -> None:
            made.add(
                client.create(
                    "file",
                    path,
                    recursive=True,
                    ignore_existing=replace or scratch,
                    attributes=attributes,
                )
            )
            content.seek(0)
            # An empty file has no piece; one that is replaced must lose what it had.
            for number in range(max(1, -(-size // PIECE))):
                piece = content.read(PIECE)
                target = f"<append=%true>{path}" if number else path
                self._heavy("write_file", {"path": target, **within}, piece)

        def attempt(client: YtClient) -> None:
            if scratch and size <= PIECE:
                put(client, {})
                return
            try:
                with client.Transaction(timeout=_LEASE, ping=False) as transaction:
                    put(client, {"transaction_id": transaction.transaction_id})
            except Exception:
                # The commit of this or an earlier attempt may have been applied. A repeat replaces
                # the file, or finds it: then it must know that the file is its own.
                if not replace and not scratch:
                    with suppress(Exception):
                        if client.get(f"{path}/@id") in made:
                            return
                raise

        self._run("write", path, attempt)

    def rename(
        self, source: Sequence[str], target: Sequence[str], *, scratch: bool, replace: bool
    ) -> None:
        """Give a file or folder another path, at once.

        Args:
            target: where it will be. The folder must be there.
            scratch: as for `write`.

        Raises:
            TableNotFoundError: the source is missing, or the folder of the target is.
            PathExistsError: there is something at the target.
        """
        path, other = path_of(source), path_of(target)

        def attempt(client: YtClient) -> None:
            try:
                client.move(path, other, force=replace)
            except Exception:
                # An earlier attempt may have been applied without an answer.
                if scratch:
                    with suppress(Exception):
                        written_as = client.get(f"{other}/@{_WRITTEN_AS}")
                        if written_as == source[-1] and not client.exists(path):
                            return
                raise

        self._run("rename", path, attempt, target=other)

    def remove(self, segments: Sequence[str], *, recursive: bool) -> bool:
        """Remove a file or folder; return whether it was there.

        Raises:
            RequestRefusedError: a folder is not empty, and `recursive` is not set.
        """
        path = path_of(segments)
        try:
            self._run("remove", path, lambda client: client.remove(path, recursive=recursive))
        except TableNotFoundError:
            return False
        return True

    def make_folder(self, segments: Sequence[str]) -> None:
        """Create a folder and what is missing above it; raise `PathExistsError` if a file is there."""
        path = path_of(segments)
        self._run(
            "create",
            path,
            lambda client: client.create("map_node", path, recursive=True, ignore_existing=True),
        )

    def _heavy(self, command: str, parameters: dict[str, Any], data: bytes | None = None) -> Any:
        """Send a request that carries data to a proxy that is chosen once, and not for each request."""
        action = "read the file" if data is None else "write the file"
        where = str(parameters["path"])
        with self._connection.sending() as sender, translated(action, path=where):
            return make_request(
                command, parameters, data=data, use_heavy_proxy=True, client=sender.client
            )

    def _run(self, action: str, path: str, call: Callable[[YtClient], T], **where: Any) -> T:
        def attempt(_number: int) -> T:
            with translated(f"{action} the path", path=path, **where):
                return call(self._connection.reader)

        return run_attempts(attempt, _POLICY, self._emit)


def _node(name: str, attributes: Any) -> Node:
    return Node(
        name=name,
        is_folder=attributes["type"] == "map_node",
        # A folder has the attribute too: of everything below it.
        size=int(attributes["uncompressed_data_size"]) if attributes["type"] == "file" else 0,
        modified=datetime.fromisoformat(attributes["modification_time"]),
        is_link=attributes["type"] == "link",
    )
