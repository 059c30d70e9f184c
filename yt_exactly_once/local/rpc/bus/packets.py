"""Packets of the bus: they carry messages and acknowledgements.

Owns framing, limits and checksums. A message is a list of parts; a part may be null, which is not the
same as empty. Checksums of zero mean that the sender computed none; answers carry none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from anycrc import CRC

Parts = list[bytes | None]

SIGNATURE = 0x78616D4F
MESSAGE, ACK = 0, 1
WANTS_ACK = 1
HANDSHAKE_ID = struct.pack("<4I", 1, 0, 0, 0)

MAX_PARTS = 1 << 16
MAX_BYTES = 1 << 29
"""Limits of a message; a real proxy allows more, which an embedded one has no memory for."""

_FIXED = struct.Struct("<IhH16sIQ")
HEAD_BYTES = _FIXED.size
_UNSUMMED = 8
_NULL_SIZE = 0xFFFFFFFF
_PART_BYTES = 12

checksum_of = CRC(
    width=64, poly=0xE543279765927881, init=0, refin=False, refout=False, xorout=0
).calc
"""Compute the checksum of some bytes: a 64-bit CRC, most significant bit first, that starts at zero."""


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
        """Length of what follows before the parts."""
        if not self.part_count:
            return 0
        return self.part_count * _PART_BYTES + _UNSUMMED


def parse_head(data: bytes) -> Head:
    """Read the fixed header; raise `BadPacketError` if it is none, or announces too much."""
    signature, kind, flags, packet_id, count, checksum = _FIXED.unpack(data)
    if signature != SIGNATURE:
        raise BadPacketError(f"Packet header signature mismatch: {signature:#x}")
    if kind not in {MESSAGE, ACK}:
        raise BadPacketError(f"Unknown packet type {kind}")
    _verify(data[:-_UNSUMMED], checksum, "fixed header")
    if kind == ACK and count:
        raise BadPacketError("An acknowledgement with parts")
    if count > MAX_PARTS:
        raise BadPacketError(f"Packet has {count} parts; at most {MAX_PARTS} are accepted")
    return Head(kind, flags, packet_id, count)


def parse_sizes(head: Head, data: bytes) -> tuple[list[int | None], list[int]]:
    """Read the variable header: sizes of the parts, `None` for null ones, and their checksums."""
    count = head.part_count
    (checksum,) = struct.unpack_from("<Q", data, len(data) - _UNSUMMED)
    _verify(data[:-_UNSUMMED], checksum, "variable header")
    raw = struct.unpack_from(f"<{count}I", data)
    sizes = [None if size == _NULL_SIZE else size for size in raw]
    total = sum(size or 0 for size in sizes)
    if total > MAX_BYTES:
        raise BadPacketError(f"Packet has {total} bytes; at most {MAX_BYTES} are accepted")
    return sizes, list(struct.unpack_from(f"<{count}Q", data, 4 * count))


def split(body: bytes, sizes: list[int | None], checksums: list[int]) -> Parts:
    """Cut the body of a packet into its parts; raise `BadPacketError` if the checksum of a part is wrong."""
    parts: Parts = []
    position = 0
    for number, (size, checksum) in enumerate(zip(sizes, checksums, strict=True)):
        if size is None:
            parts.append(None)
            continue
        part = body[position : position + size]
        _verify(part, checksum, f"part {number}")
        parts.append(part)
        position += size
    return parts


def ack(packet_id: bytes) -> bytes:
    """Return the acknowledgement of a packet."""
    return _FIXED.pack(SIGNATURE, ACK, 0, packet_id, 0, 0)


def message(packet_id: bytes, parts: Parts, *, flags: int = 0) -> list[bytes]:
    """Return a message as the pieces that go over the wire."""
    count = len(parts)
    fixed = _FIXED.pack(SIGNATURE, MESSAGE, flags, packet_id, count, 0)
    if not count:
        return [fixed]
    sizes = [_NULL_SIZE if part is None else len(part) for part in parts]
    variable = struct.pack(f"<{count}I{count + 1}Q", *sizes, *[0] * (count + 1))
    return [fixed + variable, *filter(None, parts)]


def _verify(data: bytes, checksum: int, what: str) -> None:
    if checksum and checksum_of(data) != checksum:
        raise BadPacketError(f"Checksum mismatch in the {what} of a packet")
