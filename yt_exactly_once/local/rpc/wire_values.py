"""Ids and paths as RPC carries them.

An id is two fixed numbers on the wire, and four hexadecimal groups as text. A path is plain text, or has
attributes in YSON, binary too, before the text.
"""

from __future__ import annotations

from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc.message_types import text

_LOW = (1 << 32) - 1


def id_of(guid: Any) -> str | None:
    """Return the text of an id, or `None` for the null one."""
    if not guid.first and not guid.second:
        return None
    groups = (guid.second >> 32, guid.second & _LOW, guid.first >> 32, guid.first & _LOW)
    return "-".join(f"{group:x}" for group in groups)


def required_id(message: Any, field: str) -> str:
    """Return the text of an id field that must not be null; raise `YtError` if it is null."""
    found = id_of(getattr(message, field))
    if found is None:
        raise YtError(f'Missing required field "{field}"')
    return found


def fill_id(guid: Any, given: str) -> None:
    """Set an id from its text."""
    groups = [int(group, 16) for group in given.split("-")]
    guid.second = groups[0] << 32 | groups[1]
    guid.first = groups[2] << 32 | groups[3]


def load_path(raw: bytes, what: str = "path") -> Any:
    """Return a path as a parameter of a command."""
    if not raw.lstrip().startswith(b"<"):
        return text(raw, what)
    plain, attributes = ypath.parse_rich(raw.lstrip(), what)
    path = yson.YsonUnicode(plain)
    path.attributes = attributes
    return path


def dump_path(path: Any) -> bytes:
    """Return a path of an answer."""
    attributes = getattr(path, "attributes", None)
    plain = str(path).encode()
    if not attributes:
        return plain
    holder = yson.YsonEntity()
    holder.attributes = dict(attributes)
    encoded: bytes = yson.dumps(holder, yson_format="text")
    return encoded.removesuffix(b"#").rstrip() + plain
