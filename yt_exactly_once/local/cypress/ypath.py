"""YPath: the language of paths, split into a root, steps, and the attributes around them.

Owns the grammar of the plain part: `//a/b`, `#id/b`, `@attribute`, `&`, `*` and escapes. The rich forms
`<append=%true>//t`, `cluster://t`, `//t{a,b}` and `//t[#0:#10]` all become attributes: the client's own
parser takes them apart. What a path leads to is decided by the tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from yt import yson
from yt.ypath import YPathError
from yt.ypath.rich import RichYPath

from yt_exactly_once.local.errors import YtError, text_of
from yt_exactly_once.local.formats.structured import dump_yson, load_yson

_MOST_CHARACTERS = 1 << 15
"""Of a path: a part of three characters may become a map."""


class Mark(Enum):
    """A step that is not the name of a child."""

    ATTRIBUTE = "@"
    AMPERSAND = "&"
    ASTERISK = "*"


Step = str | Mark

_SPECIAL = frozenset("\\/@&*[{")
_LONE_BYTE = 0xDC00
"""What `surrogateescape` adds to a byte that is no text."""

_STEP = re.compile(r"(&)|/(@)?(?:(\*)|((?:\\.?|[^\\/@&*\[{])*))", re.DOTALL)
_TOKENS = {"/": "slash", "@": "at", "&": "ampersand", "*": "asterisk"}
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f]")
_RICH = re.compile(r"[<{\[:]")
"""What every rich path has, and few plain ones; the parser takes a microsecond for a few characters."""


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
    """Parse a path parameter, which `what` names in errors."""
    if isinstance(value, str) and not getattr(value, "attributes", None):
        known = _plain(str(value))
        if known is not None:
            return known
    return _parse(value, what)


@lru_cache(maxsize=4096)
def _plain(text: str) -> YPath | None:
    """Return a parsed path that everybody may share; None if it has attributes, which may be changed."""
    parsed = _parse(text, "path")
    return None if parsed.attributes else parsed


def _parse(value: Any, what: str) -> YPath:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise YtError(
            f'Error parsing parameter "{what}": a path of {len(value)} characters; the embedded'
            f" cluster takes {_MOST_CHARACTERS}: give columns and ranges as attributes"
        )
    text, attributes = split(value, what)
    root, rest = _root(text.strip())
    steps = _steps(rest)
    plain = ("#" + root if root else "/") + rest
    return YPath(root, steps, attributes, plain)


def split(value: Any, what: str) -> tuple[str, dict[str, Any]]:
    """Take a rich path apart into the plain path and its attributes; `what` names it in errors."""
    if value is None:
        raise YtError(f'Missing required parameter "{what}"')
    if not isinstance(value, str):
        raise YtError(f'Error parsing parameter "{what}": a path must be a UTF-8 string')
    text, attributes = str(value), dict(getattr(value, "attributes", None) or {})
    if _RICH.search(text):
        text, found = parse_rich(text, what)
        attributes = {**found, **attributes}
    if not text.lstrip().startswith(("/", "#")):
        raise YtError(f'Path "{text}" does not start with a valid root-designator')
    return text, attributes


def parse_rich(given: str | bytes, what: str) -> tuple[str, dict[str, Any]]:
    """Return the plain path and the attributes that a rich path spells; they may be binary YSON."""
    try:
        text, attributes = RichYPath().parse(given)
        return text, load_yson(dump_yson(attributes), what)
    except (YPathError, yson.YsonError, ValueError, TypeError, RecursionError) as error:
        reason = text_of(error).partition("\n")[0]
        raise YtError(f"Error parsing {what} {given!r}: {reason}") from error


def escape(name: str) -> str:
    """Return the name of a child as it appears in a path."""
    plain = "".join("\\" + char if char in _SPECIAL else char for char in name)
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", plain)


def name_of(given: Any) -> str:
    """Return the name of a node that came as a key or as bytes; raise `YtError` if it is no UTF-8."""
    if isinstance(given, str):
        return str(given)
    raw = bytes(yson.get_bytes(given))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise YtError(
            f"The name {raw!r} is not UTF-8, and such names of nodes are not supported by the embedded"
            " cluster; name the node otherwise"
        ) from error


def _root(text: str) -> tuple[str, str]:
    if text.startswith("/"):
        return "", text[1:]
    if text.startswith("#"):
        end = min((text.find(c) for c in "/&[{" if c in text), default=len(text))
        if end > 1:
            return text[1:end].lower(), text[end:]
    raise YtError(f'Path "{text}" does not start with a valid root-designator')


def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise YtError(f'Unexpected "{text[position]}" in path "{text}"; expected "/"')
        ampersand, at, asterisk, name = found.groups()
        following = text[found.end() : found.end() + 1]
        if at:
            steps.append(Mark.ATTRIBUTE)
        if ampersand or asterisk:
            steps.append(Mark(ampersand or asterisk))
        elif name:
            steps.append(_unescaped(name, text))
        elif at and following == "/":
            raise YtError(f'Attribute key cannot be empty in path "{text}"')
        elif not at:
            token = f'"{_TOKENS.get(following, "range")}" token "{following}"'
            end = 'end-of-string; please note that YPath cannot normally end with "/"'
            raise YtError(f'Expected "literal" in YPath but found {token if following else end}')
        position = found.end()
    return tuple(steps)


def _unescaped(name: str, text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            byte = int(code[1:], 16)
            return chr(byte if byte < 0x80 else _LONE_BYTE + byte)  # noqa: PLR2004 - the end of ASCII
        if code not in _SPECIAL:
            raise YtError(f'Invalid escape sequence "\\{code}" in path "{text}"')
        return code

    return name_of(_ESCAPED.sub(plain, name).encode(errors="surrogateescape"))
