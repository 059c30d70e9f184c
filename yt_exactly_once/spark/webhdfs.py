"""Small files of a checkpoint behind a gateway that speaks WebHDFS, read and written without a JVM.

The location of such a checkpoint has a secret, so no error shows more of it than the address.
"""

from __future__ import annotations

import http.client
import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import (
    AccessError,
    ClusterUnavailableError,
    ConfigError,
    RequestRefusedError,
)
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts

SCHEME = "webhdfs"

_PREFIX = "/webhdfs/v1"
_TIMEOUT_SECONDS = 60.0
_POLICY = RetryPolicy(attempts=30, deadline=timedelta(seconds=60), max_wait=timedelta(seconds=2))
"""As long as Spark's own client waits for a gateway with the settings of `Checkpoints.configure`."""


class WebHdfsFolder:
    """A checkpoint behind a gateway.

    Args:
        policy: how long an absent gateway is waited for.

    Raises:
        ConfigError: the location has no address.
    """

    def __init__(self, location: str, policy: RetryPolicy = _POLICY) -> None:
        parts = urlsplit(location)
        self.address = parts.netloc.rpartition("@")[2]
        try:
            _ = parts.port
        except ValueError:
            raise ConfigError(
                "The location of the checkpoint has no valid port",
                remedy="Pass a location that the gateway prints: it begins with webhdfs://",
                gateway=self.address,
            ) from None
        self._root = parts.path.rstrip("/")
        self._policy = policy

    def read(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            FileNotFoundError: there is none.
            AccessError: the secret is wrong, or the gateway does not serve the path.
            RetriesExhaustedError: the gateway does not answer.
        """
        return self._ask("GET", name, "OPEN").decode()

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder; raises as `read` does."""
        try:
            self._ask("GET", name, "GETFILESTATUS")
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, none without a folder; raises as `read` does."""
        try:
            found = json.loads(self._ask("GET", folder, "LISTSTATUS"))
        except FileNotFoundError:
            return []
        return [file["pathSuffix"] for file in found["FileStatuses"]["FileStatus"]]

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and its folder; raises as `read` does."""
        self._ask("PUT", name, "CREATE", content, overwrite="true", data="true")

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
