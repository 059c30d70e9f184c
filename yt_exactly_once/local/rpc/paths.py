"""Paths as RPC carries them: plain text, or attributes in YSON, binary too, before the text."""

from __future__ import annotations

from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.rpc.message_types import text


def load(raw: bytes, what: str = "path") -> Any:
    """Return a path as a parameter of a command."""
    if not raw.lstrip().startswith(b"<"):
        return text(raw, what)
    plain, attributes = ypath.parse_rich(raw.lstrip(), what)
    path = yson.YsonUnicode(plain)
    path.attributes = attributes
    return path


def dump(path: Any) -> bytes:
    """Return a path of an answer."""
    attributes = getattr(path, "attributes", None)
    plain = str(path).encode()
    if not attributes:
        return plain
    holder = yson.YsonEntity()
    holder.attributes = dict(attributes)
    encoded: bytes = yson.dumps(holder, yson_format="text")
    return encoded.removesuffix(b"#").rstrip() + plain
