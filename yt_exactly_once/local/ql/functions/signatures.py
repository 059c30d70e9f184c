"""Signatures of functions and how the types of a call are inferred from them.

It infers the types of calls. First it intersects the constraints with the types that the arguments could
have. Then the chosen result type narrows them. The smallest type that is left wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.text.naming import expression_text
from yt_exactly_once.local.ql.value_types import ALL_TYPES, Type, TypeSet, describe, only

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Expression

Parameter = Type | TypeSet | Literal["value"]
"""What a parameter accepts: a type, one of several, or what the type variable `value` stands for."""


@dataclass(frozen=True)
class Function:
    """A scalar function, an aggregate, or an operator.

    Attributes:
        name: lower-case name, or the symbol of an operator.
        parameters: leading parameters.
        result: type of the result, or `value`.
        python: implementation on plain values; of an aggregate, on the type of its argument and a list.
        repeated: what further arguments must be; None forbids them. Alternatives given as a set
            hold for each argument alone.
        among: types of `value`.
        takes_null: whether a null argument is an ordinary one; otherwise the result of a null is null,
            without a call.
        lazy: whether `python` gets what computes its arguments, as it may not need all of them.
        typed: whether `python` first gets the type of the first argument.
        operator: what errors call it; empty for what is no operator.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Parameter
    python: Callable[..., Any]
    repeated: Parameter | None = None
    among: TypeSet = ALL_TYPES
    takes_null: bool = False
    lazy: bool = False
    typed: bool = False
    operator: str = ""


def infer(
    function: Function, arguments: Sequence[TypeSet], call: Expression
) -> tuple[TypeSet, Callable[[Type], tuple[Type, ...]]]:
    """Infer the types of a call.

    Args:
        arguments: types every argument could have.
        call: what errors quote.

    Returns:
        Types that the result could have, and what chooses the types of the arguments by that of the result.

    Raises:
        YtError: the number or a type of the arguments does not fit.
    """
    extra = len(arguments) - len(function.parameters)
    if extra < 0 or (extra and function.repeated is None):
        raise YtError(
            f'No matching function "{function.name}"',
            expected_arguments=len(function.parameters),
            actual_arguments=len(arguments),
            expression=expression_text(call),
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
        if not common and function.operator:
            raise YtError(
                f'Type mismatch in expression "{function.operator}": '
                f'expected "{describe(slots[place])}", got "{describe(actual)}"',
                expression=expression_text(call),
            )
        if not common:
            raise YtError(
                f'No matching function "{function.name}"',
                argument_index=index + 1,
                expected_type=describe(slots[place]),
                actual_type=describe(actual),
                expression=expression_text(call),
            )
        slots[place] = common
    result_slot = slot(function.result)

    def choose(result: Type) -> tuple[Type, ...]:
        return tuple(
            result if place == result_slot else min(slots[place]) for place in argument_slots
        )

    return slots[result_slot], choose
