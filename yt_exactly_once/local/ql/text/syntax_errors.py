"""Syntax errors in the words of the server's parser.

Owns the names of tokens and the choice between a typing mistake and a clause that the embedded cluster
lacks. It parses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.text.lexer import OPERATORS, PUNCTUATION

if TYPE_CHECKING:
    from lark import UnexpectedToken

_TOKEN_NAMES = {
    **{name: f"`{symbol}`" for name, symbol in (OPERATORS | PUNCTUATION).items()},
    "$END": "end of stream",
    "FAILURE": "lexer failure",
    "IDENTIFIER": "identifier",
    "INT64": "int64 literal",
    "UINT64": "uint64 literal",
    "DOUBLE": "double or dot int token",
    "STRING": "string literal",
}
_CLAUSES = (
    "JOIN LEFT WITH_INDEX WITH_HINT WITH_TOTALS UNNEST TRANSFORM LIKE ILIKE RLIKE REGEXP CAST CASE"
)
_OPERATORS = ("BAR", "AMPERSAND", "TILDE", "SHIFT_LEFT", "SHIFT_RIGHT", "CONCATENATE")
_UNSUPPORTED = {
    **{name: name.replace("_", " ") for name in _CLAUSES.split()},
    **{name: f"Operator {OPERATORS[name]}" for name in _OPERATORS},
    "LEFT": "LEFT JOIN",
    "ARRAY": "ARRAY JOIN",
    "DOT": "Access to a part of a composite value",
    "PLACEHOLDER": "A placeholder",
}
_MAX_EXPECTED = 4
_CONTEXT = 16


def syntax_error(text: str, error: UnexpectedToken) -> YtError:
    """Return the error for a token that no rule accepts."""
    token = error.token
    start, end = token.start_pos, token.end_pos
    if token.type == "$END" or start is None or end is None:
        start = end = len(text)
    in_from = token.type == "LPAR" and text[:start].rstrip().upper().endswith("FROM")
    if token.type in _UNSUPPORTED or in_from or (token.type == "SELECT" and start > 0):
        name = _UNSUPPORTED.get(token.type, "Subquery")
        return YtError(
            f"{name} is not supported by the embedded cluster; rewrite the query without it",
            position=f"{start}-{end}",
        )
    message = f"syntax error, unexpected {_token_name(token.type)}"
    expected = sorted(map(_token_name, error.accepts or ()))
    if 0 < len(expected) <= _MAX_EXPECTED:
        message += f", expecting {' or '.join(expected)}"
    after = text[end : end + _CONTEXT]
    return YtError(
        f"Error while parsing query: {message}",
        position=f"{start}-{end}",
        query=f"{text[max(start - _CONTEXT, 0) : start]} >>>>> {text[start:end]} <<<<< {after}",
    )


def _token_name(name: str) -> str:
    return _TOKEN_NAMES.get(name) or f"keyword `{name.replace('_', ' ')}`"
