"""A client of the RPC protocol that sends exactly what it is told to."""

import secrets
import socket
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.bus import envelopes, packets

KIND = struct.Struct("<I")


def driver(cluster: LocalCluster, proxy_index: int = 0, **config: Any) -> Any:
    """Return a client that uses YTsaurus's C++ driver."""
    pytest.importorskip("yt_driver_rpc_bindings")
    return cluster.client(proxy_index, backend="rpc", **config)


def request_parts(
    method: str,
    body: Any,
    attachments: Sequence[bytes | None] = (),
    *,
    service: str = "ApiService",
    token: str | None = None,
    **fields: Any,
) -> packets.Parts:
    """Return the parts of a request; `body` is a message or its bytes."""
    header = message_types.new("TRequestHeader")
    header.request_id.first, header.request_id.second = secrets.randbits(64), secrets.randbits(64)
    header.service, header.method = service.encode(), method.encode()
    if token is not None:
        header.credentials_ext.token = token.encode()
    for name, value in fields.items():
        setattr(header, name, value)
    encoded = body if isinstance(body, bytes) else message_types.dump(body)
    if "request_codec" not in fields:
        encoded = struct.pack("<II", 0, len(encoded)) + encoded
    head = KIND.pack(envelopes.REQUEST) + message_types.dump(header)
    return [head, encoded, *attachments]


def message(name: str, **fields: Any) -> Any:
    """Return a message; text is encoded, ids are pairs of numbers."""
    made = message_types.new(name)
    for field, value in fields.items():
        if isinstance(value, tuple):
            target = getattr(made, field)
            target.first, target.second = value
        elif isinstance(value, list):
            getattr(made, field).extend(value)
        else:
            setattr(made, field, value.encode() if isinstance(value, str) else value)
    return made


class RpcError(Exception):
    """An answer that is an error; `error` is the message."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def codes(self) -> set[int]:
        """Codes at any depth."""

        def walk(error: Any) -> set[int]:
            return {error.code}.union(*(walk(inner) for inner in error.inner_errors))

        return walk(self.error)


class RawRpc(AbstractContextManager["RawRpc"]):
    """One connection to a proxy."""

    def __init__(self, address: str, timeout: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._file = self.socket.makefile("rb")

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(
        self, parts: packets.Parts, *, packet_id: bytes | None = None, flags: int = 0
    ) -> bytes:
        """Send a message; return its packet id."""
        chosen = packet_id or secrets.token_bytes(16)
        self.socket.sendall(b"".join(packets.message(chosen, parts, flags=flags)))
        return chosen

    def receive(self) -> tuple[packets.Head, packets.Parts] | None:
        """Return the next packet, or `None` when the proxy has closed the connection."""
        try:
            start = self._file.read(packets.HEAD_BYTES)
            if len(start) < packets.HEAD_BYTES:
                return None
            head = packets.parse_head(start)
            if not head.variable_bytes:
                return head, []
            sizes = packets.parse_sizes(head, self._file.read(head.variable_bytes))
            body = self._file.read(sum(size or 0 for size in sizes))
            return head, packets.split(body, sizes)
        except ConnectionResetError:
            return None

    def answer(self) -> tuple[Any, packets.Parts]:
        """Return header and further parts of the next response.

        Raises:
            RpcError: the response is an error.
        """
        while True:
            received = self.receive()
            assert received is not None, "the proxy has closed the connection"
            head, parts = received
            if head.kind == packets.MESSAGE and parts[0][:4] == KIND.pack(envelopes.RESPONSE):
                header = message_types.parse("TResponseHeader", parts[0][4:])
                if header.error.code:
                    raise RpcError(header.error)
                return header, parts[1:]

    def call(self, method: str, body: Any, attachments: Any = (), **fields: Any) -> Any:
        """Call a method; return its response message."""
        self.send(request_parts(method, body, attachments, **fields))
        _, parts = self.answer()
        envelope, size = struct.unpack_from("<II", parts[0])
        return message_types.parse(f"TRsp{method}", parts[0][8 + envelope : 8 + envelope + size])
