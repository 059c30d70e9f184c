"""Expressions after binding: names resolved, every node with one type.

Owns the node classes, nothing else. `nullable` says whether a node can be null at all; the compiler
saves work where it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Function
    from yt_exactly_once.local.ql.value_types import Type


@dataclass(frozen=True)
class Constant:
    """A value known before execution; unsigned integers are not negative here."""

    type: Type
    value: Any

    @property
    def nullable(self) -> bool:
        """Whether this is the null constant."""
        return self.value is None


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    type: Type
    nullable: bool
    name: str


@dataclass(frozen=True)
class GroupKey:
    """The value of a GROUP BY expression."""

    type: Type
    nullable: bool
    index: int
    name: str


@dataclass(frozen=True)
class AggregateValue:
    """The result of an aggregate of the group."""

    type: Type
    nullable: bool
    index: int


@dataclass(frozen=True)
class Apply:
    """A scalar function."""

    type: Type
    nullable: bool
    function: Function
    arguments: tuple[Bound, ...]


@dataclass(frozen=True)
class Unary:
    """`+`, `-` or `NOT`."""

    type: Type
    nullable: bool
    operator: str
    operand: Bound


@dataclass(frozen=True)
class Binary:
    """A binary operator on operands of one type.

    To relational operators null is an ordinary value below all others.
    """

    type: Type
    nullable: bool
    operator: str
    left: Bound
    right: Bound


@dataclass(frozen=True)
class InSet:
    """Membership in a set of constant tuples, null equal to null; never null itself."""

    type: Type
    operands: tuple[Bound, ...]
    values: tuple[tuple[Any, ...], ...]
    nullable: bool = False


Bound = Constant | Column | GroupKey | AggregateValue | Apply | Unary | Binary | InSet


@dataclass(frozen=True)
class Aggregate:
    """One aggregate to compute per group.

    Attributes:
        arguments: bound expressions over the input rows.
        type: type of the result.
        name: text of the call, the name of its column under `*`.
    """

    function: str
    arguments: tuple[Bound, ...]
    type: Type
    name: str
