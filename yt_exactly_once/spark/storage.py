"""Small files of a checkpoint, read and written without a JVM: on a disk, HDFS, S3 or YTsaurus.

What PyArrow reaches, the gateway for checkpoints on YTsaurus, and Cypress itself for locations that only
Spark sends through the gateway. Another file system is refused by name, before anything is read.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from pyarrow import fs

from yt_exactly_once import advice
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import (
    AccessError,
    ClusterUnavailableError,
    ConfigError,
    RequestRefusedError,
    TableNotFoundError,
)
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.files import PIECE, CypressFiles

SCHEME = "webhdfs"

_PREFIX = "/webhdfs/v1"
_TIMEOUT_SECONDS = 60.0
_POLICY = RetryPolicy(attempts=30, deadline=timedelta(seconds=60), max_wait=timedelta(seconds=2))
"""As long as Spark's own client waits for a gateway with the settings of `Checkpoints.configure`."""

CYPRESS_SCHEME = "yt"
"""Of a location that names its Cypress path alone: `yt:///home/app/checkpoint`."""

_REMOTE = {"hdfs": "hdfs", "viewfs": "viewfs", "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""Schemes of Hadoop, and what PyArrow calls them."""

_PLAIN = "/@:+=,;&!$'()*~"
"""What the path of a URL may have as it is."""


class Storage(Protocol):
    """The files of one checkpoint, by their path in it."""

    def read(self, name: str) -> str:
        """Return the text of a file; raise `FileNotFoundError` if there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or with `""` in the checkpoint itself; none without a folder."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and its folder."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; raise `FileNotFoundError` if there is none."""


class _ArrowFolder:
    """A checkpoint on a file system of PyArrow, such as a disk."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def read(self, name: str) -> str:
        with self._files.open_input_stream(self._path(name)) as stream:
            content: bytes = stream.read()
        return content.decode()

    def names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return [str(found.base_name) for found in self._files.get_file_info(selector)]

    def write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)

    def rename(self, old: str, new: str) -> None:
        self._files.move(self._path(old), self._path(new))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class _CypressFolder:
    """A checkpoint in Cypress; the root has the names on the way to it."""

    def __init__(self, files: CypressFiles, root: Sequence[str]) -> None:
        self._files = files
        self._root = root

    def read(self, name: str) -> str:
        try:
            # Spark's logs and our notes are far smaller than that.
            return self._files.read(self._segments(name), 0, PIECE).decode()
        except TableNotFoundError as error:
            raise FileNotFoundError(name) from error

    def names(self, folder: str) -> list[str]:
        try:
            return [node.name for node in self._files.children(self._segments(folder))]
        except TableNotFoundError:
            return []

    def write(self, name: str, content: bytes) -> None:
        segments = self._segments(name)
        self._files.write(segments, BytesIO(content), len(content), scratch=False, replace=True)

    def rename(self, old: str, new: str) -> None:
        try:
            self._files.rename(
                self._segments(old), self._segments(new), scratch=False, replace=True
            )
        except TableNotFoundError as error:
            raise FileNotFoundError(old) from error

    def _segments(self, name: str) -> list[str]:
        return [segment for segment in (*self._root, *name.split("/")) if segment]


class WebHdfsFolder:
    """A checkpoint behind a gateway that speaks WebHDFS.

    Its location has a secret, so no error shows more of it than the address. A location without a valid
    address is a `ConfigError`.

    Args:
        policy: how long an absent gateway is waited for.
    """

    def __init__(self, location: str, policy: RetryPolicy = _POLICY) -> None:
        split = urlsplit(location)
        self.address = split.netloc.rpartition("@")[2]
        try:
            _ = split.port
        except ValueError:
            raise ConfigError(
                "The location of the checkpoint has no valid port",
                remedy=advice.GATEWAY_LOCATION,
                gateway=self.address,
            ) from None
        self._root = split.path.rstrip("/")
        self._policy = policy

    def read(self, name: str) -> str:
        """Return the text of a file; `AccessError` for a wrong secret or path; retry an absent gateway."""
        return self._ask("GET", name, "OPEN").decode()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; raises as `read` does."""
        try:
            found = json.loads(self._ask("GET", folder, "LISTSTATUS"))
        except FileNotFoundError:
            return []
        return [file["pathSuffix"] for file in found["FileStatuses"]["FileStatus"]]

    def write(self, name: str, content: bytes) -> None:
        """Write a file; raises as `read` does."""
        self._ask("PUT", name, "CREATE", content, overwrite="true", data="true")

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; raises as `read` does."""
        target = f"{self._root}/{new}"
        self._ask("PUT", old, "RENAME", destination=target, renameoptions="OVERWRITE")

    def _ask(
        self, method: str, name: str, operation: str, body: bytes = b"", **query: str
    ) -> bytes:
        path = quote(f"{self._root}/{name}".rstrip("/"))
        target = f"{_PREFIX}{path}?{urlencode({'op': operation, **query})}"
        return run_attempts(
            lambda _number: self._ask_once(method, target, body), self._policy, emitter()
        )

    def _ask_once(self, method: str, target: str, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(method, target, body)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterUnavailableError(
                f"The gateway of the checkpoint does not answer: {error}",
                remedy="Start it: yt-exactly-once checkpoints --root PATH. Or correct the address in the "
                "location",
                gateway=self.address,
            ) from error
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._error(answer.status, content)
        return content

    def _error(self, status: int, content: bytes) -> Exception:
        try:
            described: dict[str, Any] = json.loads(content)["RemoteException"]
            text = str(described["message"]).rstrip(".")
            name = described["exception"]
        except (ValueError, LookupError, TypeError):
            return RequestRefusedError(
                f"What answers with HTTP status {status} is no gateway for checkpoints",
                remedy="Correct the address in the location",
                gateway=self.address,
            )
        if status == http.HTTPStatus.NOT_FOUND:
            return FileNotFoundError(text)
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            return ClusterUnavailableError(text, gateway=self.address)
        kind = AccessError if name == "AccessControlException" else RequestRefusedError
        return kind(text, gateway=self.address)


def shown(location: str) -> str:
    """Return a `checkpointLocation` for an error: without the secret of a gateway, or a password."""
    split = urlsplit(location)
    if split.scheme in ("", "file"):
        return location
    # The key of S3 may contain slashes, so the last @ counts, wherever it is.
    address, slash, path = f"{split.netloc}{split.path}".rpartition("@")[2].partition("/")
    if split.scheme in (SCHEME, f"s{SCHEME}"):
        # The first name is the secret.
        path = "/".join(("...", *path.split("/")[1:]))
    return f"{split.scheme}:{'//' if split.netloc else ''}{address}{slash}{path}"


def split_location(location: str) -> tuple[str, str, str]:
    """Return scheme, host and path of a location as Hadoop reads it, and so Spark; a path has no scheme.

    Its characters stand for themselves, `%`, `?` and `#` too (`org.apache.hadoop.fs.Path`).
    """
    before, colon, rest = location.partition(":")
    if not colon or "/" in before:
        return "", "", location
    if not rest.startswith("//"):
        return before, "", rest
    host, slash, path = rest.removeprefix("//").partition("/")
    return before, host, slash + path


def open_storage(location: str, connection: Connection | None = None) -> Storage:
    """Return the files at a `checkpointLocation`.

    Args:
        location: a path, a `file:` URL, a URL of HDFS or S3, one of `Checkpoints.url`, or `yt:///…`.
        connection: of the cluster that `yt:///…` means; without one it cannot be read.

    Raises:
        ConfigError: the file system is another one, PyArrow cannot open it here, or the address is none.
    """
    scheme, host, path = split_location(location)
    if scheme in ("", "file"):
        return _ArrowFolder(fs.LocalFileSystem(), str(Path(path)))
    if scheme == SCHEME:
        return WebHdfsFolder(location)
    if scheme == CYPRESS_SCHEME and connection is not None:
        if host:
            name = host.rpartition("@")[2]
            raise ConfigError(
                f"The location of the checkpoint has a host: {name}",
                remedy=f"Write three slashes: yt:///{name}{path}",
                path=shown(location),
            )
        names = [name for name in path.split("/") if name]
        return _CypressFolder(CypressFiles(connection, emitter()), names)
    if scheme not in _REMOTE:
        raise ConfigError(
            f"A checkpoint on {scheme} cannot be read without a JVM",
            remedy="Use foreachBatch in a session with a JVM, or a checkpoint on a disk, hdfs:, s3a: or "
            "YTsaurus",
            path=shown(location),
        )
    # PyArrow takes a percent sign for the begin of a quoted character.
    url = f"{_REMOTE[scheme]}://{host}{quote(path, safe=_PLAIN)}"
    try:
        files, root = fs.FileSystem.from_uri(url)
    except (OSError, ValueError) as error:
        # PyArrow quotes the whole URL, and so a key in it. Its own error must not be shown either.
        text = str(error).replace(url, shown(location))
        raise ConfigError(
            f"PyArrow cannot open the file system of the checkpoint: {text}",
            remedy="hdfs: needs libhdfs and CLASSPATH of Hadoop where Spark starts Python, s3a: the "
            "credentials in the environment. Or use foreachBatch in a session with a JVM",
            path=shown(location),
        ) from None
    return _ArrowFolder(files, root)
