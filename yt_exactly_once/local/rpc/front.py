"""The RPC front of one proxy: tokens, faults and worker threads between connections and methods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local import authentication, fronts, support
from yt_exactly_once.local.commands.registry import Context, as_error
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.bus import envelopes
from yt_exactly_once.local.rpc.bus.connection import Connection
from yt_exactly_once.local.rpc.bus.exchange import Exchange, GoneError
from yt_exactly_once.local.rpc.calls import Call, Method, Run
from yt_exactly_once.local.rpc.message_types import text
from yt_exactly_once.local.rpc.methods import METHODS
from yt_exactly_once.local.rpc.sequences import Sequences

if TYPE_CHECKING:
    import socket

    from yt_exactly_once.local.faults import Fault
    from yt_exactly_once.local.proxy import Proxy

_TYPED = {
    "input_format": yson.to_yson_type("yson", attributes={"enable_integral_type_conversion": False})
}
"""Values come with their types over RPC."""

_SERVICE = b"ApiService"
_DISCOVER = b"Discover"
_READ_LIMIT = 1 << 20


class Front(fronts.Front):
    """Serves RPC requests on a listening socket."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy)
        self._sequences = Sequences()

    async def start(self, listener: socket.socket) -> None:
        """Begin to accept connections."""
        await asyncio.start_server(
            lambda *ends: Connection(self.serve, *ends).run(), sock=listener, limit=_READ_LIMIT
        )

    async def serve(self, exchange: Exchange) -> None:
        """Serve one request; every failure is an answer."""
        self._in_flight += 1
        try:
            await self._serve(exchange)
        except GoneError:
            pass
        except YtError as error:
            await exchange.fail(error)
        except Exception as raised:  # noqa: BLE001 - as_error logs what it does not know
            await exchange.fail(_of_call(as_error(raised)))
        finally:
            self._in_flight -= 1

    async def _serve(self, exchange: Exchange) -> None:
        self._check_room()
        header = exchange.header
        if header.method == _DISCOVER:
            discovered = message_types.new("TRspDiscover")
            discovered.up = True
            await exchange.answer(discovered, [])
            return
        name = text(header.method, "method")
        if header.service != _SERVICE:
            raise _not_supported(f"{text(header.service, 'service')}.{name}")
        method = METHODS.get(name)
        if method is None:
            raise _not_supported(name)
        self._proxy.requests[f"/rpc/{name}"] += 1
        call, faults = await self._in_thread(self._prepare, method, exchange)
        fault = await self._pass_faults(faults, call.context)
        if fault is None:
            await self._run(method, call, exchange)
        else:
            await self._end_with_fault(method, call, fault, exchange)

    def _prepare(self, method: Method, exchange: Exchange) -> tuple[Call, list[Fault]]:
        """Read a request, and find the faults that it meets."""
        user = self._authenticate(exchange.header)
        request = envelopes.body(exchange.header, exchange.parts, method.message("TReq"))
        try:
            parameters = method.parameters(request)
            command = method.command_name(request)
        except YtError as error:
            raise _of_call(error) from error
        # What a command refuses is in the request under the same name.
        asked = dict.fromkeys(
            _names(request) & support.REFUSED_PARAMETERS.get(command, {}).keys(), True
        )
        if exchange.header.retry:
            # The Java client says so here, and not beside the id of the mutation.
            parameters = {**parameters, "retry": True}
        context = Context(self._proxy, command, {**_TYPED, **asked, **parameters}, user)
        response = message_types.new(method.message("TRsp"))
        call = Call(context, self._sequences, request, exchange.parts[1:], response)
        return call, self._proxy.faults.take(command, parameters)

    async def _run(self, method: Method, call: Call, exchange: Exchange) -> None:
        if method.direction == "write":
            await self._read_stream(method, call, exchange)
        result = await self._in_thread(_execute, method.run, call)
        if method.direction == "read":
            await self._send_stream(result, exchange)
        await exchange.answer(call.response, call.output)

    async def _read_stream(self, method: Method, call: Call, exchange: Exchange) -> None:
        """Tell the client that it may write, and take what it writes."""
        if method.opening is not None:
            for block in await self._in_thread(_execute, method.opening, call):
                await exchange.send_block(block)
        await exchange.send_block(None)
        call.attachments = []
        while (part := await exchange.receive()) is not None:
            call.attachments.append(part)

    async def _send_stream(self, blocks: Iterator[bytes], exchange: Exchange) -> None:
        """Send what a method yields, as fast as the client reads."""
        while await exchange.receive() is not None:
            # Requests of this kind have an empty stream.
            pass
        try:
            while (block := await self._in_thread(next, blocks, None)) is not None:
                await exchange.send_block(block)
        finally:
            await self._in_thread(_close, blocks)
        await exchange.send_block(None)

    async def _end_with_fault(
        self, method: Method, call: Call, fault: Fault, exchange: Exchange
    ) -> None:
        if fault.action in {"error", "unavailable"}:
            raise _of_call(fault.error())
        if fault.action == "lose_request":
            exchange.reset()
            return
        if method.direction == "write":
            # What the client writes must be here before its connection goes.
            await self._read_stream(method, call, exchange)
        if fault.action == "hold":
            await self._hold(method, call, fault, exchange)
        # Nobody will hear of an error of its own.
        with contextlib.suppress(YtError):
            _close(await self._in_thread(_execute, method.run, call))
        if fault.action == "kill_proxy":
            fronts.kill()
        if fault.action == "late_error":
            raise _of_call(fault.error())
        exchange.reset()

    async def _hold(self, method: Method, call: Call, fault: Fault, exchange: Exchange) -> None:
        """Let the client go and wait; a commit counts as begun, so its client cannot abort it."""
        held = set()
        if method.name == "CommitTransaction":
            held.add(str(call.context.parameters["transaction_id"]))
        self._sequences.committing |= held
        exchange.reset()
        await asyncio.sleep(fault.seconds)
        self._sequences.committing -= held

    def _authenticate(self, header: Any) -> str:
        given = header.credentials_ext.HasField("token")
        named = None if given or self._proxy.token else text(header.user, "user")
        token = bytes(header.credentials_ext.token) if given else None
        try:
            return authentication.user_of(self._proxy, token, named)
        except YtError as error:
            raise YtError(
                "Request authentication failed", Code.RPC_AUTHENTICATION, inner=[error]
            ) from error


def _execute(work: Run, call: Call) -> Any:
    try:
        return work(call)
    except Exception as raised:
        error = as_error(raised, call.context)
        raise _of_call(error) from raised


def _of_call(error: YtError) -> YtError:
    """Wrap what a command raised the way the real proxy does; clients look for codes at any depth."""
    attributes = {name: error.attributes[name] for name in ("path",) if name in error.attributes}
    return YtError("Internal RPC call failed", error.code, attributes, [error])


def _not_supported(method: str) -> YtError:
    """Return the error for a method that is not there.

    The code of the real one, 103, makes clients give the proxy up and look for another for ever.
    """
    return YtError(
        f'RPC method "{method}" is not supported by the embedded cluster; its page of commands lists'
        " what is",
        method=method,
    )


def _close(blocks: Any) -> None:
    close = getattr(blocks, "close", None)
    if close is not None:
        close()


def _names(request: Any) -> set[str]:
    """Return the fields that a request has, and the limits inside of `complexity_limits`."""
    fields = {field.name: value for field, value in request.ListFields()}
    inside = fields["complexity_limits"].ListFields() if "complexity_limits" in fields else []
    return {*fields, *(f"{field.name}_limit" for field, _ in inside)}
