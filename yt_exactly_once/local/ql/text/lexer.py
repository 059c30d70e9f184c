"""From query text to tokens: keywords, quoting and numbers.

Owns the spelling of the language (`yt/yt/library/query/base/lexer.rl6`), not its grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lark import Token
from yt import yson

from yt_exactly_once.local.errors import YtError

_KEYWORDS = (
    "SELECT FROM WHERE HAVING OFFSET LIMIT JOIN ARRAY USING ASC DESC LEFT AS ON UNNEST AND OR IS NOT"
    " NULL BETWEEN IN TRANSFORM LIKE ILIKE RLIKE REGEXP ESCAPE FALSE TRUE CASE WHEN THEN ELSE END INF"
    " CAST"
)
KEYWORDS = frozenset(_KEYWORDS.split())
WORD_PAIRS = frozenset(("WITH INDEX", "WITH HINT", "WITH TOTALS", "GROUP BY", "ORDER BY"))
RESERVED = KEYWORDS - {"SELECT", "UNNEST", "CAST", "IS"} | frozenset(
    word for pair in WORD_PAIRS - {"WITH HINT"} for word in pair.split()
)
"""Words that are quoted when an expression is printed as a column name."""


def _named(pairs: str) -> dict[str, str]:
    words = pairs.split()
    return dict(zip(words[::2], words[1::2], strict=True))


OPERATORS = _named(
    "PLUS + MINUS - TILDE ~ STAR * SLASH / PERCENT % SHIFT_LEFT << SHIFT_RIGHT >> BAR | AMPERSAND &"
    " CONCATENATE || EQUAL = NOT_EQUAL != LESS < LESS_OR_EQUAL <= GREATER > GREATER_OR_EQUAL >="
)
PUNCTUATION = _named("LPAR ( RPAR ) LSQB [ RSQB ] COMMA , DOT . HASH #")
_SYMBOLS = {
    **{symbol: name for name, symbol in (OPERATORS | PUNCTUATION).items()},
    "<>": "NOT_EQUAL",
}

_STRING = r"'(?:[^'\\]++|\\.)*+'" + r'|"(?:[^"\\]++|\\.)*+"'
_BACKTICK = r"`(?:[^`\\]++|\\.)*+`"
QUOTED = re.compile(f"{_STRING}|{_BACKTICK}", re.DOTALL)
"""Strings, and names between backticks."""

_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<yson_boolean>%(?i:true|false)(?![A-Za-z_0-9]))
  | (?P<pair>(?i:with\s+(?:index|hint|totals)|(?:group|order)\s+by)(?![A-Za-z_0-9]))
  | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<uint>[0-9]+u)
  | (?P<double>(?:[0-9]*\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<int>[0-9]+)
  | (?P<string>{_STRING})
  | (?P<backtick>{_BACKTICK})
  | (?P<placeholder>\{{[A-Za-z_][A-Za-z_0-9]*\}})
  | (?P<symbol><=|>=|!=|<>|<<|>>|\|\||[()*,<=>+\-/%.|&~\#\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)

_QUOTE = re.compile(rb'(\\.)|"', re.DOTALL)
"""An escape, or a quote inside a string that other quotes are around."""

_BRACKETS = re.compile(r"[\[\]]")
BRACKET_SYNTAX_VERSION = 1
"""The last syntax version in which square brackets quote an identifier."""

_UINT64_END = 1 << 64
_INT64_END = 1 << 63
_MOST_DIGITS = 20


def tokenize(text: str, syntax_version: int) -> Iterator[Token]:
    """Yield the tokens of a query.

    Args:
        syntax_version: from 2 on only backticks quote identifiers.

    Raises:
        YtError: a number out of range. A character that starts no token is a token `FAILURE`, which
            no rule accepts.
    """
    position = 0
    while position < len(text):
        if text[position] == "[" and syntax_version <= BRACKET_SYNTAX_VERSION:
            end = _closing_bracket(text, position)
            if end is None:
                yield _token("FAILURE", text[position:], position, len(text))
                return
            yield _token("IDENTIFIER", text[position + 1 : end - 1], position, end)
            position = end
            continue
        match = _TOKEN.match(text, position)
        if match is None or (text[position] == "]" and syntax_version <= BRACKET_SYNTAX_VERSION):
            yield _token("FAILURE", text[position], position, position + 1)
            return
        end = match.end()
        kind = match.lastgroup
        if kind != "space":
            yield _token(*_READERS[str(kind)](match.group()), position, end)
        position = end


def unescape(quoted: str) -> bytes:
    """Decode the C escapes of a quoted string, quotes included in the argument; YSON has the same ones."""
    inner = quoted[1:-1].encode(errors="surrogateescape")
    escaped = _QUOTE.sub(lambda found: found[1] or b'\\"', inner)
    return bytes(yson.loads(b'"' + escaped + b'"', encoding=None))


def _token(name: str, value: Any, start: int, end: int) -> Token:
    return Token(name, value, start_pos=start, end_pos=end)


def _read_word(text: str) -> tuple[str, Any]:
    upper = text.upper()
    return (upper, text) if upper in KEYWORDS else ("IDENTIFIER", text)


def _integer(digits: str) -> int:
    # Python refuses to read very many digits.
    value = int(digits[-_MOST_DIGITS:])
    if digits[:-_MOST_DIGITS].strip("0") or value >= _UINT64_END:
        raise YtError(f'Integer literal "{digits}" is out of range')
    return value


def _signed(value: int) -> int:
    # The server reads an unsigned number and keeps its bits.
    return value if value < _INT64_END else value - _UINT64_END


_READERS: dict[str, Callable[[str], tuple[str, Any]]] = {
    "yson_boolean": lambda text: (text[1:].upper(), text),
    "pair": lambda text: ("_".join(text.upper().split()), text),
    "word": _read_word,
    "uint": lambda text: ("UINT64", _integer(text[:-1])),
    "double": lambda text: ("DOUBLE", float(text)),
    "int": lambda text: ("INT64", _signed(_integer(text))),
    "string": lambda text: ("STRING", unescape(text)),
    "backtick": lambda text: ("IDENTIFIER", unescape(text).decode(errors="surrogateescape")),
    "placeholder": lambda text: ("PLACEHOLDER", text),
    "symbol": lambda text: (_SYMBOLS[text], text),
}


def _closing_bracket(text: str, start: int) -> int | None:
    depth = 0
    for bracket in _BRACKETS.finditer(text, start):
        depth += 1 if bracket[0] == "[" else -1
        if not depth:
            return bracket.end()
    return None
