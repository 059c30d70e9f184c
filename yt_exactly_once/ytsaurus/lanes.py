"""The commands that write and look up rows over HTTP, at a third of the official client's processor time.

For every request that client reads the environment, looks for modules that are not there, asks for the name
of the host and copies its configuration. A small batch is five requests. Here all that stays the same is
prepared once. On the wire a request is the same. It travels over the client's own session, and the client's
own functions judge the answer, so errors are the same too. It never retries, as a pinned client does not.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Mapping, Sequence
from functools import partialmethod
from io import BytesIO
from typing import TYPE_CHECKING, Any

from yt import yson
from yt.packages.requests import ConnectionError as NoConnectionError
from yt.packages.requests import PreparedRequest
from yt.packages.requests.cookies import RequestsCookieJar
from yt.packages.requests.structures import CaseInsensitiveDict
from yt.wrapper import YsonFormat, YtClient
from yt.wrapper.common import (
    get_started_by,
    get_started_by_short,
    get_user_agent,
    is_inside_job,
    simplify_structure,
)
from yt.wrapper.config import get_config, get_option
from yt.wrapper.errors import create_http_response_error
from yt.wrapper.ypath import TablePath

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
    HAS_LANES = False
else:
    HAS_LANES = True

if TYPE_CHECKING:
    from yt.wrapper.format import Format

_API = "v4"
_NO_TRANSACTION = "0-0-0-0"
_YSON = simplify_structure({"format": YsonFormat().to_yson_type()})["format"]
_COMMANDS = frozenset(
    {
        "insert_rows",
        "delete_rows",
        "lookup_rows",
        "select_rows",
        "create_queue_producer_session",
        "push_queue_producer",
    }
)


def lane_of(client: Any) -> Any:
    """Return a client that sends the commands of transactions itself, if it can do that as this one would.

    Args:
        client: of one proxy, without retries.

    Returns:
        The client itself over RPC, and where its configuration asks for more than usual.
    """
    is_fit = HAS_LANES and isinstance(client, YtClient) and not is_inside_job()
    return Lane(client) if is_fit and _is_usual(get_config(client)) else client


def _is_usual(config: Mapping[str, Any]) -> bool:
    """Return whether nothing but an address, a token and limits is configured."""
    proxy = config["proxy"]
    return (
        config["backend"] in {None, "http"}
        and (config["api_version"] or config["default_api_version_for_http"]) == _API
        and not (config["auth"] or config["tvm_auth"] or config["auth_class"]["class_name"])
        and config["impersonation_user"] is None
        and config["structured_data_format"] is None
        and proxy["header_format"] in {None, "yson"}
        and proxy["content_encoding"] == "identity"
        and proxy["accept_encoding"] is not None
        and proxy["request_backoff_time"] is None
        and not proxy["force_tracing"]
        and not config["enable_request_logging"]
        and not (proxy["retries"]["enable"] or config["dynamic_table_retries"]["enable"])
        and _COMMANDS.isdisjoint(proxy["commands_with_framing"])
    )


class Unread:
    """Encoded rows as the file that the client wants, of which a lane takes the data without a copy."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self._left = data, memoryview(data)

    def read(self, size: int = -1) -> bytes:
        """Return what is left, or so many bytes of it."""
        end = len(self._left) if size < 0 else size
        taken, self._left = self._left[:end], self._left[end:]
        return bytes(taken)


class Lane:
    """A client that sends the commands of rows itself; other commands it passes on.

    It takes those options of a command which this package uses. Like a client it has one request under way
    at a time.

    Args:
        client: of one proxy, without retries.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        config = get_config(client)
        proxy = config["proxy"]
        connect, light, heavy = (
            proxy[name] / 1000
            for name in ("connect_timeout", "request_timeout", "heavy_request_timeout")
        )
        self._light, self._heavy = (connect, light), heavy
        self._heavy_milliseconds = proxy["heavy_request_timeout"]
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
        self._started_by: dict[str, Any] | None = None
        self._paths: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """Let the client do everything else."""
        return getattr(self._client, name)

    def start_transaction(self, **options: Any) -> str:
        """See the official client; takes `type`, `sticky` and `timeout`."""
        if self._started_by is None:
            self._started_by = get_started_by()
        params = {
            **get_option("COMMAND_PARAMS", self._client),
            **options,
            "attributes": self._started_by,
            "output_format": _YSON,
        }
        answer = self._change("start_transaction", params)
        return str(yson.loads(answer)["transaction_id"])

    def _end(self, command: str, transaction: str) -> None:
        joined = get_option("COMMAND_PARAMS", self._client)
        self._change(command, {**joined, "transaction_id": transaction})

    commit_transaction = partialmethod(_end, "commit_transaction")
    abort_transaction = partialmethod(_end, "abort_transaction")

    def lookup_rows(self, path: str, keys: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """See the official client; takes `format` and `keep_missing_rows`."""
        kind: Format = options.pop("format")
        params = {
            "path": self._path(path),
            "input_format": kind.to_yson_type(),
            "output_format": kind.to_yson_type(),
            **options,
            "timeout": self._heavy_milliseconds,
        }
        return kind.load_rows(BytesIO(self._call("lookup_rows", params, kind.dumps_rows(keys))))

    def select_rows(self, query: str, **options: Any) -> Any:
        """See the official client; takes `format`, `raw=True` and limits."""
        kind, _ = options.pop("format"), options.pop("raw")
        params = {
            "query": query,
            "output_format": kind.to_yson_type(),
            **options,
            "timeout": self._heavy_milliseconds,
            "enable_statistics": False,
        }
        return BytesIO(self._call("select_rows", params))

    def _change_rows(self, command: str, path: str, rows: Any, **options: Any) -> None:
        """See the official client; takes `format`, `raw`, and of an insert `update` and `aggregate`."""
        kind, raw = options.pop("format"), options.pop("raw", None)
        given = {name: value for name, value in options.items() if value is not None}
        params = {"path": self._path(path), "input_format": kind.to_yson_type(), **given}
        self._call(command, params, _body(rows, kind, raw=raw))

    insert_rows = partialmethod(_change_rows, "insert_rows")
    delete_rows = partialmethod(_change_rows, "delete_rows")

    def create_queue_producer_session(
        self, producer_path: str, queue_path: str, session_id: str
    ) -> dict[str, Any]:
        """See the official client."""
        session = self._session(producer_path, queue_path, session_id)
        params = {**self._common(), **session}
        return dict(yson.loads(self._change("create_queue_producer_session", params)))

    def push_queue_producer(
        self,
        producer_path: str,
        queue_path: str,
        session_id: str,
        epoch: int,
        rows: Any,
        **options: Any,
    ) -> dict[str, Any]:
        """See the official client; takes `user_meta`, `input_format` and `raw`."""
        kind: Format = options["input_format"]
        params = {
            **self._session(producer_path, queue_path, session_id),
            **self._marked(),
            "epoch": epoch,
            "user_meta": options["user_meta"],
            "input_format": kind.to_yson_type(),
        }
        body = _body(rows, kind, raw=options.get("raw"))
        return dict(yson.loads(self._call("push_queue_producer", params, body)))

    def _session(self, producer: str, queue: str, session_id: str) -> dict[str, Any]:
        return {
            "producer_path": self._path(producer),
            "queue_path": self._path(queue),
            "session_id": session_id,
            "output_format": _YSON,
        }

    def _change(self, command: str, params: Mapping[str, Any]) -> bytes:
        """Send a command whose parameters are its body."""
        body = _dumped({**params, **self._marked()})
        return self._send("POST", command, {"Content-Type": "application/x-yt-yson-text"}, body)

    def _call(
        self, command: str, params: Mapping[str, Any], body: bytes | memoryview | None = None
    ) -> bytes:
        """Send a command whose parameters are a header, and which may have rows."""
        headers = {"X-YT-Parameters": _dumped({**self._common(), **params})}
        if body is None:
            return self._send("GET", command, headers, b"")
        return self._send("PUT", command, {**headers, "Content-Encoding": "identity"}, body)

    def _path(self, path: str) -> Any:
        if path not in self._paths:
            table = TablePath(path, client=self._client)
            self._paths[path] = simplify_structure({"path": table})["path"]
        return self._paths[path]

    def _marked(self) -> dict[str, Any]:
        """Return what the client adds to a command that changes something and is not heavy."""
        return {"mutation_id": _guid(), "retry": False}

    def _common(self) -> dict[str, Any]:
        """Return what the client adds to every command, such as the transaction that it has joined."""
        common = dict(get_option("COMMAND_PARAMS", self._client))
        if common.get("transaction_id") == _NO_TRANSACTION:
            del common["transaction_id"]
        if common.get("ping_ancestor_transactions") is False:
            del common["ping_ancestor_transactions"]
        return common

    def _send(
        self, method: str, command: str, more: Mapping[str, Any], body: bytes | memoryview
    ) -> bytes:
        """Send a request, and return the body of the answer; raise what the official client raises."""
        client, session = self._client, _get_session(self._client)
        request = PreparedRequest()
        request.method, request.url, request.body = method, f"{self._url}/{command}", body
        headers = request.headers = CaseInsensitiveDict(self._headers)
        headers.update(more)
        headers["X-YT-Correlation-Id"] = _guid()
        headers["Content-Length"] = str(len(body))
        token = get_token(client=client)
        if token is not None:
            headers["Authorization"] = f"OAuth {token}"
        request._cookies = RequestsCookieJar()  # noqa: SLF001 - what `prepare` does
        if session.cookies:
            request.prepare_cookies(session.cookies)
        shown = {"headers": headers, "url": request.url, "params": dict(more)}
        settings = {**self._settings, "stream": command in {"lookup_rows", "select_rows"}}
        timeout = self._light if method == "POST" else self._heavy
        try:
            answer = session.send(request, timeout=timeout, allow_redirects=True, **settings)
        except NoConnectionError as error:
            # The proxy may have answered before it had read everything.
            if getattr(error, "response", None) is not None:
                _raise_for_status(create_response(error.response, shown, "", None, client), shown)
            raise
        answer = create_response(answer, shown, "", None, client)
        _raise_for_status(answer, shown)
        content: bytes = answer.content
        # They follow the body.
        trailers = answer.trailers()
        failure = get_error_from_headers(trailers) if trailers else None
        if failure is not None:
            raise create_http_response_error(
                json.loads(failure),
                url=request.url,
                request_headers=headers,
                response_headers=trailers,
                params=shown["params"],
            )
        return content


def _body(rows: Any, kind: Format, *, raw: bool | None) -> bytes | memoryview:
    if isinstance(rows, Unread):
        return rows.data
    return bytes(rows.read() if raw else kind.dumps_rows(rows))


def _guid() -> str:
    """Return a random id of the form that ids have, with one call of the kernel."""
    return "-".join(f"{number:x}" for number in struct.unpack("4I", secrets.token_bytes(16)))


def _dumped(value: Any) -> bytes:
    return bytes(yson.dumps(value, yson_format="text"))
