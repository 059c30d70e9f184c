"""The HTTP front of one proxy: an ASGI application with the routes of a YTsaurus HTTP proxy.

It routes and authenticates requests, and carries out faults.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yt_exactly_once.local import authentication, commands, fronts
from yt_exactly_once.local.commands.registry import REGISTRY, Command, as_error
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.faults import Fault
from yt_exactly_once.local.formats import structured
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.http import dispatch, encodings, legacy, messages
from yt_exactly_once.local.http.dispatch import Call
from yt_exactly_once.local.http.messages import Answer, Request, json_answer, not_found
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.queues import trimming
from yt_exactly_once.local.support import REFUSED_COMMANDS, REFUSED_DESCRIPTORS

if TYPE_CHECKING:
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_COMMAND_NAME = re.compile(r"[a-z_]+")
_SLICE_BYTES = 1 << 18


class Application(fronts.Front):
    """The ASGI application of a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy)
        started = datetime.now(UTC)
        self._old_commands = legacy.commands()
        self._pages: dict[str, Callable[[Request], Answer]] = {
            "/api": lambda _: json_answer(["v3", "v4"]),
            "/hosts": self._hosts,
            "/ping": lambda _: Answer(),
            "/version": lambda _: Answer(
                headers={"Content-Type": "text/plain"}, body=commands.VERSION.encode()
            ),
            "/service": lambda _: json_answer(
                {"version": commands.VERSION, "start_time": started.isoformat()}
            ),
            "/cluster_connection": lambda _: json_answer(
                {"cluster_name": CLUSTER_NAME, "proxies": proxy.live_proxies()}
            ),
            "/query": _no_clickhouse,
            "/auth": self._whoami,
            "/auth/whoami": self._whoami,
        }
        self._admin_pages: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "/local/faults"): lambda _: proxy.faults.rules(),
            ("POST", "/local/faults"): self._add_faults,
            ("DELETE", "/local/faults"): lambda _: proxy.faults.clear(),
            ("GET", "/local/faults/plan"): lambda _: proxy.faults.plan(),
            ("GET", "/local/requests"): lambda _: dict(proxy.requests),
            ("POST", "/local/trim"): lambda _: trimming.trim_all(proxy.store),
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request = await _read(scope, receive)
        if request is None:
            return
        transport = scope.get("yt.transport")
        self._in_flight += 1
        try:
            _require_kept(scope)
            answer = await self._answer(request, transport)
            if answer is not None and scope.get("http_version") == "1.0":
                # That version knows neither chunks nor trailers.
                answer = await self._in_thread(answer.gathered)
        except YtError as error:
            answer = messages.error_answer(error)
        except Exception as raised:  # noqa: BLE001 - as_error logs what it does not know
            answer = messages.error_answer(as_error(raised))
        finally:
            self._in_flight -= 1
        if answer is None:
            # The connection was reset; the server must see that before it asks for an answer.
            await receive()
            return
        try:
            await self._send(send, request, answer, transport)
        except _BrokenOffError:
            await receive()
        finally:
            answer.close()

    async def _answer(self, request: Request, transport: Any) -> Answer | None:
        self._check_room()
        path = request.path.lower()
        if self._proxy.token is None:
            _refuse_other_sites(request)
        if path.startswith("/local/"):
            return await self._in_thread(self._administer, request, path)
        self._proxy.requests[path] += 1
        page = self._pages.get(path.rstrip("/") or "/")
        if page is not None:
            return await self._in_thread(page, request)
        if path.startswith("/api/"):
            return await self._api(request, path, transport)
        return not_found(f'Path "{request.path}" does not exist')

    async def _api(self, request: Request, path: str, transport: Any) -> Answer | None:
        if not path.startswith(("/api/v3", "/api/v4")):
            raise YtError(f'Unsupported API version "{path}"')
        known = self._old_commands if path.startswith("/api/v3") else REGISTRY
        name = path[len("/api/v4") :]
        if name in {"", "/"}:
            refused = REFUSED_DESCRIPTORS if known is REGISTRY else []
            return json_answer([*(command.descriptor() for command in known.values()), *refused])
        if not name.startswith("/") or not _COMMAND_NAME.fullmatch(name[1:]):
            return not_found("Malformed command name")
        started = await self._in_thread(self._start, request, known, name[1:])
        if isinstance(started, Answer):
            return started
        call, faults = started
        fault = await self._pass_faults(faults, call.context)
        if fault is None:
            return await self._in_thread(dispatch.run, call)
        return await self._end_with_fault(call, fault, transport)

    def _start(
        self, request: Request, known: dict[str, Command], name: str
    ) -> Answer | tuple[Call, list[Fault]]:
        """Run a command, or return it with the faults that it has met."""
        user = "root" if name == "discover_proxies" else self._authenticate(request)
        command = known.get(name)
        if command is None:
            if name in REFUSED_COMMANDS:
                reason = REFUSED_COMMANDS[name]
                raise YtError(
                    f'Command "{name}" is not supported by the embedded cluster: {reason}'
                )
            return not_found(f'Command "{name}" is not registered')
        if command.is_volatile and request.method not in messages.CHANGING:
            # Browsers think the others harmless.
            raise YtError(
                f'Command "{name}" changes something and has to be sent with POST or PUT',
                http_status=HTTPStatus.METHOD_NOT_ALLOWED,
            )
        call = dispatch.prepare(self._proxy, command, request, user)
        call.context.commands = known
        faults = self._proxy.faults.take(name, call.context.parameters)
        return (call, faults) if faults else dispatch.run(call)

    async def _end_with_fault(self, call: Call, fault: Fault, transport: Any) -> Answer | None:
        if fault.action in {"error", "unavailable"}:
            return messages.error_answer(fault.error(), call.error_format)
        if fault.action in {"lose_request", "hold"}:
            fronts.reset(transport)
        if fault.action == "hold":
            await asyncio.sleep(fault.seconds)
        if fault.action != "lose_request":
            (await self._in_thread(dispatch.run, call)).close()
        if fault.action == "kill_proxy":
            fronts.kill()
        if fault.action == "late_error":
            return messages.error_answer(fault.error(), call.error_format)
        if fault.action == "lose_answer":
            fronts.reset(transport)
        return None

    async def _send(self, send: Send, request: Request, answer: Answer, transport: Any) -> None:
        """Send an answer; what fails after its headers have left becomes trailers."""
        headers = {
            "X-YT-Proxy": self._proxy.address,
            "X-YT-Request-Id": request.id,
            "Cache-Control": "no-store",
            **answer.headers,
        }
        if "Trailer" not in headers and answer.rest is None:
            headers["Content-Length"] = str(len(answer.body))
        if transport is not None and request.method != "HEAD":
            transport.hold()
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
            }
        )
        piece: bytes | None = answer.body
        if answer.rest is not None:
            while piece is not None:
                for part in _slices(piece):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    if transport.is_closing():
                        raise _BrokenOffError
                try:
                    piece = await self._in_thread(next, answer.rest, None)
                except Exception as raised:
                    _end_with_trailers(transport, messages.error_headers(as_error(raised)))
                    raise _BrokenOffError from raised
        *parts, last = _slices(piece or b"")
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": last})

    def _authenticate(self, request: Request) -> str:
        header = request.headers.get("authorization")
        named = request.headers.get("x-yt-user-name")
        if header is None and self._proxy.token is None:
            named = named or request.headers.get("x-yt-testing-user-name")
        token = None if header is None else header.removeprefix("OAuth ").strip()
        return authentication.user_of(self._proxy, token, named)

    def _whoami(self, request: Request) -> Answer:
        user = self._authenticate(request)
        return json_answer({"login": user, "realm": "local", "csrf_token": ""})

    def _hosts(self, request: Request) -> Answer:
        hosts = self._proxy.live_proxies()
        # The server compares the whole header: a browser's list of types gets JSON.
        if request.headers.get("accept") == "text/plain":
            body = "".join(host + "\n" for host in hosts).encode()
            return Answer(headers={"Content-Type": "text/plain"}, body=body)
        return json_answer(hosts)

    def _administer(self, request: Request, path: str) -> Answer:
        """Answer what a test asks of the cluster and no real one has."""
        user = self._authenticate(request)
        if user != "root":
            raise YtError(f'User "{user}" may not set faults of the cluster', Code.AUTHORIZATION)
        page = self._admin_pages.get((request.method, path))
        if page is None:
            return not_found(f'There is no {request.method} of "{request.path}"')
        return json_answer(page(request))

    def _add_faults(self, request: Request) -> dict[str, Any]:
        rules = structured.loads(bytes(request.body), Format("json", {"encode_utf8": False}), "")
        if not isinstance(rules, list):
            raise YtError("Fault rules must be a list of maps")
        return {"ids": self._proxy.faults.add(rules)}


def _slices(body: bytes) -> list[bytes | memoryview]:
    """Cut a long body: what a socket does not take at once, asyncio moves in memory with every write."""
    if len(body) <= _SLICE_BYTES:
        return [body]
    view = memoryview(body)
    return [view[start : start + _SLICE_BYTES] for start in range(0, len(view), _SLICE_BYTES)]


async def _read(scope: Message, receive: Receive) -> Request | None:
    """Read a request whole; `None` when the client went away in the middle of it.

    The server has put the body into the scope, or `None` if it is too long.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if not message.get("more_body", False):
            break
    pieces = scope["yt.body"] or []
    return Request(
        scope["method"],
        scope["path"],
        scope["query_string"].decode("latin-1"),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        pieces[0] if len(pieces) == 1 else b"".join(pieces),
    )


def _require_kept(scope: Message) -> None:
    """Refuse a request whose body was too long for the server to keep it."""
    if scope["yt.body"] is None:
        raise YtError(
            f"The request body has more than {encodings.MOST_BYTES} bytes, which the embedded cluster"
            " has no memory for; send the rows in several requests",
            http_status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )


class _BrokenOffError(Exception):
    """The answer ends before its end; the connection is closed or closing."""


def _end_with_trailers(transport: Any, trailers: Mapping[str, str]) -> None:
    """End a chunked answer with trailers, which ASGI has no way to say, and its connection with it."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
    transport.write(f"0\r\n{lines}\r\n".encode("latin-1"))
    transport.close()


def _no_clickhouse(_: Request) -> Answer:
    raise YtError(
        "ClickHouse (CHYT) is not supported by the embedded cluster; use select_rows or read_table"
    )


def _refuse_other_sites(request: Request) -> None:
    """Take no orders from a page that the browser of the user shows, as long as no token tells them apart.

    A page cannot leave its `Origin` out of what changes something. Its name may lead to this machine, and
    then its `Host` tells.

    Raises:
        YtError: the request comes from such a page.
    """
    told = [("Origin", request.headers.get("origin"))]
    if "host" in request.headers:
        told.append(("Host", f"//{request.headers['host']}"))
    for name, address in told:
        if address is not None and not _LOOPBACK.fullmatch(_host_of(address)):
            raise YtError(
                f"The embedded cluster has no token and answers clients of this machine only, and {name}"
                f" is {request.headers[name.lower()]!r}; use its address 127.0.0.1, or give it a token",
                http_status=HTTPStatus.FORBIDDEN,
            )


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
