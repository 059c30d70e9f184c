"""Expressions after binding: names resolved, every node with one type.

Owns the node classes, nothing else.
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


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    type: Type
    name: str


@dataclass(frozen=True)
class GroupValue:
    """A value of a group, by its place: the keys come first, the aggregates after them."""

    type: Type
    index: int
    name: str


@dataclass(frozen=True)
class Apply:
    """A scalar function or an operator."""

    type: Type
    function: Function
    arguments: tuple[Bound, ...]


@dataclass(frozen=True)
class InSet:
    """Membership in a set of constant tuples, null equal to null; never null itself."""

    type: Type
    operands: tuple[Bound, ...]
    values: tuple[tuple[Any, ...], ...]


Bound = Constant | Column | GroupValue | Apply | InSet


@dataclass(frozen=True)
class Aggregate:
    """One aggregate to compute per group.

    Attributes:
        argument: bound expression over the input rows.
        type: type of the result.
        name: text of the call, the name of its column under `*`.
    """

    function: Function
    argument: Bound
    type: Type
    name: str
