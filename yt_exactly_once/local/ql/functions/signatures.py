"""Signatures of functions and how the types of a call are inferred from them.

It infers the types of calls. First it intersects the constraints with the types that the arguments could
have. Then the chosen result type narrows them. The smallest type that is left wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.value_types import ALL_TYPES, Type, TypeSet, describe, only

Parameter = Type | TypeSet | Literal["value"]
"""What a parameter accepts: a type, one of several, or what the type variable `value` stands for."""

Sql = str | Mapping[Type, str] | Callable[[Sequence[str], Sequence[Type]], str]
"""The SQL of a call: a template of the arguments, one for each type of the first argument that SQLite can do,
or what builds it from the arguments and their types."""


@dataclass(frozen=True)
class Function:
    """A scalar function.

    Attributes:
        name: lower-case name.
        parameters: leading parameters.
        result: type of the result, or `value`.
        repeated: what further arguments must be; None forbids them. Alternatives given as a set
            hold for each argument alone.
        among: types of `value`.
        sql: see `Sql`; what it leaves out is for `python`.
        python: implementation on values otherwise; see `udf` for the form of values.
        takes_null: whether a null argument is an ordinary one, and no result is null; otherwise the
            result of a null is null, without a call.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Parameter
    repeated: Parameter | None = None
    among: TypeSet = ALL_TYPES
    sql: Sql | None = field(default=None, hash=False)
    python: Callable[..., Any] | None = None
    takes_null: bool = False

    def inline(self, arguments: Sequence[str], types: Sequence[Type]) -> str | None:
        """Return the SQL of a call; None where only Python can do it."""
        sql = self.sql.get(types[0]) if isinstance(self.sql, Mapping) else self.sql
        if sql is None or isinstance(sql, str):
            return sql and sql.format(*arguments)
        return sql(arguments, types)


@dataclass(frozen=True)
class Inference:
    """A call whose types are narrowed but not chosen yet: one slot per independent type."""

    slots: tuple[TypeSet, ...]
    argument_slots: tuple[int, ...]
    result_slot: int

    @property
    def result_types(self) -> TypeSet:
        """Types the result could have."""
        return self.slots[self.result_slot]

    def choose(self, result: Type) -> tuple[Type, ...]:
        """Return the types of the arguments when the result has a type."""
        slots = list(self.slots)
        slots[self.result_slot] = only(result)
        return tuple(min(slots[slot]) for slot in self.argument_slots)


def infer(function: Function, arguments: Sequence[TypeSet], source: str) -> Inference:
    """Infer the types of a call of a scalar function or an aggregate.

    Args:
        arguments: types every argument could have.
        source: text of the call, for errors.

    Raises:
        YtError: the number or a type of the arguments does not fit.
    """
    extra = len(arguments) - len(function.parameters)
    if extra < 0 or (extra and function.repeated is None):
        raise YtError(
            f'No matching function "{function.name}"',
            expected_arguments=len(function.parameters),
            actual_arguments=len(arguments),
            expression=source,
        )
    # The first slot is that of the type variable.
    slots = [function.among]

    def slot(parameter: Parameter | None) -> int:
        if isinstance(parameter, str) or parameter is None:
            return 0
        slots.append(only(parameter) if isinstance(parameter, Type) else parameter)
        return len(slots) - 1

    parameters = (*function.parameters, *[function.repeated] * extra)
    argument_slots = tuple(map(slot, parameters))
    for index, (place, actual) in enumerate(zip(argument_slots, arguments, strict=True)):
        common = slots[place] & actual
        if not common:
            raise YtError(
                f'No matching function "{function.name}"',
                argument_index=index + 1,
                expected_type=describe(slots[place]),
                actual_type=describe(actual),
                expression=source,
            )
        slots[place] = common
    result_slot = slot(function.result)
    return Inference(tuple(slots), argument_slots, result_slot)
