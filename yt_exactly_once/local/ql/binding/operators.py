"""Types of operators, and expressions whose type is still open.

Owns what an operator accepts and returns, and how a comparison of tuples is spelled with comparisons of
scalars. Constants are folded on the way (`FoldConstants` in `expr_builder_base.cpp`), and may still become
another numeric type. Those of IN take the types of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.arithmetic import RELATIONS, convert_constant
from yt_exactly_once.local.ql.binding.bound import Apply, Bound, Constant
from yt_exactly_once.local.ql.binding.evaluation import compiled
from yt_exactly_once.local.ql.functions.signatures import Function
from yt_exactly_once.local.ql.value_types import (
    INTEGRAL,
    NUMERIC,
    SCALAR,
    Type,
    TypeSet,
    describe,
    only,
)

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Constants, Literal

_NAMES = {
    "+": "Plus",
    "-": "Minus",
    "*": "Multiply",
    "/": "Divide",
    "%": "Modulo",
    "AND": "And",
    "OR": "Or",
    "NOT": "Not",
    "=": "Equal",
    "!=": "NotEqual",
    "<": "Less",
    "<=": "LessOrEqual",
    ">": "Greater",
    ">=": "GreaterOrEqual",
}
_OPERANDS: dict[str, TypeSet] = {
    **dict.fromkeys(("+", "-", "*", "/"), NUMERIC),
    "%": INTEGRAL,
    **dict.fromkeys(("AND", "OR", "NOT"), only(Type.BOOLEAN)),
    **dict.fromkeys(RELATIONS, SCALAR),
}


@dataclass(frozen=True)
class Untyped:
    """An expression that has not been given its type yet.

    Attributes:
        types: types it could have.
        generate: returns it with one of them.
        is_constant: whether its value is known before execution.
    """

    types: TypeSet
    generate: Callable[[Type], Bound]
    is_constant: bool = False

    @classmethod
    def fixed(cls, bound: Bound) -> Untyped:
        """Wrap an expression that has its type."""
        return cls(only(bound.type), lambda _kind: bound)

    @classmethod
    def of_constant(cls, constant: Literal | Constant, types: TypeSet) -> Untyped:
        """Wrap a constant that can be converted to several types."""

        def generate(kind: Type) -> Bound:
            return Constant(kind, convert_constant(constant.type, constant.value, kind))

        return cls(types, generate, is_constant=True)


def unary(operator: str, operand: Untyped, source: str) -> Untyped:
    """Type a unary operator."""
    return _applied(operator, (operand,), {"op_source": source})


def binary(operator: str, left: Untyped, right: Untyped, sources: tuple[str, str]) -> Untyped:
    """Type a binary operator on scalars.

    Args:
        sources: text of the operands, for errors.
    """
    where = {"lhs_source": sources[0], "rhs_source": sources[1]}
    return _applied(operator, (left, right), where)


def _applied(operator: str, operands: Sequence[Untyped], where: dict[str, str]) -> Untyped:
    common = _OPERANDS[operator]
    for operand in operands:
        if not common & operand.types:
            raise YtError(
                f'Type mismatch in expression "{_NAMES[operator]}": '
                f'expected "{describe(common)}", got "{describe(operand.types)}"',
                attributes=where,
            )
        common &= operand.types
    result = only(Type.BOOLEAN) if operator in RELATIONS else common

    def generate(kind: Type) -> Bound:
        operand_type = min(common) if operator in RELATIONS else kind
        function = _function(operator, operand_type, len(operands))
        return Apply(kind, function, tuple(each.generate(operand_type) for each in operands))

    if not all(operand.is_constant for operand in operands):
        return Untyped(result, generate)
    kind = min(result)
    return Untyped.of_constant(Constant(kind, compiled(generate(kind), {})(())), result)


@cache
def _function(operator: str, kind: Type, operands: int) -> Function:
    """Return an operator on operands of a type."""
    if operator in RELATIONS:
        relate = partial(arithmetic.relate, operator)
        return Function(operator, (), Type.BOOLEAN, relate, takes_null=True)
    if operator in ("AND", "OR"):
        logical = partial(arithmetic.logical, operator == "OR")
        return Function(operator, (), kind, logical, lazy=True)
    if operands > 1:
        return Function(operator, (), kind, partial(arithmetic.calculate, operator, kind))
    python: dict[str, Callable[[Any], Any]] = {
        "+": lambda value: value,
        "-": partial(arithmetic.negate, kind),
        "NOT": lambda value: not value,
    }
    return Function(operator, (), kind, python[operator])


def compare_tuples(
    operator: str,
    left: Sequence[Untyped],
    right: Sequence[Untyped],
    sources: Sequence[tuple[str, str]],
) -> Untyped:
    """Spell a comparison of tuples with comparisons of their items, from the last one outwards."""
    nowhere = ("", "")
    result = binary(operator, left[-1], right[-1], sources[-1])
    for index in range(len(left) - 2, -1, -1):
        sides = (left[index], right[index], sources[index])
        if operator == "!=":
            result = binary("OR", binary("!=", *sides), result, nowhere)
            continue
        result = binary("AND", binary("=", *sides), result, nowhere)
        if operator != "=":
            result = binary("OR", binary(operator[0], *sides), result, nowhere)
    return result


def constant_rows(
    tuples: Sequence[Constants], operands: Sequence[Bound], source: str
) -> tuple[tuple[Any, ...], ...]:
    """Convert constant tuples to the types of the operands of IN.

    Raises:
        YtError: a wrong number of items, or an item of another kind.
    """
    if any(len(constants) != len(operands) for constants in tuples):
        raise YtError("Arguments size mismatch in tuple", source=source)
    return tuple(
        tuple(
            _converted(constant, operand.type, source)
            for constant, operand in zip(constants, operands, strict=True)
        )
        for constants in tuples
    )


def _converted(constant: Literal, target: Type, source: str) -> Any:
    if constant.value is None or constant.type is target:
        return constant.value
    if constant.type not in NUMERIC or target not in NUMERIC:
        raise YtError(
            "Types mismatch in tuple",
            source=source,
            actual_type=constant.type.title,
            expected_type=target.title,
        )
    return convert_constant(constant.type, constant.value, target)
