"""From syntax back to text: the names of output columns, and expressions quoted in errors.

Owns the spelling the server gives to a column that has no alias, see `FormatExpression` in
`yt/yt/library/query/base/ast.cpp`: every operand in parentheses, no other spaces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.lexer import RESERVED
from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Constants, Expression, Expressions

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def column_name(expression: Expression) -> str:
    """Return the name of the output column that an expression of SELECT or GROUP BY becomes."""
    match expression:
        case syntax.Alias(_, name):
            return name
        case syntax.Reference(name, table):
            return reference_name(name, table)
    return expression_text(expression)


def reference_name(name: str, table: str | None) -> str:
    """Return the name of a column that is only referred to: no quotes are added."""
    return name if table is None else f"{table}.{name}"


def expressions_text(expressions: Expressions) -> str:
    """Print a tuple of expressions without parentheses around it."""
    return ", ".join(map(expression_text, expressions))


def expression_text(expression: Expression) -> str:  # noqa: PLR0911 - a case per kind
    """Print an expression; an alias is printed as itself."""
    match expression:
        case syntax.Literal():
            return literal_text(expression)
        case syntax.Reference(name, table):
            return reference_name(quote_if_needed(name), table)
        case syntax.Alias(_, name):
            return quote_if_needed(name)
        case syntax.Call(function, arguments):
            return f"{function}({expressions_text(arguments)})"
        case syntax.Unary(operator, operand):
            return f"{operator}({expressions_text(operand)})"
        case syntax.Binary(operator, left, right):
            return f"({expressions_text(left)}){operator}({expressions_text(right)})"
    listed = ", ".join(map(_tuple_text, expression.values))
    return f"({expressions_text(expression.operand)}) IN ({listed})"


def literal_text(literal: syntax.Literal) -> str:
    """Print a constant."""
    value = literal.value
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f'"{_escape(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:f}"
    return f"{value}u" if literal.type is Type.UINT64 else str(value)


def quote_if_needed(name: str) -> str:
    """Put backticks around a name that would not be read back as an identifier."""
    if _IDENTIFIER.match(name) and name.upper() not in RESERVED:
        return name
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _escape(value: bytes) -> str:
    text = value.decode(errors="backslashreplace")
    return "".join(_ESCAPES.get(character, character) for character in text)


def _tuple_text(constants: Constants) -> str:
    text = ", ".join(map(literal_text, constants))
    return f"({text})" if len(constants) > 1 else text
