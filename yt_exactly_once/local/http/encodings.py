"""Content codings of HTTP bodies: what a request may carry and what an answer is sent with.

Request bodies are decoded whole. A body labelled gzip or deflate may be a gzip or a zlib stream. The Python
client sends zlib under the name gzip, and the real proxy detects both.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from yt_exactly_once.local.errors import YtError

IDENTITY = "identity"
MOST_BYTES = 1 << 29
"""Of a decoded body: as many as a message of the RPC proxy may have."""

_WINDOW_AUTODETECT = 47
_WINDOW_GZIP = 31
_UNSUPPORTED_MEDIA_TYPE = 415


def is_supported(name: str) -> bool:
    """Tell whether request bodies may use a coding."""
    return name in {IDENTITY, "gzip", "deflate"}


def decode(data: bytes, name: str) -> bytes:
    """Decode a request body; an empty body stays empty, as the real decompressor has it.

    Raises:
        YtError: the body is cut off, is not what the header says, or is too long.
    """
    if name == IDENTITY or not data:
        return data
    inflater = zlib.decompressobj(_WINDOW_AUTODETECT)
    try:
        decoded = inflater.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise YtError(f'Error decompressing request body as "{name}": {error}') from error
    if inflater.unconsumed_tail:
        raise YtError(
            f'Error decompressing request body as "{name}": it has more than {MOST_BYTES} bytes,'
            " which the embedded cluster has no memory for; send the rows in several requests"
        )
    if not inflater.eof:
        raise YtError(f'Error decompressing request body as "{name}": unexpected end of stream')
    return decoded


def choose(accept: str | None) -> str:
    """Choose the coding of an answer; identity whenever the client can take it.

    Raises:
        YtError: the client refuses every known coding; the answer has status 415.
    """
    if accept is None or not accept.strip():
        return IDENTITY
    wanted: dict[str, float] = {}
    for item in accept.split(","):
        name, _, parameters = item.strip().partition(";")
        wanted[name.strip().lower()] = _quality(parameters)
    if wanted.get(IDENTITY, wanted.get("*", 1.0)) > 0:
        return IDENTITY
    for name in ("gzip", "deflate"):
        if wanted.get(name, wanted.get("*", 0.0)) > 0:
            return name
    raise YtError(
        "Could not determine feasible Content-Encoding given Accept-Encoding constraints",
        client_accept_encoding=accept,
        http_status=_UNSUPPORTED_MEDIA_TYPE,
    )


def encode_pieces(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Encode an answer piece by piece with a coding that `choose` gave."""
    if name == IDENTITY:
        yield from pieces
        return
    deflater = zlib.compressobj(
        1, zlib.DEFLATED, _WINDOW_GZIP if name == "gzip" else zlib.MAX_WBITS
    )
    for piece in pieces:
        yield deflater.compress(piece)
    yield deflater.flush()


def _quality(parameters: str) -> float:
    key, _, value = parameters.strip().partition("=")
    if key.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
