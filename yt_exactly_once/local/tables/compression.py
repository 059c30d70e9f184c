"""How the embedded cluster compresses rows that wait, and rows on disk."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_CODEC = "lz4_raw"


def compress(data: Any) -> bytes:
    """Return bytes compressed."""
    compressed: bytes = pa.compress(data, codec=_CODEC, asbytes=True)
    return compressed


def decompress(compressed: bytes, size: int) -> Any:
    """Return a buffer with so many bytes."""
    return pa.decompress(compressed, decompressed_size=size, codec=_CODEC)
