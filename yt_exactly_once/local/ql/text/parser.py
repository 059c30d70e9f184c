"""From query text to a syntax tree.

Owns the parse. It resolves no names and knows no tables; the only checks
are the ones the server's grammar makes itself (`yt/yt/library/query/base/parser.ypp`).
"""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.lexer import tokenize
from yt_exactly_once.local.ql.text.naming import expressions_text
from yt_exactly_once.local.ql.text.syntax import Constants, Expression, Expressions, Literal
from yt_exactly_once.local.ql.text.syntax_errors import OPERATORS, syntax_error
from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SIGNS = frozenset(("+", "-", "~"))


def parse(
    text: str, placeholders: Mapping[str, Any] | None = None, syntax_version: int = 1
) -> syntax.Query:
    """Parse a query.

    Args:
        text: the query, with or without the leading SELECT.
        placeholders: values of `{name}`.
        syntax_version: version of the quoting rules, see `lexer.tokenize`.

    Raises:
        YtError: the text is not a query; `position` and `query` show where it stops being one.
    """
    try:
        tokens = tokenize(text, placeholders or {}, syntax_version)
        return _grammar().parse(tokens)  # type: ignore[return-value]
    except UnexpectedToken as error:
        raise syntax_error(text, error) from None


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
        text,
        parser="lalr",
        lexer=_Tokens,
        transformer=_Builder(),
        maybe_placeholders=False,
    )


def _aliases(roots: Iterable[Expression]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    pending = list(roots)
    while pending:
        expression = pending.pop()
        pending.extend(syntax.children(expression))
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
    value = literal.value
    if operator == "+" or value is None:
        return literal
    if literal.type not in (Type.INT64, Type.UINT64) and not (
        operator == "-" and literal.type is Type.DOUBLE
    ):
        prefix = "Negation" if operator == "-" else "Bitwise negation"
        raise YtError(f"{prefix} of unsupported type")
    if isinstance(value, float):
        return Literal(literal.type, -value)
    changed = -int(value) if operator == "-" else ~int(value)
    bits = changed & 0xFFFF_FFFF_FFFF_FFFF
    if literal.type is Type.INT64 and bits >> 63:
        bits -= 1 << 64
    return Literal(literal.type, bits)


def _without_tokens(children: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if not isinstance(child, Token))


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds the tree while the parser reduces; tokens come as children, in order."""

    def start(self, *parts: Any) -> syntax.Query:
        select, table, joins, where, group_by, order_by, offset, limit = _without_tokens(parts)
        roots: list[Expression] = [*(select or ()), *(where or ())]
        for join in joins:
            if isinstance(join, syntax.ArrayJoin):
                roots += [alias.expression for alias in join.arrays]
            else:
                roots += [*join.left, *join.right]
            roots += join.predicate or ()
        if group_by is not None:
            roots += [*group_by.keys, *(group_by.having or ())]
        for item in order_by:
            roots += item.expressions
        return syntax.Query(
            select, table, joins, where, group_by, order_by, offset, limit, _aliases(roots)
        )

    def projections(self, expressions: Expressions) -> Expressions:
        return expressions

    def everything(self, _star: Token) -> None:
        return None

    def table(self, path: Token, alias: str | None) -> syntax.Table:
        return syntax.Table(path.value, alias)

    def name(self, *tokens: Token) -> str:
        return str(tokens[-1].value)

    def nothing(self) -> None:
        return None

    def number(self, _keyword: Token, number: Token) -> int:
        return int(number.value)

    def second(self, _first: Token, second: Any, *_rest: Any) -> Any:
        return second

    def yes(self, _token: Token) -> bool:
        return True

    def no(self) -> bool:
        return False

    def joins(
        self, *joins: syntax.Join | syntax.ArrayJoin
    ) -> tuple[syntax.Join | syntax.ArrayJoin, ...]:
        return joins

    def array_join(self, is_left: bool, *parts: Any) -> syntax.ArrayJoin:
        arrays, predicate = _without_tokens(parts)
        return syntax.ArrayJoin(is_left, arrays, predicate)

    def arrays(self, *parts: Any) -> tuple[syntax.Alias, ...]:
        return tuple(alias for (alias,) in _without_tokens(parts))

    def join_using(self, is_left: bool, *parts: Any) -> syntax.Join:
        table, references, predicate = _without_tokens(parts)
        return syntax.Join(table, is_left, references, (), (), predicate)

    def join_on(self, is_left: bool, *parts: Any) -> syntax.Join:
        table, left, right, predicate = _without_tokens(parts)
        return syntax.Join(table, is_left, (), left, right, predicate)

    def references(self, *parts: Any) -> tuple[syntax.Reference, ...]:
        return _without_tokens(parts)

    def grouped(self, *parts: Any) -> syntax.GroupBy:
        keys, *having = _without_tokens(parts)
        has_totals = any(getattr(part, "type", None) == "WITH_TOTALS" for part in parts)
        totals = syntax.Totals.BEFORE_HAVING if has_totals else syntax.Totals.NONE
        return syntax.GroupBy(keys, totals, having[0] if having else None)

    def grouped_totals_after(self, *parts: Any) -> syntax.GroupBy:
        keys, having = _without_tokens(parts)
        return syntax.GroupBy(keys, syntax.Totals.AFTER_HAVING, having)

    def order_items(self, *parts: Any) -> tuple[syntax.OrderItem, ...]:
        return _without_tokens(parts)

    def ascending(self, expressions: Expressions, *_direction: Token) -> syntax.OrderItem:
        return syntax.OrderItem(expressions, descending=False)

    def descending(self, expressions: Expressions, _direction: Token) -> syntax.OrderItem:
        return syntax.OrderItem(expressions, descending=True)

    def concatenated(self, left: Expressions, _comma: Token, right: Expressions) -> Expressions:
        return left + right

    def aliased(self, expressions: Expressions, _keyword: Token, name: Token) -> Expressions:
        if len(expressions) != 1:
            source = expressions_text(expressions)
            raise YtError(f'Aliased expression "{source}" must be scalar')
        return (syntax.Alias(expressions[0], name.value),)

    def binary(self, left: Expressions, operator: Token, right: Expressions) -> Expressions:
        name = OPERATORS.get(operator.type, operator.type)
        return (syntax.Binary(name, left, right),)

    def unary(self, operator: Token, operand: Expressions) -> Expressions:
        return (syntax.Unary(OPERATORS.get(operator.type, operator.type), operand),)

    def is_null(self, operand: Expressions, *_tokens: Token) -> Expressions:
        return (syntax.Call("is_null", operand),)

    def is_not_null(self, operand: Expressions, *_tokens: Token) -> Expressions:
        return (syntax.Unary("NOT", (syntax.Call("is_null", operand),)),)

    def between(self, *parts: Any) -> Expressions:
        operand, lower, upper = _without_tokens(parts)
        left = syntax.Binary(">=", operand, lower)
        right = syntax.Binary("<=", operand, upper)
        return (syntax.Binary("AND", (left,), (right,)),)

    def between_ranges(self, *parts: Any) -> Expressions:
        operand, ranges = _without_tokens(parts)
        return (syntax.Between(operand, ranges),)

    def ranges(self, *parts: Any) -> tuple[tuple[Constants, Constants], ...]:
        return _without_tokens(parts)

    def range(
        self, lower: Expressions, _and: Token, upper: Expressions
    ) -> tuple[Constants, Constants]:
        bounds = _constants(lower), _constants(upper)
        if bounds[0] is None or bounds[1] is None:
            raise YtError("Expressions are not supported in multiple ranges BETWEEN clause")
        return bounds[0], bounds[1]

    def in_nothing(self, *_parts: Any) -> Expressions:
        return (Literal(Type.BOOLEAN, value=False),)

    def not_in_nothing(self, *_parts: Any) -> Expressions:
        return (Literal(Type.BOOLEAN, value=True),)

    def expression_list(self, *parts: Any) -> tuple[Expressions, ...]:
        return _without_tokens(parts)

    def in_list(self, *parts: Any) -> Expressions:
        operand, listed = _without_tokens(parts)
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
        combined = alternatives[0]
        for alternative in alternatives[1:]:
            combined = syntax.Binary("OR", (combined,), (alternative,))
        return (combined,)

    def not_in_list(self, *parts: Any) -> Expressions:
        return (syntax.Unary("NOT", self.in_list(*parts)),)

    def match_operator(self, token: Token) -> str:
        return {"RLIKE": "REGEX", "REGEXP": "REGEX"}.get(token.type, token.type)

    def like(
        self,
        text: Expressions,
        operator: str,
        pattern: Expressions,
        escape: Expressions | None,
    ) -> Expressions:
        return (syntax.Like(text, operator, pattern, escape),)

    def not_like(self, *parts: Any) -> Expressions:
        return (syntax.Unary("NOT", self.like(*_without_tokens(parts))),)

    def single(self, expression: Expression) -> Expressions:
        return (expression,)

    def transform(self, *parts: Any) -> Expressions:
        return (syntax.Transform(*_without_tokens(parts)),)

    def transform_default(self, *parts: Any) -> Any:
        return parts[-1] if parts else None

    def case_operand(self, *parts: Any) -> Expressions:
        return (syntax.Case(*_without_tokens(parts)),)

    def case_conditions(self, *parts: Any) -> Expressions:
        return (syntax.Case(None, *_without_tokens(parts)),)

    def branches(self, *branches: Any) -> tuple[Any, ...]:
        return branches

    def branch(self, *parts: Any) -> tuple[Any, ...]:
        return _without_tokens(parts)

    def call(self, function: Token, *parts: Any) -> Expressions:
        arguments = _without_tokens(parts)
        return (syntax.Call(function.value, arguments[0] if arguments else ()),)

    def cast(self, *parts: Any) -> Expressions:
        (operand,) = _without_tokens(parts)
        if len(operand) != 1:
            raise YtError(f"Expected a single argument for CAST operator, got {len(operand)}")
        target = Literal(Type.STRING, parts[4].value.encode())
        return (syntax.Call("cast_operator", (operand[0], target)),)

    def reference(self, *tokens: Token) -> syntax.Reference:
        table = tokens[0].value if len(tokens) > 1 else None
        return syntax.Reference(tokens[-1].value, table)

    def member_reference(self, *parts: Any) -> syntax.Reference:
        table, _, name, path = parts
        return syntax.Reference(name.value, table.value, path)

    def item_reference(self, *parts: Any) -> syntax.Reference:
        table, _, name, item = parts
        return syntax.Reference(name.value, table.value, (), item)

    def member_item_reference(self, *parts: Any) -> syntax.Reference:
        table, _, name, path, item = parts
        return syntax.Reference(name.value, table.value, path, item)

    def members(self, *steps: str | int) -> tuple[str | int, ...]:
        return steps

    def member_name(self, _dot: Token, name: Token) -> str:
        return str(name.value)

    def member_index(self, number: Token) -> int:
        digits = number.value.text.removeprefix(".")
        if not digits.isdigit():
            raise YtError(f'Expected the index of a tuple element, got "{number.value.text}"')
        return int(digits)

    def literal(self, token: Token) -> Literal:
        match token.type:
            case "TRUE" | "FALSE":
                return Literal(Type.BOOLEAN, token.type == "TRUE")
            case "NULL" | "HASH":
                return Literal(Type.NULL, None)
            case "INF":
                return Literal(Type.DOUBLE, math.inf)
        return Literal(Type[token.type], token.value)

    def constant(self, literal: Literal) -> Literal:
        return literal

    def constant_sign(self, operator: Token, literal: Literal) -> Literal:
        return _signed(OPERATORS[operator.type], literal)

    def constant_tuple(self, *parts: Any) -> Constants:
        return _without_tokens(parts)

    def constant_tuples(self, *parts: Any) -> tuple[Constants, ...]:
        return _without_tokens(parts)
