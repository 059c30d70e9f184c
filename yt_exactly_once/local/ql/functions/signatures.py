"""Signatures of functions and how the types of a call are inferred from them.

It infers the types of calls. First it intersects the constraints with the types that the arguments could
have. Then the chosen result type narrows them. The smallest type that is left wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.value_types import ALL_TYPES, Type, TypeSet, describe, only

Python = TypeVar("Python", bound=Callable[..., Any])

Parameter = Type | TypeSet | str
"""What a parameter accepts: a type, one of several, or whatever a type variable stands for."""

Sql = str | Mapping[Type, str] | Callable[[Sequence[str], Sequence[Type]], str]
"""The SQL of a call: a template of the arguments, one for each type of the first argument that SQLite can do,
or what builds it from the arguments and their types."""


@dataclass(frozen=True)
class Function:
    """A scalar function.

    Attributes:
        name: lower-case name.
        parameters: leading parameters.
        result: type of the result, or the type variable it equals.
        repeated: what further arguments must be; None forbids them. Alternatives given as a set
            hold for each argument alone.
        variables: constraints of the type variables; one without an entry takes every type.
        sql: see `Sql`; what it leaves out is for `python`.
        python: implementation on values otherwise; see `udf` for the form of values.
        typed: whether `python` gets the types of the arguments first.
        takes_null: whether a null argument is an ordinary one, and no result is null; otherwise the
            result of a null is null, without a call.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Parameter
    repeated: Parameter | None = None
    variables: Mapping[str, TypeSet] = field(default_factory=dict, hash=False)
    sql: Sql | None = field(default=None, hash=False)
    python: Callable[..., Any] | None = None
    typed: bool = False
    takes_null: bool = False

    def inline(self, arguments: Sequence[str], types: Sequence[Type]) -> str | None:
        """Return the SQL of a call; None where only Python can do it."""
        sql = self.sql.get(types[0]) if isinstance(self.sql, Mapping) else self.sql
        if sql is None or isinstance(sql, str):
            return sql and sql.format(*arguments)
        return sql(arguments, types)


FUNCTIONS: dict[str, Function] = {}
"""By name; `table` imports the modules that declare them."""


def declare(
    name: str,
    parameters: tuple[Parameter, ...],
    result: Parameter,
    *,
    among: TypeSet | None = None,
    **more: Any,
) -> None:
    """Declare a function.

    Args:
        name: see `Function`, as for the others.
        parameters: a parameter may be the type variable `value`.
        among: types of `value`; all without it.
        **more: the other attributes of `Function`.
    """
    variables = {} if among is None else {"value": among}
    FUNCTIONS[name] = Function(name, parameters, result, variables=variables, **more)


def function(
    name: str, parameters: tuple[Parameter, ...], result: Parameter, **more: Any
) -> Callable[[Python], Python]:
    """Declare the Python function below as one of the language; see `declare`."""

    def register(python: Python) -> Python:
        declare(name, parameters, result, python=python, **more)
        return python

    return register


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


class _Slots:
    """Allocates slots while a signature is walked."""

    def __init__(self, variables: Mapping[str, TypeSet]) -> None:
        self.types: list[TypeSet] = []
        self._variables = variables
        self._index: dict[str, int] = {}

    def add(self, parameter: Parameter) -> int:
        """Return the slot of a parameter; a type variable always has the same one."""
        if isinstance(parameter, str):
            if parameter not in self._index:
                self._index[parameter] = len(self.types)
                self.types.append(self._variables.get(parameter, ALL_TYPES))
            return self._index[parameter]
        self.types.append(only(parameter) if isinstance(parameter, Type) else parameter)
        return len(self.types) - 1


def infer(function: Function, arguments: Sequence[TypeSet], source: str) -> Inference:
    """Infer the types of a call of a scalar function or an aggregate.

    Args:
        arguments: types every argument could have.
        source: text of the call, for errors.

    Raises:
        YtError: the number or a type of the arguments does not fit.
    """
    slots = _Slots(function.variables)
    argument_slots = [slots.add(parameter) for parameter in function.parameters]
    extra = len(arguments) - len(argument_slots)
    if extra < 0 or (extra and function.repeated is None):
        raise YtError(
            f'No matching function "{function.name}"',
            expected_arguments=len(function.parameters),
            actual_arguments=len(arguments),
            expression=source,
        )
    if isinstance(function.repeated, frozenset):
        argument_slots += [slots.add(function.repeated) for _ in range(extra)]
    elif function.repeated is not None:
        argument_slots += [slots.add(function.repeated)] * extra
    for index, (slot, actual) in enumerate(zip(argument_slots, arguments, strict=True)):
        common = slots.types[slot] & actual
        if not common:
            raise YtError(
                f'No matching function "{function.name}"',
                argument_index=index + 1,
                expected_type=describe(slots.types[slot]),
                actual_type=describe(actual),
                expression=source,
            )
        slots.types[slot] = common
    result_slot = slots.add(function.result)
    return Inference(tuple(slots.types), tuple(argument_slots), result_slot)
