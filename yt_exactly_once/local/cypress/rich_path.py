"""Rich paths: attributes and a cluster before the path, columns and ranges behind it.

The rich forms `<append=%true>//t`, `cluster://t`, `//t{a,b}` and `//t[#0:#10]` all become attributes. The
client's own parser takes them apart. The plain path between them is not looked into.
"""

from __future__ import annotations

import re
from typing import Any

from yt import yson
from yt.ypath import YPathError
from yt.ypath.rich import RichYPath

from yt_exactly_once.local.errors import YtError, text_of
from yt_exactly_once.local.formats.structured import dump_yson, load_yson

_RICH = re.compile(r"[<{\[:]")
"""What every rich path has, and few plain ones; the parser takes a microsecond for a few characters."""


def split(value: Any, what: str) -> tuple[str, dict[str, Any]]:
    """Take a rich path apart into the plain path and its attributes; `what` names it in errors."""
    if value is None:
        raise YtError(f'Missing required parameter "{what}"')
    if not isinstance(value, str):
        raise YtError(f'Error parsing parameter "{what}": a path must be a UTF-8 string')
    text, attributes = str(value), dict(getattr(value, "attributes", None) or {})
    if _RICH.search(text):
        text, found = parse(text, what)
        attributes = {**found, **attributes}
    if not text.lstrip().startswith(("/", "#")):
        raise YtError(f'Path "{text}" does not start with a valid root-designator')
    return text, attributes


def parse(given: str | bytes, what: str) -> tuple[str, dict[str, Any]]:
    """Return the plain path and the attributes that a rich path spells; they may be binary YSON."""
    try:
        text, attributes = RichYPath().parse(given)
        return text, load_yson(dump_yson(attributes), what)
    except (YPathError, yson.YsonError, ValueError, TypeError, RecursionError) as error:
        reason = text_of(error).partition("\n")[0]
        raise YtError(f"Error parsing {what} {given!r}: {reason}") from error
