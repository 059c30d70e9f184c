"""A large value while it is brought to its stored form, which may be far longer than what was sent.

A list of empty structs becomes a map of all members for each of them. So its pieces are kept compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.compression import compress, decompress
from yt_exactly_once.local.tables.large_values import MAX_STRING_LENGTH, LargeValue

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.schema import Column

_GROWS = 2
"""What becomes so many times as long stays in compressed pieces until its commit."""


class Written:
    """Binary YSON in pieces; of what no table may hold only the length is known."""

    def __init__(self) -> None:
        self.pieces: list[tuple[bytes, int]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self)

    def __iter__(self) -> Iterator[bytes]:
        for piece, size in self.pieces:
            yield decompress(piece, size).to_pybytes()

    def add(self, piece: bytes) -> None:
        """Append bytes."""
        self._size += len(piece)
        if self._size > MAX_STRING_LENGTH:
            self.pieces.clear()
        elif piece:
            self.pieces.append((compress(piece), len(piece)))

    def add_value(self, value: Any) -> None:
        """Append a value, large parts as they are."""
        if isinstance(value, Written):
            self._size += len(value) - sum(size for _, size in value.pieces)
            for piece in value:
                self.add(piece)
        elif isinstance(value, LargeValue):
            self.add(value.raw)
        elif isinstance(value, list):
            self.add(b"[")
            for item in value:
                self.add_value(item)
                self.add(b";")
            self.add(b"]")
        elif isinstance(value, dict):
            self.add(b"{")
            for name, item in value.items():
                self.add(values.dump_yson(name) + b"=")
                self.add_value(item)
                self.add(b";")
            self.add(b"}")
        else:
            self.add(values.dump_yson(value))


def dump(value: Any, sent: int, column: Column) -> bytes | Written:
    """Return the stored form of a large value that had so many bytes; keys are never in pieces."""
    if isinstance(value, LargeValue):
        return value.raw
    written = Written()
    written.add_value(value)
    most = MAX_STRING_LENGTH if column.is_key else min(_GROWS * sent, MAX_STRING_LENGTH)
    return written if len(written) > most else bytes(written)


def any_of(column: Column, stored: Sequence[Any]) -> bool:
    """Tell whether stored values of a column have some that are still in pieces."""
    return column.wire_type == "any" and any(isinstance(value, Written) for value in stored)


def whole(stored: Sequence[Any]) -> list[Any]:
    """Return stored values, each of them as a whole."""
    return [bytes(value) if isinstance(value, Written) else value for value in stored]
