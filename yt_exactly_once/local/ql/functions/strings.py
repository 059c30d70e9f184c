"""Functions on strings: search, case, patterns, conversions to and from numbers.

One entry per function. Regular expressions and LIKE use Python's engine: on characters if the text is UTF-8,
on bytes otherwise. The server has RE2, whose rarer constructs differ.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.general import scalar_in_any
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import NUMERIC, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODEC = {"encoding": "utf-8", "errors": "surrogateescape"}
_UINT64_END = 1 << 64
_INT64_END = 1 << 63


def _text(data: bytes) -> str:
    return data.decode(**_CODEC)


def _bytes(text: str) -> bytes:
    return text.encode(**_CODEC)


@lru_cache(maxsize=256)
def _regex(pattern: bytes) -> re.Pattern[str]:
    try:
        return re.compile(_text(pattern))
    except re.error as error:
        raise YtError(
            f'Error parsing regular expression "{_text(pattern)}"', inner=[YtError(str(error))]
        ) from error


def _rewrite(match: re.Match[str], template: str) -> str:
    def group(reference: re.Match[str]) -> str:
        digit = reference[1]
        return "\\" if digit == "\\" else match[int(digit)] or ""

    return re.sub(r"\\([0-9\\])", group, template)


def _replace(pattern: bytes, text: bytes, template: bytes, count: int) -> bytes:
    replaced = _regex(pattern).sub(
        lambda match: _rewrite(match, _text(template)), _text(text), count=count
    )
    return _bytes(replaced)


def _extract(_types: Sequence[Type], pattern: bytes, text: bytes, template: bytes) -> bytes:
    match = _regex(pattern).search(_text(text))
    return b"" if match is None else _bytes(_rewrite(match, _text(template)))


def _escape_regex(_types: Sequence[Type], pattern: bytes) -> bytes:
    # RE2 puts a backslash before everything that is neither a word character nor above ASCII.
    return re.sub(rb"([^A-Za-z0-9_\x80-\xff])", rb"\\\1", pattern).replace(b"\\\0", b"\\x00")


@lru_cache(maxsize=256)
def like_regex(pattern: bytes, operator: str, escape: bytes | None) -> re.Pattern[str]:
    """Translate a LIKE pattern.

    Raises:
        YtError: a malformed pattern or escape.
    """
    if operator == "REGEX":
        return _regex(pattern)
    if escape is not None and len(escape) > 1:
        raise YtError("Escape string must be empty or one character")
    escaping = "\\" if escape is None else _text(escape) or "\0"
    parts = []
    characters = iter(_text(pattern))
    for character in characters:
        if character == escaping:
            following = next(characters, None)
            if following is None:
                raise YtError("Incomplete escape sequence at the end of LIKE pattern")
            parts.append(re.escape(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    flags = re.DOTALL | (re.IGNORECASE if operator == "ILIKE" else 0)
    return re.compile("".join(parts), flags)


def like(operator: str, text: bytes, pattern: bytes, escape: bytes | None) -> bool:
    """Match a whole string against a pattern."""
    return like_regex(pattern, operator, escape).fullmatch(_text(text)) is not None


def number_text(types: Sequence[Type], value: Any) -> bytes:
    """Print a number the way text YSON does."""
    if types[0] is Type.DOUBLE:
        dumped: bytes = yson.dumps(float(value), yson_format="text")
        return dumped
    return b"%du" % value if types[0] is Type.UINT64 else b"%d" % value


def _parse_number(text: bytes, target: Type) -> Any:
    try:
        kind, value = scalar_in_any(text.strip())
    except yson.YsonError:
        kind, value = None, None
    if kind not in NUMERIC:
        shown = text.decode(errors="backslashreplace")
        raise YtError(f'Cannot convert value "{shown}" of type "{target.title}" to "string"')
    if target is Type.DOUBLE:
        return float(value)
    if isinstance(value, float):
        value = math.trunc(value) if math.isfinite(value) else 0
    bits = value & (_UINT64_END - 1)
    return bits - _UINT64_END if target is Type.INT64 and bits >= _INT64_END else bits


def parse_int64(_types: Sequence[Type], text: bytes) -> int:
    """Read a number as a signed integer."""
    return int(_parse_number(text, Type.INT64))


def parse_uint64(_types: Sequence[Type], text: bytes) -> int:
    """Read a number as an unsigned integer."""
    return int(_parse_number(text, Type.UINT64))


def parse_double(_types: Sequence[Type], text: bytes) -> float:
    """Read a number as a double."""
    return float(_parse_number(text, Type.DOUBLE))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _format_guid(_types: Sequence[Type], high: int, low: int) -> bytes:
    parts = (low >> 32, low & 0xFFFF_FFFF, high >> 32, high & 0xFFFF_FFFF)
    return "-".join(f"{part:x}" for part in parts).encode()


_S = Type.STRING

FUNCTIONS = (
    Function("length", (_S,), Type.INT64, sql=lambda arguments, _types: f"length({arguments[0]})"),
    Function(
        "concat",
        (_S, _S),
        _S,
        sql=lambda arguments, _types: f"CAST(({arguments[0]} || {arguments[1]}) AS BLOB)",
    ),
    Function("lower", (_S,), _S, python=lambda _types, text: _bytes(_text(text).lower())),
    Function("is_substr", (_S, _S), Type.BOOLEAN, python=lambda _types, part, whole: part in whole),
    Function(
        "is_prefix",
        (_S, _S),
        Type.BOOLEAN,
        python=lambda _types, prefix, whole: whole.startswith(prefix),
    ),
    Function("is_valid_utf8", (_S,), Type.BOOLEAN, python=lambda _types, data: _is_utf8(data)),
    Function(
        "to_valid_utf8",
        (_S,),
        _S,
        python=lambda _types, data: data.decode(errors="replace").encode(),
    ),
    Function("numeric_to_string", (NUMERIC,), _S, python=number_text),
    Function("parse_int64", (_S,), Type.INT64, python=parse_int64),
    Function("parse_uint64", (_S,), Type.UINT64, python=parse_uint64),
    Function("parse_double", (_S,), Type.DOUBLE, python=parse_double),
    Function("format_guid", (Type.UINT64, Type.UINT64), _S, python=_format_guid),
    Function(
        "regex_full_match",
        (_S, _S),
        Type.BOOLEAN,
        python=lambda _types, pattern, text: (
            None not in (pattern, text) and _regex(pattern).fullmatch(_text(text)) is not None
        ),
        null_if_any_null=False,
        never_null=True,
    ),
    Function(
        "regex_partial_match",
        (_S, _S),
        Type.BOOLEAN,
        python=lambda _types, pattern, text: (
            None not in (pattern, text) and _regex(pattern).search(_text(text)) is not None
        ),
        null_if_any_null=False,
        never_null=True,
    ),
    Function(
        "regex_replace_first",
        (_S, _S, _S),
        _S,
        python=lambda _types, pattern, text, template: _replace(pattern, text, template, 1),
    ),
    Function(
        "regex_replace_all",
        (_S, _S, _S),
        _S,
        python=lambda _types, pattern, text, template: _replace(pattern, text, template, 0),
    ),
    Function("regex_extract", (_S, _S, _S), _S, python=_extract),
    Function("regex_escape", (_S,), _S, python=_escape_regex),
)
