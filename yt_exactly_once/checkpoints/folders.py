"""From the path of a request to a path in Cypress: the secret, and the folders that are served.

WebHDFS has no header that stock Spark can be given, so the secret is the first segment of every path. Who
does not know it learns nothing: neither what is served nor whether it exists.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from pathlib import PurePosixPath

from yt_exactly_once.config import Secret, check_path
from yt_exactly_once.errors import AccessError, ConfigError

Segments = tuple[str, ...]
"""Names on the way from the root of Cypress."""

_SECRET_BYTES = 16
_MARK = "secret-"
"""Beginning of the first name: by it Spark knows a value that its UI and its event log must not show."""
_SHORTEST_SECRET = 16
_SECRET = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^\\/@&*\[{#;<>()\x00-\x1f%?:]+")
"""A name that means the same in YPath, in a URL of Hadoop, and to a person."""

_SCRATCH = re.compile(
    r"\.(?P<final>.+)\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(\.TID\d+)?\.tmp"
)
"""Name under which Spark writes a file before it renames it (`CheckpointFileManager.scala`)."""


def new_secret() -> Secret:
    """Return a secret that others cannot guess."""
    return Secret(secrets.token_urlsafe(_SECRET_BYTES))


def check_secret(secret: Secret) -> Secret:
    """Return a secret, if it can be a part of a URL and is long enough; raise `ConfigError` if it cannot."""
    value = secret.reveal()
    if len(value) < _SHORTEST_SECRET or not _SECRET.fullmatch(value):
        raise ConfigError(
            f"The secret of the checkpoint gateway needs at least {_SHORTEST_SECRET} letters, digits, "
            "hyphens or underscores, and nothing else",
            remedy="Leave it out to get a random one",
        )
    return secret


def parse_path(path: str, option: str) -> Segments:
    """Return the names of a Cypress path; raise `ConfigError` if it is no absolute path of plain names."""
    check_path(path, option)
    segments = tuple(path[2:].split("/"))
    for segment in segments:
        if not _PLAIN.fullmatch(segment) or segment in {".", ".."}:
            raise ConfigError(
                f"{option} has the name {segment!r}, which a checkpoint cannot have",
                remedy="Use names without any of: / \\ @ & * [ { # ; < > ( ) % ? :",
                path=path,
            )
    return segments


def final_name(name: str) -> str | None:
    """Return the name that a scratch file of Spark gets in the end; `None` for any other name."""
    found = _SCRATCH.fullmatch(name)
    return found["final"] if found else None


class ServedFolders:
    """What a gateway serves.

    Args:
        secret: first segment of the path of every request.
        roots: folders in Cypress that are served, with everything below.
    """

    def __init__(self, secret: Secret, roots: Sequence[Segments] = ()) -> None:
        self._first = _MARK + check_secret(secret).reveal()
        self._roots = set(roots)

    def serve(self, root: Segments) -> None:
        """Serve another folder."""
        self._roots.add(root)

    def root_of(self, segments: Segments) -> Segments | None:
        """Return the served folder that a path is in; the innermost one of several."""
        found = [root for root in self._roots if segments[: len(root)] == root]
        return max(found, key=len, default=None)

    def require_inner(self, segments: Segments) -> None:
        """Check that no served folder goes with a path; raise `AccessError` if it is one, or has one."""
        if any(root[: len(segments)] == segments for root in self._roots):
            raise AccessError(
                "The gateway neither removes nor moves nor replaces a folder that it serves",
                remedy="Name a folder or file within it. Use the client of YTsaurus for the folder itself",
                path="//" + "/".join(segments),
            )

    def url_path(self, segments: Segments) -> str:
        """Return the path under which requests reach a path in Cypress."""
        return "/".join(("", self._first, *segments))

    def locate(self, path: str) -> Segments:
        """Return the path that a request means; raise `AccessError` for a wrong secret or another path."""
        names = PurePosixPath(path).parts[1:]
        given = names[0] if names else ""
        if not hmac.compare_digest(given.encode(), self._first.encode()):
            raise AccessError(
                "The URL of the checkpoint does not have the secret of this gateway",
                remedy="Call store.configure again, or use the location that the gateway prints. Without "
                "--secret-file it has another secret after each start",
            )
        segments = names[1:]
        if ".." in segments or self.root_of(segments) is None:
            raise AccessError(
                "The gateway does not serve this path",
                remedy="Ask store.url() for each checkpoint, or start the gateway with a --root that "
                "contains it",
                path="//" + "/".join(segments),
            )
        return segments
