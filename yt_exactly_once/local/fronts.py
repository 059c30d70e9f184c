"""What the HTTP front and the RPC front of a proxy share: worker threads, faults, and how connections end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar, TypeVarTuple

from yt_exactly_once.local.commands.registry import Context
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.faults import Fault
from yt_exactly_once.local.proxy import Proxy

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_WORKERS = 64
_MAX_IN_FLIGHT = 1000
_KILLED = 137


class Front:
    """A front of a proxy; commands run on worker threads, so a slow one never holds up the others."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="command")
        self._in_flight = 0

    def _check_room(self) -> None:
        """Refuse a request while too many others run."""
        if self._in_flight > _MAX_IN_FLIGHT:
            raise YtError(
                "There are too many concurrent requests being served at the moment; please try another"
                " proxy or try again later",
                Code.REQUEST_QUEUE_SIZE_LIMIT_EXCEEDED,
                http_status=HTTPStatus.SERVICE_UNAVAILABLE,
            )

    async def _in_thread(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, function, *arguments)

    async def _pass_faults(self, faults: Sequence[Fault], context: Context) -> Fault | None:
        """Carry out the faults that a request meets, up to the one that ends it, which is returned."""
        for fault in faults:
            # A commit that failed has lost its transaction.
            is_failed = fault.action == "error" and context.command == "commit_transaction"
            if fault.action == "delay":
                await asyncio.sleep(fault.seconds)
            elif fault.action == "expire_transaction" or is_failed:
                named = str(context.parameters.get("transaction_id"))
                await self._in_thread(self._proxy.expire_transaction, named)
            if fault.action == "kill_proxy" and fault.when == "before":
                kill()
            if fault.action not in {"delay", "expire_transaction"}:
                return fault
        return None


def kill() -> None:
    """End the process at once, as SIGKILL would."""
    os._exit(_KILLED)


def reset(transport: Any) -> None:
    """Close a connection so that the client sees a reset, not an end."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
