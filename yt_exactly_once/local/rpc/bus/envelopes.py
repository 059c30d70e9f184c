"""Requests, responses and stream packets: what the parts of a bus message mean.

Part 0 is a kind and a header, part 1 a body, the others are attachments. A body has a small envelope of
its own unless the header names codecs. Codecs other than "none" are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.bus.packets import BadPacketError, Parts

REQUEST, CANCEL, RESPONSE = 0x69637072, 0x63637072, 0x6F637072
PAYLOAD, FEEDBACK = 0x70637072, 0x66637072
HANDSHAKE = 0x68737562
_HEADERS = {
    REQUEST: "TRequestHeader",
    CANCEL: "TRequestCancelationHeader",
    RESPONSE: "TResponseHeader",
    PAYLOAD: "TStreamingPayloadHeader",
    FEEDBACK: "TStreamingFeedbackHeader",
    HANDSHAKE: "THandshake",
}
_KIND = struct.Struct("<I")
_SIZES = struct.Struct("<II")


@dataclass(frozen=True)
class Envelope:
    """A message that came in.

    Attributes:
        kind: `REQUEST`, `CANCEL`, `PAYLOAD`, `FEEDBACK` or `HANDSHAKE`.
        header: the header message of that kind.
        parts: what follows the header.
    """

    kind: int
    header: Any
    parts: Parts

    @property
    def request_id(self) -> bytes:
        """What ties the packets of a request together."""
        encoded: bytes = self.header.request_id.SerializePartialToString()
        return encoded


def parse(parts: Parts) -> Envelope:
    """Read what a message is; raise `BadPacketError` if no client may send it: nobody can be answered."""
    head = parts[0] if parts else None
    if head is None or len(head) < _KIND.size:
        raise BadPacketError("A message without a header")
    (kind,) = _KIND.unpack_from(head)
    name = _HEADERS.get(kind)
    if name is None or kind == RESPONSE:
        raise BadPacketError(f"Unknown kind of message {kind:#x}")
    try:
        header = message_types.parse(name, head[_KIND.size :])
    except YtError as error:
        raise BadPacketError(error.message) from error
    if kind == REQUEST and not header.HasField("request_id"):
        raise BadPacketError("A request without an id")
    return Envelope(kind, header, parts[1:])


def body(header: Any, parts: Parts, name: str) -> Any:
    """Parse the body of a request; refuse none, a compressed one, and another message."""
    raw = parts[0] if parts else None
    if raw is None:
        raise YtError("Error deserializing a request: it has no body")
    codec = 0
    if header.HasField("request_codec"):
        codec = header.request_codec
    else:
        if len(raw) < _SIZES.size:
            raise YtError("Error deserializing a request: its body is too short")
        envelope_size, size = _SIZES.unpack_from(raw)
        end = _SIZES.size + envelope_size
        if end + size > len(raw):
            raise YtError("Error deserializing a request: its body is too short")
        envelope = message_types.parse("TSerializedMessageEnvelope", raw[_SIZES.size : end])
        codec, raw = envelope.codec, raw[end : end + size]
    if codec:
        raise YtError(
            f"Compression codec {codec} is not supported by the embedded cluster; set"
            ' "request_codec" of the client to "none"'
        )
    return message_types.parse_request(name, raw)


def response(request: Any, message: Any, attachments: Sequence[bytes | None]) -> Parts:
    """Return the parts of an answer to a request with that header."""
    encoded = message_types.dump(message)
    if request.HasField("request_codec") or request.HasField("response_codec"):
        head = _head(RESPONSE, request_id=request.request_id, codec=0)
    else:
        # The envelope of a message without a codec is empty.
        head = _head(RESPONSE, request_id=request.request_id)
        encoded = _SIZES.pack(0, len(encoded)) + encoded
    return [head, encoded, *attachments]


def failure(request: Any, error: YtError) -> Parts:
    """Return the parts of an answer that is an error."""
    described = message_types.new("TError")
    _fill(described, error)
    return [_head(RESPONSE, request_id=request.request_id, error=described)]


def _fill(message: Any, error: YtError) -> None:
    """Write an error and its causes into a message; attributes are binary YSON."""
    message.code = error.code
    message.message = error.message.encode()
    for key, value in error.attributes.items():
        message.attributes.attributes.add(key=str(key).encode(), value=dump_yson(value))
    for inner in error.inner:
        _fill(message.inner_errors.add(), inner)


def payload(request: Any, number: int, attachments: Sequence[bytes | None]) -> Parts:
    """Return a packet of the stream that an answer sends."""
    return [_head(PAYLOAD, **_address(request), sequence_number=number, codec=0), *attachments]


def feedback(request: Any, position: int) -> Parts:
    """Return the packet that says how much of the client's stream has been read."""
    return [_head(FEEDBACK, **_address(request), read_position=position)]


def handshake(given: Any) -> Parts:
    """Return the answer to a handshake: the connection stays as it is, unencrypted."""
    return [_head(HANDSHAKE, connection_id=given.connection_id, encryption_mode=0)]


def _address(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("request_id", "service", "method")}


def _head(kind: int, **fields: Any) -> bytes:
    return _KIND.pack(kind) + message_types.dump(message_types.new(_HEADERS[kind], **fields))
