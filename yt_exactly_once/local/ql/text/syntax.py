"""Syntax tree of a query, as written: names are not resolved and nothing has a type.

It has the node classes only. Where the language takes "a scalar or a tuple", a node holds a tuple of
expressions. The code that needs a scalar checks that there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.value_types import Type


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant; unsigned integers are told from signed ones by the type."""

    type: Type
    value: int | float | bool | bytes | None


@dataclass(frozen=True, eq=False)
class Reference:
    """A column or an alias, possibly qualified by the alias of a table."""

    name: str
    table: str | None = None


@dataclass(frozen=True, eq=False)
class Alias:
    """`expression AS name`, at any depth."""

    expression: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Call:
    """A function call, scalar or aggregate."""

    function: str
    arguments: Expressions


@dataclass(frozen=True, eq=False)
class Unary:
    """`+`, `-` or `NOT`."""

    operator: str
    operand: Expressions


@dataclass(frozen=True, eq=False)
class Binary:
    """A binary operator; relational ones also compare tuples."""

    operator: str
    left: Expressions
    right: Expressions


@dataclass(frozen=True, eq=False)
class In:
    """`IN` over constant tuples."""

    operand: Expressions
    values: tuple[Constants, ...]


Expression = Literal | Reference | Alias | Call | Unary | Binary | In
Expressions = tuple[Expression, ...]
Constants = tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class GroupBy:
    """GROUP BY with its condition."""

    keys: Expressions
    having: Expressions | None


@dataclass(frozen=True, eq=False)
class Query:
    """A whole query.

    Attributes:
        select: projections; None stands for `*`.
        path: of the table in FROM.
        alias: of this table.
        order_by: expressions, each with whether they descend.
        aliases: every name given by AS, from any depth and any clause.
    """

    select: Expressions | None
    path: str
    alias: str | None
    where: Expressions | None
    group_by: GroupBy | None
    order_by: tuple[tuple[Expressions, bool], ...]
    offset: int | None
    limit: int | None
    aliases: dict[str, Expression]


def walk(roots: Iterable[Expression]) -> Iterator[Expression]:
    """Yield expressions and all that they are made of, constants of `IN` excluded."""
    pending = list(roots)
    while pending:
        expression = pending.pop()
        yield expression
        match expression:
            case Alias(inner):
                pending.append(inner)
            case Call(arguments=parts) | Unary(operand=parts) | In(operand=parts):
                pending += parts
            case Binary(_, left, right):
                pending += left + right
