"""Functions on strings: search, case, patterns, conversions to and from numbers.

Regular expressions and LIKE use RE2, as the server does: its time is linear in the
text whatever the pattern, and it does not hold the interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.general import converted_number, scalar_in_any
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import NUMERIC, Type

_LARGEST_PROGRAM = 10_000
"""Steps of a compiled pattern: from several times as many on RE2 has no memory for its fast engine."""
_REWRITE = re.compile(rb"\\(.?)", re.DOTALL)
_CONTINUED = 0x80
_CODEC = {"encoding": "utf-8", "errors": "surrogateescape"}
_S = Type.STRING


def _text(data: bytes) -> str:
    return data.decode(**_CODEC)


def _bytes(text: str) -> bytes:
    return text.encode(**_CODEC)


@lru_cache(maxsize=256)
def _regex(pattern: bytes, *, is_utf8: bool = True) -> Any:
    # Few queries need it.
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    if not is_utf8:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        made = re2.compile(pattern, options)
    except re2.error as error:
        # The engine's messages are bytes.
        reason = bytes(error.args[0]).decode(errors="replace") if error.args else ""
        raise YtError(
            f'Error parsing regular expression "{_text(pattern)}"', inner=[YtError(reason)]
        ) from error
    if made.programsize > _LARGEST_PROGRAM:
        raise YtError(
            f"A regular expression takes {made.programsize} steps; the embedded cluster runs up to"
            f" {_LARGEST_PROGRAM}"
        )
    return made


def _can_rewrite(regex: Any, template: bytes) -> bool:
    """Tell whether a template names groups that are there; RE2 leaves the text as it is otherwise."""
    escapes = _REWRITE.findall(template)
    return all(one == b"\\" or (one.isdigit() and int(one) <= regex.groups) for one in escapes)


def _rewrite(match: Any, template: bytes) -> bytes:
    def group(reference: re.Match[bytes]) -> bytes:
        digit = reference[1]
        return b"\\" if digit == b"\\" else match[int(digit)] or b""

    return _REWRITE.sub(group, template)


def _replace(pattern: bytes, text: bytes, template: bytes, count: int | None) -> bytes:
    regex = _regex(pattern)
    if not _can_rewrite(regex, template):
        return text
    pieces, end = [], 0
    for match in islice(_replaced(regex, text), count):
        pieces += [text[end : match.start()], _rewrite(match, template)]
        end = match.end()
    return b"".join([*pieces, text[end:]])


def _replaced(regex: Any, text: bytes) -> Iterator[Any]:
    """Yield the matches that RE2 replaces: an empty one is neither inside a character nor behind a match."""
    end = -1
    for match in regex.finditer(text):
        start = match.start()
        is_inside = text[start : start + 1] and text[start] & 0xC0 == _CONTINUED
        if match.end() > start or not (is_inside or start == end):
            end = match.end()
            yield match


@function("regex_extract", (_S, _S, _S), _S)
def _extract(pattern: bytes, text: bytes, template: bytes) -> bytes:
    regex = _regex(pattern)
    match = regex.search(text) if _can_rewrite(regex, template) else None
    return text if match is None else _rewrite(match, template)


@function("regex_escape", (_S,), _S)
def _escaped(text: bytes) -> bytes:
    # RE2 puts a backslash before everything that is neither a word character nor above ASCII.
    return re.sub(rb"([^A-Za-z0-9_\x80-\xff])", rb"\\\1", text).replace(b"\\\0", b"\\x00")


@lru_cache(maxsize=256)
def _like_regex(pattern: bytes, operator: str, escape: bytes | None, *, is_utf8: bool) -> Any:
    """Translate a LIKE pattern.

    Raises:
        YtError: a malformed pattern or escape.
    """
    if escape is not None and len(escape) > 1:
        raise YtError("Escape string must be empty or one character")
    escaping = "\\" if escape is None else _text(escape) or "\0"
    parts = [b"(?is)" if operator == "ILIKE" else b"(?s)"]
    characters = iter(_text(pattern))
    for character in characters:
        if character == escaping:
            following = next(characters, None)
            if following is None:
                raise YtError("Incomplete escape sequence at the end of LIKE pattern")
            parts.append(_escaped(_bytes(following)))
        else:
            parts.append({"%": b".*", "_": b"."}.get(character) or _escaped(_bytes(character)))
    return _regex(b"".join(parts), is_utf8=is_utf8)


def like(operator: str, text: bytes, pattern: bytes, escape: bytes | None) -> bool:
    """Match a whole string against a pattern."""
    if operator == "REGEX":
        return _regex(pattern).fullmatch(text) is not None
    is_utf8 = _is_utf8(text) and _is_utf8(pattern)
    return _like_regex(pattern, operator, escape, is_utf8=is_utf8).fullmatch(text) is not None


@function("numeric_to_string", (NUMERIC,), _S, typed=True)
def _number_text(types: Sequence[Type], value: Any) -> bytes:
    """Print a number the way text YSON does."""
    if types[0] is Type.DOUBLE:
        dumped: bytes = yson.dumps(float(value), yson_format="text")
        return dumped
    return b"%du" % value if types[0] is Type.UINT64 else b"%d" % value


def _parse_number(target: Type, text: bytes) -> Any:
    try:
        kind, value = scalar_in_any(text.strip())
    except yson.YsonError:
        kind, value = None, None
    if kind not in NUMERIC:
        shown = text.decode(errors="backslashreplace")
        raise YtError(f'Cannot convert value "{shown}" of type "{target.title}" to "string"')
    return converted_number(value, target)


for _target in NUMERIC:
    declare(f"parse_{_target.title}", (_S,), _target, python=partial(_parse_number, _target))


@function("is_valid_utf8", (_S,), Type.BOOLEAN)
def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@function("format_guid", (Type.UINT64, Type.UINT64), _S)
def _format_guid(high: int, low: int) -> bytes:
    parts = (low >> 32, low & 0xFFFF_FFFF, high >> 32, high & 0xFFFF_FFFF)
    return "-".join(f"{part:x}" for part in parts).encode()


@function("regex_full_match", (_S, _S), Type.BOOLEAN, nulls="never")
def _full_match(pattern: bytes | None, text: bytes | None) -> bool:
    return not (pattern is None or text is None) and _regex(pattern).fullmatch(text) is not None


@function("regex_partial_match", (_S, _S), Type.BOOLEAN, nulls="never")
def _partial_match(pattern: bytes | None, text: bytes | None) -> bool:
    return not (pattern is None or text is None) and _regex(pattern).search(text) is not None


declare("regex_replace_first", (_S, _S, _S), _S, python=partial(_replace, count=1))
declare("regex_replace_all", (_S, _S, _S), _S, python=partial(_replace, count=None))
declare("length", (_S,), Type.INT64, sql="length({0})")
declare("concat", (_S, _S), _S, sql="CAST(({0} || {1}) AS BLOB)")
declare("lower", (_S,), _S, python=lambda text: _bytes(_text(text).lower()))
declare("is_substr", (_S, _S), Type.BOOLEAN, python=lambda part, whole: part in whole)
declare("is_prefix", (_S, _S), Type.BOOLEAN, python=lambda prefix, whole: whole.startswith(prefix))
declare("to_valid_utf8", (_S,), _S, python=lambda data: data.decode(errors="replace").encode())
