"""Syntax tree of a query, as written: names are not resolved and nothing has a type.

It has the node classes only. Where the language takes "a scalar or a tuple", a node holds a tuple of
expressions. The code that needs a scalar checks that there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
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
    """`+`, `-`, `~` or `NOT`."""

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


@dataclass(frozen=True, eq=False)
class Between:
    """`BETWEEN` over a list of constant ranges, bounds included, shorter bounds are prefixes."""

    operand: Expressions
    ranges: tuple[tuple[Constants, Constants], ...]


@dataclass(frozen=True, eq=False)
class Case:
    """`CASE`, with an operand to compare or with conditions."""

    operand: Expressions | None
    branches: tuple[tuple[Expressions, Expressions], ...]
    default: Expressions | None


Expression = Literal | Reference | Alias | Call | Unary | Binary | In | Between | Case
Expressions = tuple[Expression, ...]
Constants = tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """A table in FROM or JOIN."""

    path: str
    alias: str | None


@dataclass(frozen=True, eq=False)
class Join:
    """One join: by common columns (`using`) or by equal tuples (`left`, `right`)."""

    table: Table
    is_left: bool
    using: tuple[Reference, ...]
    left: Expressions
    right: Expressions
    predicate: Expressions | None


class Totals(Enum):
    """Whether, and from which groups, a row of totals is added."""

    NONE = "none"
    BEFORE_HAVING = "before having"
    AFTER_HAVING = "after having"


@dataclass(frozen=True, eq=False)
class OrderItem:
    """One element of ORDER BY."""

    expressions: Expressions
    descending: bool


@dataclass(frozen=True, eq=False)
class GroupBy:
    """GROUP BY with its modifiers."""

    keys: Expressions
    totals: Totals
    having: Expressions | None


@dataclass(frozen=True, eq=False)
class Query:
    """A whole query.

    Attributes:
        select: projections; None stands for `*`.
        aliases: every name given by AS, from any depth and any clause.
    """

    select: Expressions | None
    table: Table
    joins: tuple[Join, ...]
    where: Expressions | None
    group_by: GroupBy | None
    order_by: tuple[OrderItem, ...]
    offset: int | None
    limit: int | None
    aliases: dict[str, Expression]


def children(expression: Expression) -> Expressions:
    """Return the direct subexpressions, constants excluded."""
    match expression:
        case Alias(inner):
            return (inner,)
        case Call(arguments=parts) | Unary(operand=parts):
            return parts
        case In(operand=parts) | Between(operand=parts):
            return parts
        case Binary(_, left, right):
            return left + right
        case Case(operand, branches, default):
            parts = sum((condition + result for condition, result in branches), ())
            return (operand or ()) + parts + (default or ())
    return ()
