"""Rich paths: attributes and a cluster before the path, columns and ranges behind it.

Owns the rich forms `<append=%true>//t`, `cluster://t`, `//t{a,b}` and `//t[#0:#10]`, all of which become
attributes. The plain path between them is not looked into.
"""

from __future__ import annotations

import re
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import load_yson

_CLUSTER = re.compile(r"([A-Za-z0-9_.\-]+):(?=[/#])")
_SCALAR = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*")
        | (?P<word>[A-Za-z_][A-Za-z0-9_.\-]*)
        | (?P<number>[-+]?[0-9][0-9.eE+\-]*u?)
        | (?P<special>%[A-Za-z\-]+)
    )\s*""",
    re.VERBOSE,
)
_BINARY = frozenset("\x01\x02\x03\x04\x05\x06")
"""First characters of scalars in binary YSON: string, int64, double, two booleans, uint64."""


def split(value: Any, what: str) -> tuple[str, dict[str, Any]]:
    """Take a rich path apart into the plain path and its attributes.

    Args:
        what: name of the parameter, for errors.

    Raises:
        YtError: no string, or bad syntax around the path.
    """
    if value is None:
        raise YtError(f'Missing required parameter "{what}"')
    if not isinstance(value, str):
        raise YtError(f'Error parsing parameter "{what}": a path must be a UTF-8 string')
    attributes = dict(getattr(value, "attributes", None) or {})
    text = str(value)
    if text.lstrip().startswith("<"):
        text, prefix = _prefix(text.lstrip())
        attributes = {**prefix, **attributes}
    cluster = _CLUSTER.match(text)
    if cluster is not None:
        attributes["cluster"] = cluster[1]
        text = text[cluster.end() :]
    end = _path_end(text)
    if not text[:end].lstrip().startswith(("/", "#")):
        raise YtError(f'Path "{text}" does not start with a valid root-designator')
    attributes.update(_suffix(text[end:]))
    return text[:end], attributes


def _prefix(text: str) -> tuple[str, dict[str, Any]]:
    depth = 0
    quoted = False
    skip = False
    for position, char in enumerate(text):
        if skip:
            skip = False
        elif quoted:
            skip = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "<{[(":
            depth += 1
        elif char in ">}])":
            depth -= 1
            if depth == 0:
                parsed = load_yson((text[: position + 1] + "#").encode(), "path attributes")
                return text[position + 1 :].strip(), dict(parsed.attributes)
    raise YtError(f'Error parsing path "{text}": attributes are not closed')


def _path_end(text: str) -> int:
    """Return where columns or ranges begin."""
    position = 0
    while position < len(text) and text[position] not in "[{":
        position += 2 if text[position] == "\\" else 1
    return min(position, len(text))


def _suffix(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = text
    if rest.startswith("{"):
        columns, rest = _columns(rest)
        found["columns"] = columns
    if rest.startswith("["):
        ranges, rest = _ranges(rest)
        found["ranges"] = ranges
    if rest.strip():
        raise YtError(f'Unexpected "{rest}" at the end of a path')
    return found


def _columns(text: str) -> tuple[list[str], str]:
    end = text.find("}")
    if end < 0:
        raise YtError(f'Column selector "{text}" is not closed')
    body = text[1:end].strip()
    columns = []
    position = 0
    while position < len(body):
        value, position = _scalar(body, position)
        columns.append(str(value))
        if body[position : position + 1] == ",":
            position += 1
    return columns, text[end + 1 :]


def _ranges(text: str) -> tuple[list[dict[str, Any]], str]:
    ranges = []
    position = 1
    while True:
        entry: dict[str, Any] = {}
        lower, position = _limit(text, position)
        if text[position : position + 1] == ":":
            upper, position = _limit(text, position + 1)
            if lower:
                entry["lower_limit"] = lower
            if upper:
                entry["upper_limit"] = upper
        elif lower:
            entry["exact"] = lower
        ranges.append(entry)
        position = _skip_spaces(text, position)
        following = text[position : position + 1]
        position += 1
        if following == "]":
            return ranges, text[position:]
        if following != ",":
            raise YtError(f'Malformed range selector "{text}"')


def _limit(text: str, position: int) -> tuple[dict[str, Any], int]:
    position = _skip_spaces(text, position)
    char = text[position : position + 1]
    if char in {":", "]", ",", ""}:
        return {}, position
    if char == "#":
        value, position = _scalar(text, position + 1)
        if isinstance(value, bool) or not isinstance(value, int):
            raise YtError(f'Malformed row index in range selector "{text}"')
        return {"row_index": value}, position
    if char == "(":
        key = []
        position += 1
        while text[position : position + 1] != ")":
            value, position = _scalar(text, position)
            key.append(value)
            if text[position : position + 1] == ",":
                position += 1
        return {"key": key}, _skip_spaces(text, position + 1)
    value, position = _scalar(text, position)
    return {"key": [value]}, position


def _skip_spaces(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def _scalar(text: str, position: int) -> tuple[Any, int]:
    position = _skip_spaces(text, position)
    if text[position : position + 1] in _BINARY:
        end = _binary_end(text, position)
        return load_yson(text[position:end].encode(), "selector"), end
    if text[position : position + 1] == "#":
        return yson.YsonEntity(), position + 1
    match = _SCALAR.match(text, position)
    if match is None:
        raise YtError(f'Malformed value in selector "{text}" at position {position}')
    return load_yson(match[0].strip().encode(), "selector"), match.end()


def _binary_end(text: str, position: int) -> int:
    """Return where a scalar in binary YSON ends."""
    marker = text[position]
    end = position + 1
    if marker in "\x04\x05":
        return end
    if marker == "\x03":
        return end + 8
    while text[end : end + 1] >= "\x80":
        end += 1
    end += 1
    if marker == "\x01":
        end += max(int(load_yson(("\x02" + text[position + 1 : end]).encode(), "selector")), 0)
    return end
