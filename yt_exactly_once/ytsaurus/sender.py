"""The commands of rows and transactions, over HTTP at a third of the official client's processor time.

For every request that client reads the environment, looks for modules that are not there, asks for the name
of the host and copies its configuration. A small batch is five requests. Here all that stays the same is
prepared once. On the wire a request is the same, without parameters that change nothing. It travels over the
client's own session, and the client's own functions judge the answer, so errors are the same too. It never
retries, as a pinned client does not. Over RPC, or with an unusual configuration, the client sends it itself.
"""

from __future__ import annotations

import json
import logging
import secrets
import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from yt import yson
from yt.logger import LOGGER
from yt.packages.requests import ConnectionError as NoConnectionError
from yt.packages.requests import PreparedRequest
from yt.packages.requests.cookies import RequestsCookieJar
from yt.packages.requests.structures import CaseInsensitiveDict
from yt.wrapper import YsonFormat, YtClient
from yt.wrapper.common import get_started_by_short, get_user_agent, is_inside_job
from yt.wrapper.config import get_config
from yt.wrapper.driver import make_request
from yt.wrapper.errors import create_http_response_error
from yt.wrapper.format import ArrowFormat

try:
    from yt.wrapper.http_helpers import (
        _get_session,
        _raise_for_status,
        create_response,
        get_error_from_headers,
        get_proxy_address_url,
        get_token,
    )

    from yt_exactly_once.ytsaurus.joined_requests import join_requests
except ImportError:
    # A client that is built otherwise prepares all its requests itself.
    PREPARES_REQUESTS = False
else:
    PREPARES_REQUESTS = True

_API = "v4"
_LIGHT = frozenset(
    {
        "start_transaction",
        "ping_transaction",
        "commit_transaction",
        "abort_transaction",
        "create_queue_producer_session",
    }
)
"""Commands whose parameters are the body of the request."""

_TIMED = frozenset({"lookup_rows", "select_rows"})
"""Commands that tell the cluster how long their answer is waited for."""

_READS = _TIMED | {"pull_queue", "pull_queue_consumer"}
_HEAVY = _READS | {"insert_rows", "delete_rows", "push_queue_producer"}
"""Commands whose parameters are a header, and which may have rows."""

_PIECE = 8 * 1024 * 1024
"""Bytes that are read of an answer at a time, at most."""

_ROWS = YsonFormat()
YSON = _ROWS.to_yson_type()
"""The format of keys, of few rows, and of answers."""

BINARY = YsonFormat(format="binary").to_yson_type()
"""The format of many rows that are read."""

_WRITTEN = {"enable_null_to_yson_entity_conversion": False}
"""Format attributes without which `insert_rows` stores a null of an `any` column as a YSON entity, which
is no null to a query (`TInsertRowsFormatConfig`). `push_queue_producer` stores a null either way."""

WIRES = {
    name: kind(attributes=_WRITTEN).to_yson_type()
    for name, kind in (("arrow", ArrowFormat), ("yson", YsonFormat))
}
"""The formats of rows that are written as `arrow` or as `yson`."""


class Sender:
    """Sends those commands over a client, one at a time.

    Args:
        client: of one proxy, without retries.
    """

    def __init__(self, client: YtClient) -> None:
        self.client = client
        config = get_config(client)
        proxy = config["proxy"]
        self._heavy = proxy["heavy_request_timeout"]
        self._is_direct = PREPARES_REQUESTS and not is_inside_job() and _is_usual(config)
        if not self._is_direct:
            return
        self._light = proxy["connect_timeout"] / 1000, proxy["request_timeout"] / 1000
        self._url = f"{get_proxy_address_url(client=client)}/api/{_API}"
        self._headers = {
            **_get_session(client).headers,
            "User-Agent": get_user_agent(),
            "Accept-Encoding": proxy["accept_encoding"],
            "X-Started-By": _dumped(get_started_by_short()),
            "X-YT-Header-Format": "<format=text>yson",
        }
        # What the environment says of HTTP proxies and certificates.
        self._settings = _get_session(client).merge_environment_settings(
            self._url, {}, None, None, None
        )
        join_requests(_get_session(client), self._url)

    def send(
        self, command: str, parameters: Mapping[str, Any], body: bytes | memoryview | None = None
    ) -> bytes:
        """Send a command, and return the body of the answer; raise what the official client raises.

        Args:
            parameters: as the cluster knows them, with the formats of rows and of the answer. `None` is none.
            body: encoded rows or keys, of commands that have them.
        """
        parameters = {name: value for name, value in parameters.items() if value is not None}
        if command in _TIMED:
            parameters["timeout"] = self._heavy
        # Only the client writes its debug log, which somebody reads then.
        if self._is_direct and not LOGGER.isEnabledFor(logging.DEBUG):
            return self._answer(command, parameters, self._request(command, parameters, body))
        answer = make_request(
            command,
            parameters,
            data=None if body is None else bytes(body),
            timeout=None if command in _LIGHT else self._heavy,
            client=self.client,
        )
        return bytes(answer or b"")

    def look_up(
        self, path: str, keys: Sequence[Mapping[str, Any]] | bytes, **inside: str
    ) -> list[dict[str, Any] | None]:
        """Return rows of a sorted table in the order of their keys; `None` where there is none.

        Args:
            keys: or their YSON.
        """
        formats = {"input_format": YSON, "output_format": YSON}
        parameters = {"path": path, "keep_missing_rows": True, **formats, **inside}
        body = keys if isinstance(keys, bytes) else encoded(keys)
        answer = self.send("lookup_rows", parameters, body)
        return list(_ROWS.load_rows(BytesIO(answer)))

    def _request(
        self, command: str, parameters: Mapping[str, Any], body: bytes | memoryview | None
    ) -> PreparedRequest:
        is_light, session = command in _LIGHT, _get_session(self.client)
        if is_light or command == "push_queue_producer":
            # What the client adds to a command that changes something and is not heavy.
            parameters = {**parameters, "mutation_id": _guid(), "retry": False}
        request = PreparedRequest()
        headers = request.headers = CaseInsensitiveDict(self._headers)
        if is_light:
            request.method, body = "POST", _dumped(parameters)
            headers["Content-Type"] = "application/x-yt-yson-text"
        else:
            headers["X-YT-Parameters"] = _dumped(parameters)
            request.method = "GET" if body is None else "PUT"
            if body is not None:
                headers["Content-Encoding"] = "identity"
        request.url, request.body = f"{self._url}/{command}", body or b""
        headers["X-YT-Correlation-Id"] = _guid()
        headers["Content-Length"] = str(len(request.body))
        token = get_token(client=self.client)
        if token is not None:
            headers["Authorization"] = f"OAuth {token}"
        request._cookies = RequestsCookieJar()  # noqa: SLF001 - what `prepare` does
        if session.cookies:
            request.prepare_cookies(session.cookies)
        return request

    def _answer(
        self, command: str, parameters: Mapping[str, Any], request: PreparedRequest
    ) -> bytes:
        client, session = self.client, _get_session(self.client)
        shown = {"headers": request.headers, "url": request.url, "params": parameters}
        settings = {**self._settings, "stream": command in _READS}
        timeout = self._light if command in _LIGHT else self._heavy / 1000
        try:
            answer = session.send(request, timeout=timeout, allow_redirects=True, **settings)
        except NoConnectionError as error:
            # The proxy may have answered before it had read everything.
            if getattr(error, "response", None) is not None:
                _raise_for_status(create_response(error.response, shown, "", None, client), shown)
            raise
        answer = create_response(answer, shown, "", None, client)
        _raise_for_status(answer, shown)
        content = b"".join(answer.iter_content(_PIECE))
        # They follow the body.
        trailers = answer.trailers()
        failure = get_error_from_headers(trailers) if trailers else None
        if failure is not None:
            raise create_http_response_error(
                json.loads(failure),
                url=request.url,
                request_headers=request.headers,
                response_headers=trailers,
                params=parameters,
            )
        return content


def _is_usual(config: Mapping[str, Any]) -> bool:
    """Return whether nothing but an address, a token and limits is configured."""
    proxy = config["proxy"]
    return (
        config["backend"] in {None, "http"}
        and (config["api_version"] or config["default_api_version_for_http"]) == _API
        and not (config["auth"] or config["tvm_auth"] or config["auth_class"]["class_name"])
        and config["impersonation_user"] is None
        and proxy["header_format"] in {None, "yson"}
        and proxy["content_encoding"] == "identity"
        and proxy["accept_encoding"] is not None
        and proxy["request_backoff_time"] is None
        and not proxy["force_tracing"]
        and not config["enable_request_logging"]
        and not proxy["retries"]["enable"]
        and _HEAVY.isdisjoint(proxy["commands_with_framing"])
    )


def encoded(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a few rows or keys as `YSON`."""
    return bytes(_ROWS.dumps_rows(rows))


def _guid() -> str:
    """Return a random id of the form that ids have, with one call of the kernel."""
    return "-".join(f"{number:x}" for number in struct.unpack("4I", secrets.token_bytes(16)))


def _dumped(value: Any) -> bytes:
    return bytes(yson.dumps(value, yson_format="text"))
