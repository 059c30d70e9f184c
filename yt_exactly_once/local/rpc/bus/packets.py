"""Packets of the bus: they carry messages and acknowledgements.

Owns framing and limits. A message is a list of parts; a part may be null, which is not the same as empty.
Packets carry checksums, without which the Go client ends the connection. Nobody compares those that come:
clients are on this machine.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO

from yt_exactly_once.local.rpc.bus.checksums import checksum_of

Parts = list[bytes | None]

SIGNATURE = 0x78616D4F
MESSAGE, ACK = 0, 1
WANTS_ACK = 1
HANDSHAKE_ID = struct.pack("<4I", 1, 0, 0, 0)

MAX_PARTS = 1 << 16
MAX_BYTES = 1 << 29
"""Limits of a message; a real proxy allows more, which an embedded one has no memory for."""

_FIXED = struct.Struct("<IhH16sI")
HEAD_BYTES = _FIXED.size + 8  # for the checksum
_NULL_SIZE = 0xFFFFFFFF


class BadPacketError(Exception):
    """The bytes are no packet; nothing behind them can be understood either."""


@dataclass(frozen=True)
class Head:
    """The fixed part of a packet's header."""

    kind: int
    flags: int
    id: bytes
    part_count: int

    @property
    def variable_bytes(self) -> int:
        """Length of what follows before the parts: sizes and checksums."""
        return self.part_count * 12 + 8 if self.part_count else 0


def parse_head(data: bytes) -> Head:
    """Read the fixed header; raise `BadPacketError` if it is none, or announces too much."""
    signature, kind, flags, packet_id, count = _FIXED.unpack_from(data)
    if signature != SIGNATURE:
        raise BadPacketError(f"Packet header signature mismatch: {signature:#x}")
    if kind not in {MESSAGE, ACK}:
        raise BadPacketError(f"Unknown packet type {kind}")
    if kind == ACK and count:
        raise BadPacketError("An acknowledgement with parts")
    if count > MAX_PARTS:
        raise BadPacketError(f"Packet has {count} parts; at most {MAX_PARTS} are accepted")
    return Head(kind, flags, packet_id, count)


def parse_sizes(head: Head, data: bytes) -> list[int | None]:
    """Read the variable header: sizes of the parts, `None` for null ones."""
    raw = struct.unpack_from(f"<{head.part_count}I", data)
    sizes = [None if size == _NULL_SIZE else size for size in raw]
    total = sum(size or 0 for size in sizes)
    if total > MAX_BYTES:
        raise BadPacketError(f"Packet has {total} bytes; at most {MAX_BYTES} are accepted")
    return sizes


def split(body: bytes, sizes: list[int | None]) -> Parts:
    """Cut the body of a packet into its parts."""
    rest = BytesIO(body)
    return [None if size is None else rest.read(size) for size in sizes]


def ack(packet_id: bytes) -> bytes:
    """Return the acknowledgement of a packet."""
    return _fixed(ACK, 0, packet_id, 0)


def message(packet_id: bytes, parts: Parts, *, flags: int = 0) -> list[bytes]:
    """Return a message as the pieces that go over the wire."""
    count = len(parts)
    fixed = _fixed(MESSAGE, flags, packet_id, count)
    if not count:
        return [fixed]
    sizes = [_NULL_SIZE if part is None else len(part) for part in parts]
    sums = [checksum_of(part or b"") for part in parts]
    variable = struct.pack(f"<{count}I{count}Q", *sizes, *sums)
    return [fixed + _with_checksum(variable), *filter(None, parts)]


def _fixed(kind: int, flags: int, packet_id: bytes, count: int) -> bytes:
    return _with_checksum(_FIXED.pack(SIGNATURE, kind, flags, packet_id, count))


def _with_checksum(header: bytes) -> bytes:
    return header + struct.pack("<Q", checksum_of(header))
