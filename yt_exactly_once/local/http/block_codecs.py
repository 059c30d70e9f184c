"""Block codecs: the codings `z-…` of HTTP bodies, which the Go client uses by default.

A body is a row of blocks, each with the id of its codec and its length. One that decodes to nothing is the
last.
All codecs but snappy write the decoded length in front.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

_HEAD = struct.Struct("<HQ")
_LENGTH = struct.Struct("<Q")


class BadBlockError(Exception):
    """The bytes are no blocks of that codec."""


@dataclass(frozen=True)
class BlockCodec:
    """One codec; its id is a hash of its name in YTsaurus's sources."""

    id: int
    arrow: str
    level: int | None = None

    def decode(self, data: bytes | memoryview, most_bytes: int) -> bytes:
        """Return what a body means, at most so many bytes.

        Raises:
            BadBlockError: it is cut off, of another codec, damaged or too long.
        """
        view, place, room = memoryview(data), 0, most_bytes
        found: list[bytes] = []
        while True:
            if len(view) < place + _HEAD.size:
                raise BadBlockError("unexpected end of stream")
            codec_id, size = _HEAD.unpack_from(view, place)
            place += _HEAD.size
            if codec_id != self.id:
                raise BadBlockError(f"incorrect stream codec {codec_id}, expected {self.id}")
            if len(view) < place + size:
                raise BadBlockError("unexpected end of stream")
            block = self._decode_block(view[place : place + size], room)
            if not block:
                return b"".join(found)
            found.append(block)
            room -= len(block)
            place += size

    def encode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a block for each piece, and the last one."""
        codec = self._codec()
        for piece in chain(filter(None, pieces), [b""]):
            block = codec.compress(piece, asbytes=True)
            if self.arrow != "snappy":
                block = _LENGTH.pack(len(piece)) + block
            yield _HEAD.pack(self.id, len(block)) + block

    def _decode_block(self, block: memoryview, room: int) -> bytes:
        if self.arrow == "snappy":
            length = _leading_varint(block)
        elif len(block) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(block)
            block = block[_LENGTH.size :]
        else:
            raise BadBlockError("too small input")
        if not length:
            return b""
        if length > room:
            raise BadBlockError("it is too long")
        try:
            decoded: bytes = self._codec().decompress(block, length, asbytes=True)
        except (OSError, ValueError) as error:
            raise BadBlockError(str(error)) from error
        return decoded

    def _codec(self) -> pa.Codec:
        return pa.Codec(self.arrow, self.level)


CODECS = {
    "z-snappy": BlockCodec(50986, "snappy"),
    "z-zstd_1": BlockCodec(55019, "zstd", 1),
    "z-zstd_3": BlockCodec(23308, "zstd", 3),
    "z-zstd_7": BlockCodec(33533, "zstd", 7),
    "z-brotli_1": BlockCodec(48947, "brotli", 1),
    "z-brotli_6": BlockCodec(63219, "brotli", 6),
}
"""Those that the Go client offers; servers have more of each kind, and more kinds."""


def _leading_varint(block: memoryview) -> int:
    value = 0
    for place, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:  # noqa: PLR2004
            return value
    raise BadBlockError("too small input")
