"""Expressions after binding, and as Python functions of a row: names resolved, every node with one type.

A row is a tuple of stored values, or of the values of a group. What a result does not need is not computed,
so that it cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables import values

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Function


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


Compute = Callable[[Sequence[Any]], Any]

_PLAIN: dict[Type, Callable[[Any], Any]] = {
    Type.UINT64: lambda stored: stored % (1 << 64),
    Type.DOUBLE: float,
    Type.BOOLEAN: bool,
}
_STORED: dict[Type, Callable[[Any], Any]] = {
    Type.UINT64: values.encode_uint64,
    Type.DOUBLE: values.encode_double,
}
"""What is not there is stored as it is computed with; values of type `any` are YSON in both."""


def compiled(bound: Bound, places: Mapping[str, int]) -> Compute:
    """Return what computes an expression.

    Args:
        places: where a row has the stored value of each column.
    """
    match bound:
        case Constant(value=value):
            return lambda _row: value
        case Column(name=name):
            return _converted(itemgetter(places[name]), _PLAIN.get(bound.type))
        case GroupValue(index=index):
            return itemgetter(index)
        case Apply(function=function, arguments=arguments):
            python = function.python
            if function.typed:
                python = partial(python, arguments[0].type)
            return _call(function, python, [compiled(each, places) for each in arguments])
    operands = [compiled(each, places) for each in bound.operands]
    known = frozenset(bound.values)
    return lambda row: tuple([operand(row) for operand in operands]) in known


def stored(bound: Bound, places: Mapping[str, int]) -> Compute:
    """Return what computes the stored form of an expression."""
    if isinstance(bound, Column):
        return itemgetter(places[bound.name])
    return _converted(compiled(bound, places), _STORED.get(bound.type))


@contextmanager
def failing_on_a_row() -> Iterator[None]:
    """Say of an error that it is one of execution, and not of the text."""
    try:
        yield
    except YtError as error:
        raise YtError("Error while executing query", inner=[error]) from error


def _converted(compute: Compute, convert: Callable[[Any], Any] | None) -> Compute:
    if convert is None:
        return compute
    return lambda row: None if (value := compute(row)) is None else convert(value)


def _call(function: Function, python: Callable[..., Any], arguments: Sequence[Compute]) -> Compute:
    if function.lazy:
        return lambda row: python(*[partial(argument, row) for argument in arguments])
    if function.takes_null:
        return lambda row: python(*[argument(row) for argument in arguments])

    def compute(row: Sequence[Any]) -> Any:
        given = [argument(row) for argument in arguments]
        return None if None in given else python(*given)

    return compute
