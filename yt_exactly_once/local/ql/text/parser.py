"""From query text to a syntax tree.

Owns the parse, and its errors in the words of the server's parser. It resolves no names and knows no tables;
the only checks are the ones the server's grammar makes itself (`yt/yt/library/query/base/parser.ypp`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import chain, pairwise
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.lexer import OPERATORS, PUNCTUATION, QUOTED, tokenize
from yt_exactly_once.local.ql.text.naming import expressions_text
from yt_exactly_once.local.ql.text.syntax import Constants, Expression, Expressions, Literal
from yt_exactly_once.local.ql.value_types import NUMERIC, Type

_MOST_CHARACTERS = 1 << 18
"""Of a query: each may be a token, and many tokens take long."""

_MOST_PARTS = 3 << 12
"""Of a query: each takes up to 300 bytes. Two items of a list count as one, and four escapes of a text."""

_SIGNS = ("+", "-")
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


def parse(text: str, syntax_version: int = 1) -> syntax.Query:
    """Parse a query.

    Args:
        text: the query, with or without the leading SELECT.
        syntax_version: version of the quoting rules, see `lexer.tokenize`.

    Raises:
        YtError: the text is not a query; `position` and `query` show where it stops being one.
    """
    bare = QUOTED.sub("", text) if len(text) > _MOST_PARTS else ""
    parts = sum(map(bare.count, "-+*/%|&~([<>=!"))
    parts += bare.count(",") // 2 + text.count("\\") // 4
    if len(text) > _MOST_CHARACTERS or parts > _MOST_PARTS:
        raise YtError(
            f"A query of {len(text)} characters and {parts} parts; the embedded cluster takes"
            f" {_MOST_CHARACTERS} and {_MOST_PARTS}: look rows up instead"
        )
    try:
        return _grammar().parse(tokenize(text, syntax_version))  # type: ignore[return-value]
    except UnexpectedToken as error:
        raise _syntax_error(text, error) from None


def _syntax_error(text: str, error: UnexpectedToken) -> YtError:
    """Return the error for a token that no rule accepts: a mistake, or a clause that is lacking here."""
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


def scalar(expressions: Expressions) -> Expression:
    """Return the only expression of a tuple."""
    if len(expressions) != 1:
        raise YtError("Expecting scalar expression", source=expressions_text(expressions))
    return expressions[0]


class _Tokens(Lexer):
    """Hands tokens that exist already to the parser."""

    def __init__(self, _configuration: object) -> None:
        pass

    def lex(self, tokens: Any) -> Iterator[Token]:  # type: ignore[override]
        return iter(tokens)


@cache
def _grammar() -> Lark:
    text = resources.files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer=_Tokens, transformer=_Builder(), maybe_placeholders=False
    )


def _aliases(roots: Iterable[Expression]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for expression in syntax.walk(roots):
        if isinstance(expression, syntax.Alias):
            # BETWEEN repeats its operand, so one alias may be met twice.
            known = found.setdefault(expression.name, expression.expression)
            if known is not expression.expression:
                raise YtError(f'Alias "{expression.name}" has been already used')
    return found


def _constant(expression: Expression) -> Literal | None:
    if isinstance(expression, Literal):
        return expression
    if isinstance(expression, syntax.Unary) and len(expression.operand) == 1:
        inner = _constant(expression.operand[0])
        if inner is not None and expression.operator in _SIGNS and inner.type <= Type.DOUBLE:
            return _signed(expression.operator, inner)
    return None


def _constants(expressions: Expressions) -> Constants | None:
    found = [_constant(expression) for expression in expressions]
    return None if None in found else tuple(literal for literal in found if literal is not None)


def _signed(operator: str, literal: Literal) -> Literal:
    if operator == "+" or literal.value is None:
        return literal
    if literal.type not in NUMERIC:
        raise YtError("Negation of unsupported type")
    return Literal(literal.type, arithmetic.negate(literal.type, literal.value))


def _within(
    lower: tuple[Expressions, Expressions], upper: tuple[Expressions, Expressions]
) -> Expression:
    conditions = syntax.Binary(">=", *lower), syntax.Binary("<=", *upper)
    return syntax.Binary("AND", (conditions[0],), (conditions[1],))


def _require_disjoint(operand: Expressions, ranges: Iterable[Iterable[Expressions]]) -> None:
    """Check what the server checks of a list of ranges (`LiteralRangesListToRows`)."""
    found = []
    for bounds in ranges:
        lower, upper = map(_constants, bounds)
        if lower is None or upper is None:
            continue
        low, high = list(map(_place, lower)), list(map(_place, upper))
        if low[: len(high)] > high[: len(low)]:
            raise YtError("Lower bound is greater than upper", source=expressions_text(operand))
        found.append((low, high))
    found.sort()
    for (_, before), (after, _) in pairwise(found):
        if before[: len(after)] >= after[: len(before)]:
            raise YtError("Ranges are not disjoint", source=expressions_text(operand))


def _place(literal: Literal) -> tuple[int, Any]:
    """Return by what literals sort, whatever their types: null first, numbers, texts."""
    value = literal.value
    return (0, 0) if value is None else (1 + isinstance(value, bytes), value)


def _any_of(conditions: Sequence[Expression]) -> Expression:
    """Join conditions as a tree of logarithmic depth: the depth is limited."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    left, right = _any_of(conditions[:middle]), _any_of(conditions[middle:])
    return syntax.Binary("OR", (left,), (right,))


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds the tree while the parser reduces."""

    def start(
        self,
        select: Expressions | None,
        path: Token,
        alias: str | None,
        where: Expressions | None,
        group_by: syntax.GroupBy | None,
        order_by: tuple[tuple[Expressions, bool], ...],
        offset: int | None,
        limit: int | None,
    ) -> syntax.Query:
        roots: list[Expression] = [*(select or ()), *(where or ())]
        if group_by is not None:
            roots += [*group_by.keys, *(group_by.having or ())]
        for expressions, _ in order_by:
            roots += expressions
        clauses = where, group_by, order_by, offset, limit
        return syntax.Query(select, path.value, alias, *clauses, _aliases(roots))

    def nothing(self) -> None:
        return None

    def many(self, *parts: Any) -> tuple[Any, ...]:
        return parts

    def concatenated(self, *parts: Expressions) -> Expressions:
        return tuple(chain.from_iterable(parts))

    def name(self, token: Token) -> str:
        return str(token.value)

    def number(self, token: Token) -> int:
        return int(token.value)

    def grouped(
        self, _keyword: Token, keys: Expressions, having: Expressions | None = None
    ) -> syntax.GroupBy:
        return syntax.GroupBy(keys, having)

    def order_items(self, _keyword: Token, *items: Any) -> tuple[tuple[Expressions, bool], ...]:
        return items

    def ascending(self, expressions: Expressions) -> tuple[Expressions, bool]:
        return expressions, False

    def descending(self, expressions: Expressions) -> tuple[Expressions, bool]:
        return expressions, True

    def aliased(self, expressions: Expressions, name: Token) -> Expressions:
        if len(expressions) != 1:
            source = expressions_text(expressions)
            raise YtError(f'Aliased expression "{source}" must be scalar')
        return (syntax.Alias(expressions[0], name.value),)

    def binary(self, left: Expressions, operator: Token, right: Expressions) -> Expressions:
        name = OPERATORS.get(operator.type, operator.type)
        return (syntax.Binary(name, left, right),)

    def unary(self, operator: Token, operand: Expressions) -> Expressions:
        return (syntax.Unary(OPERATORS.get(operator.type, operator.type), operand),)

    def is_null(self, operand: Expressions) -> Expressions:
        return (syntax.Call("is_null", operand),)

    def is_not_null(self, operand: Expressions) -> Expressions:
        return (syntax.Unary("NOT", (syntax.Call("is_null", operand),)),)

    def between(self, operand: Expressions, lower: Expressions, upper: Expressions) -> Expressions:
        return (_within((operand, lower), (operand, upper)),)

    def between_ranges(self, operand: Expressions, *ranges: Any) -> Expressions:
        _require_disjoint(operand, ranges)
        # A bound that is shorter than the operand bounds a prefix of it.
        prefixes = [[(operand[: len(bound)], bound) for bound in bounds] for bounds in ranges]
        return (_any_of([_within(lower, upper) for lower, upper in prefixes]),)

    def in_nothing(self, _operand: Expressions) -> Expressions:
        return (Literal(Type.BOOLEAN, value=False),)

    def not_in_nothing(self, _operand: Expressions) -> Expressions:
        return (Literal(Type.BOOLEAN, value=True),)

    def in_list(self, operand: Expressions, listed: tuple[Expressions, ...]) -> Expressions:
        values: list[Constants] = []
        alternatives: list[Expression] = []
        for item in listed:
            constants = _constants(item)
            if constants is None:
                alternatives.append(syntax.Binary("=", operand, item))
            else:
                values.append(constants)
        if values:
            alternatives.insert(0, syntax.In(operand, tuple(values)))
        return (_any_of(alternatives),)

    def not_in_list(self, *parts: Any) -> Expressions:
        return (syntax.Unary("NOT", self.in_list(*parts)),)

    def call(self, function: Token, arguments: Expressions = ()) -> Expressions:
        return (syntax.Call(function.value, arguments),)

    def reference(self, name: Token) -> syntax.Reference:
        return syntax.Reference(name.value)

    def qualified_reference(self, table: Token, name: Token) -> syntax.Reference:
        return syntax.Reference(name.value, table.value)

    def literal(self, token: Token) -> Literal:
        match token.type:
            case "TRUE" | "FALSE":
                return Literal(Type.BOOLEAN, token.type == "TRUE")
            case "NULL" | "HASH":
                return Literal(Type.NULL, None)
            case "INF":
                return Literal(Type.DOUBLE, math.inf)
        return Literal(Type[token.type], token.value)
