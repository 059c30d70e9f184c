"""Object ids: two fixed numbers on the wire, four hexadecimal groups as text."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError

_LOW = (1 << 32) - 1


def to_text(guid: Any) -> str | None:
    """Return the text of an id, or `None` for the null one."""
    if not guid.first and not guid.second:
        return None
    groups = (guid.second >> 32, guid.second & _LOW, guid.first >> 32, guid.first & _LOW)
    return "-".join(f"{group:x}" for group in groups)


def required(message: Any, field: str) -> str:
    """Return the text of an id field that must not be null; raise `YtError` if it is null."""
    text = to_text(getattr(message, field))
    if text is None:
        raise YtError(f'Missing required field "{field}"')
    return text


def fill(guid: Any, text: str) -> None:
    """Set an id from its text."""
    groups = [int(group, 16) for group in text.split("-")]
    guid.second = groups[0] << 32 | groups[1]
    guid.first = groups[2] << 32 | groups[3]
