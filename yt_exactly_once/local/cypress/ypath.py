"""YPath: the language of paths, split into a root, steps, and the attributes around them.

Owns the grammar only: `//a/b`, `#id/b`, `@attribute`, `&`, `*`, escapes, and the rich forms
`<append=%true>//t`, `//t{a,b}`, `//t[#0:#10]`. What a path leads to is decided by the tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import load_yson

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mark(Enum):
    """A step that is not the name of a child."""

    ATTRIBUTE = "@"
    AMPERSAND = "&"
    ASTERISK = "*"


Step = str | Mark

_SPECIAL = frozenset("\\/@&*[{")
_ESCAPED_BYTE = re.compile(r"\\x([0-9a-fA-F]{2})")
_SCALAR = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*")
        | (?P<word>[A-Za-z_][A-Za-z0-9_.\-]*)
        | (?P<number>[-+]?[0-9][0-9.eE+\-]*u?)
        | (?P<special>%[A-Za-z\-]+)
    )\s*""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class YPath:
    """A parsed path.

    Attributes:
        root: the empty string for `/`, otherwise the id after `#`.
        steps: names and marks, in order.
        attributes: of the rich path, the suffix forms included (`columns`, `ranges`).
        text: the path as given, without rich parts.
    """

    root: str
    steps: tuple[Step, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    text: str = "/"


def parse(value: Any, what: str = "path") -> YPath:
    """Parse a path parameter.

    Args:
        value: a string, possibly with YSON attributes.
        what: name of the parameter, for errors.

    Raises:
        YtError: no string, or bad syntax.
    """
    if value is None:
        raise YtError(f'Missing required parameter "{what}"')
    if not isinstance(value, str):
        raise YtError(f'Error parsing parameter "{what}": a path must be a UTF-8 string')
    attributes = dict(getattr(value, "attributes", None) or {})
    text = str(value).strip()
    if text.startswith("<"):
        text, prefix = _prefix(text)
        attributes = {**prefix, **attributes}
    root, text = _root(text)
    steps, end = _steps(text)
    attributes.update(_suffix(text[end:]))
    plain = ("#" + root if root else "/") + text[:end]
    return YPath(root, steps, attributes, plain)


def escape(name: str) -> str:
    """Return the name of a child as it appears in a path."""
    return "".join("\\" + char if char in _SPECIAL else char for char in name)


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


def _root(text: str) -> tuple[str, str]:
    if text.startswith("/"):
        return "", text[1:]
    if text.startswith("#"):
        end = min((text.find(c) for c in "/&[{" if c in text), default=len(text))
        if end > 1:
            return text[1:end].lower(), text[end:]
    raise YtError(f'Path "{text}" does not start with a valid root-designator')


def _steps(text: str) -> tuple[tuple[Step, ...], int]:
    """Read steps; return them with the position where the rich suffix begins."""
    steps: list[Step] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in "[{":
            break
        if char == "&":
            steps.append(Mark.AMPERSAND)
            position += 1
            continue
        if char != "/":
            raise YtError(f'Unexpected "{char}" in path "{text}"; expected "/"')
        position = _step_after_slash(text, position + 1, steps)
    return tuple(steps), position


def _step_after_slash(text: str, position: int, steps: list[Step]) -> int:
    char = text[position : position + 1]
    if char == "@":
        steps.append(Mark.ATTRIBUTE)
        position += 1
        if text[position : position + 1] == "*":
            steps.append(Mark.ASTERISK)
            return position + 1
    elif char == "*":
        steps.append(Mark.ASTERISK)
        return position + 1
    name, position = _literal(text, position)
    if name:
        steps.append(name)
    elif char != "@":
        raise YtError(
            f'Expected "literal" in YPath "{text}" at position {position + 1},'
            f" found {char or 'end of string'!r}"
        )
    return position


def _literal(text: str, position: int) -> tuple[str, int]:
    raw = bytearray()
    while position < len(text):
        char = text[position]
        if char == "\\":
            byte = _ESCAPED_BYTE.match(text, position)
            if byte is not None:
                raw.append(int(byte[1], 16))
                position += 4
                continue
            following = text[position + 1 : position + 2]
            if following not in _SPECIAL:
                raise YtError(f'Invalid escape sequence "\\{following}" in path "{text}"')
            raw += following.encode()
            position += 2
            continue
        if char in _SPECIAL:
            break
        raw += char.encode()
        position += 1
    try:
        return raw.decode(), position
    except UnicodeDecodeError as error:
        raise YtError(f'Path "{text}" has a name that is not UTF-8') from error


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
        following = text[position : position + 1]
        position += 1
        if following == "]":
            return ranges, text[position:]
        if following != ",":
            raise YtError(f'Malformed range selector "{text}"')


def _limit(text: str, position: int) -> tuple[dict[str, Any], int]:
    while text[position : position + 1].isspace():
        position += 1
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
        return {"key": key}, position + 1
    value, position = _scalar(text, position)
    return {"key": [value]}, position


def _scalar(text: str, position: int) -> tuple[Any, int]:
    if text[position : position + 1] == "#":
        return yson.YsonEntity(), position + 1
    match = _SCALAR.match(text, position)
    if match is None:
        raise YtError(f'Malformed value in selector "{text}" at position {position}')
    return load_yson(match[0].strip().encode(), "selector"), match.end()
