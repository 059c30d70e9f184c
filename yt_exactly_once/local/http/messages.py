"""HTTP requests and answers as plain values, and the form an error takes on the wire.

It knows the names of headers and nothing about commands or sockets.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from yt_exactly_once.local.commands.registry import Stream
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import json_format, structured
from yt_exactly_once.local.formats.structured import Format

_MAX_ERROR_HEADER = 32_000
"""HTTP libraries refuse header lines over 64 KiB; a longer error keeps its details in the body."""

CHANGING = ("POST", "PUT")
"""Methods of requests that may change something."""

_HEADERS: dict[int, dict[str, str]] = {
    HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": ", ".join(CHANGING)},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "60"},
}
"""Of error answers, by status."""

TRAILERS = "X-YT-Error, X-YT-Response-Code, X-YT-Response-Message"
"""Announced by every answer that is sent while it is made."""


def make_guid() -> str:
    """Make an id of the form that requests and objects have."""
    # One call of the kernel.
    return "-".join(f"{number:x}" for number in struct.unpack("4I", secrets.token_bytes(16)))


@dataclass(frozen=True)
class Request:
    """One request, body included.

    Attributes:
        method: HTTP verb.
        path: unquoted path.
        query: query string as sent.
        headers: values by name in lower case.
        body: as sent, before content decoding.
        id: what `X-YT-Request-Id` of the answer says.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes | memoryview
    id: str = field(default_factory=make_guid)


@dataclass
class Answer:
    """One answer.

    Attributes:
        status: HTTP status.
        headers: by name.
        body: the whole body, or its beginning.
        rest: the other pieces of the body; one that fails becomes trailers.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    rest: Stream[bytes] | None = None

    def gathered(self) -> Answer:
        """Return the same answer with its whole body, for who cannot take it in pieces."""
        headers = {name: value for name, value in self.headers.items() if name != "Trailer"}
        return Answer(self.status, headers, self.body + b"".join(self.rest or ()))

    def close(self) -> None:
        """Give up what has not been sent yet."""
        if self.rest is not None:
            self.rest.close()


def json_answer(value: Any) -> Answer:
    """Return an answer of a service page."""
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def error_answer(error: YtError, error_format: Format = structured.JSON) -> Answer:
    """Return the answer for a failed command: the envelope as headers and as body."""
    envelope = error.to_dict()
    body = _one_line(envelope).encode()
    if error_format.name != "json":
        body = structured.dumps(envelope, error_format)
    headers = {
        "Content-Type": structured.to_mime(error_format),
        "X-YT-Error-Content-Type": structured.to_mime(error_format),
        **error_headers(error),
        **_HEADERS.get(error.http_status, {}),
    }
    return Answer(error.http_status, headers, body)


def error_headers(error: YtError) -> dict[str, str]:
    """Return an error as headers, or as the trailers of an answer that had begun well."""
    envelope = error.to_dict()
    text = _one_line(envelope)
    return {
        "X-YT-Error": text if len(text) <= _MAX_ERROR_HEADER else _one_line(_outline(envelope)),
        "X-YT-Response-Code": str(error.code),
        "X-YT-Response-Message": json.dumps(error.message[:1000])[1:-1],
    }


def not_found(message: str) -> Answer:
    """Return the answer for a path or command that does not exist."""
    return error_answer(YtError(message, http_status=HTTPStatus.NOT_FOUND))


def _one_line(envelope: Any) -> str:
    try:
        encoded = json_format.dumps(envelope, {"encode_utf8": False, "support_infinity": True})
    except YtError:
        encoded = json_format.dumps(envelope, {"encode_utf8": True, "support_infinity": True})
    # Header values must be ASCII.
    return json.dumps(json.loads(encoded), separators=(",", ":"))


def _outline(envelope: dict[str, Any], depth: int = 8) -> dict[str, Any]:
    """Keep what clients match: codes and the beginnings of messages."""
    return {
        "code": envelope["code"],
        "message": envelope["message"][:500],
        "attributes": {},
        "inner_errors": [
            _outline(inner, depth - 1) for inner in envelope["inner_errors"][:5] if depth
        ],
    }
