"""Content codings of HTTP bodies: what a request may carry, and what an answer may come in.

Answers are sent as they are, except to clients that ask for a block codec first: the Go client takes no
other.

Request bodies are decoded whole. A body labelled gzip or deflate may be a gzip or a zlib stream. The Python
client sends zlib under the name gzip, and the real proxy detects both.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.http.block_codecs import CODECS, BadBlockError

IDENTITY = "identity"
MOST_BYTES = 1 << 29
"""Of a decoded body: as many as a message of the RPC proxy may have."""

_NOTHING = re.compile(r"q=0(\.0*)?")
_WINDOW_AUTODETECT = 47
_UNSUPPORTED_MEDIA_TYPE = 415


def is_supported(name: str) -> bool:
    """Tell whether request bodies may use a coding."""
    return name in {IDENTITY, "gzip", "deflate", *CODECS}


def decode(data: bytes | memoryview, name: str) -> bytes | memoryview:
    """Decode a request body, which may be empty; refuse one that is cut off, something else, or too long."""
    if name == IDENTITY or not data:
        return data
    if name in CODECS:
        try:
            return CODECS[name].decode(data, MOST_BYTES)
        except BadBlockError as error:
            raise YtError(f'Error decompressing request body as "{name}": {error}') from error
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


def encode(pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the pieces of an answer in its coding."""
    return iter(pieces) if name == IDENTITY else CODECS[name].encode(pieces)


def accepted(accept: str) -> str:
    """Return the coding of an answer; refuse a client that takes none. Servers would send gzip, too."""
    items = [item.partition(";") for item in accept.lower().replace(" ", "").split(",")]
    weights = {name: weight for name, _, weight in items}
    if items[0][0] in CODECS:
        return items[0][0]
    if _NOTHING.fullmatch(weights.get(IDENTITY, weights.get("*", ""))):
        raise YtError(
            "Could not determine feasible Content-Encoding given Accept-Encoding constraints: an answer"
            " that is compressed is not supported by the embedded cluster",
            client_accept_encoding=accept,
            http_status=_UNSUPPORTED_MEDIA_TYPE,
        )
    return IDENTITY
