"""Types of operators, and expressions whose type is still open.

Owns what an operator accepts and returns, and how a comparison of tuples is spelled with comparisons of
scalars. Constants are folded on the way (`FoldConstants` in `expr_builder_base.cpp`), and may still become
another numeric type. Those of IN take the types of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import (
    RELATIONS,
    calculate,
    convert_constant,
    negate,
    relate,
)
from yt_exactly_once.local.ql.binding.bound import Binary, Bound, Constant, Unary
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
        constant: its value, when it is known before execution.
    """

    types: TypeSet
    generate: Callable[[Type], Bound]
    constant: Constant | None = None

    @classmethod
    def fixed(cls, bound: Bound) -> Untyped:
        """Wrap an expression that has its type."""
        return cls(only(bound.type), lambda _kind: bound)

    @classmethod
    def of_constant(cls, constant: Constant, types: TypeSet) -> Untyped:
        """Wrap a constant that can be converted to several types."""

        def generate(kind: Type) -> Bound:
            return Constant(kind, convert_constant(constant.type, constant.value, kind))

        return cls(types, generate, constant)


def unary(operator: str, operand: Untyped, source: str) -> Untyped:
    """Type a unary operator."""
    accepted = _OPERANDS[operator]
    types = accepted & operand.types
    if not types:
        raise _mismatch(operator, accepted, operand.types, {"op_source": source})
    if operand.constant is not None:
        folded = _fold_unary(operator, operand.constant)
        if folded is not None:
            return Untyped.of_constant(folded, types)

    def generate(kind: Type) -> Bound:
        inner = operand.generate(kind)
        return Unary(kind, inner.nullable, operator, inner)

    return Untyped(types, generate)


def binary(operator: str, left: Untyped, right: Untyped, sources: tuple[str, str]) -> Untyped:
    """Type a binary operator on scalars.

    Args:
        sources: text of the operands, for errors.
    """
    where = {"lhs_source": sources[0], "rhs_source": sources[1]}
    common = _OPERANDS[operator]
    for operand in (left, right):
        if not common & operand.types:
            raise _mismatch(operator, common, operand.types, where)
        common &= operand.types
    result = only(Type.BOOLEAN) if operator in RELATIONS else common
    if left.constant is not None and right.constant is not None:
        return Untyped.of_constant(_fold_binary(operator, left.constant, right.constant), result)

    def generate(kind: Type) -> Bound:
        if operator in RELATIONS:
            operand_type = min(common)
            return relation(operator, left.generate(operand_type), right.generate(operand_type))
        bound_left, bound_right = left.generate(kind), right.generate(kind)
        nullable = bound_left.nullable or bound_right.nullable
        return Binary(kind, nullable, operator, bound_left, bound_right)

    return Untyped(result, generate)


def relation(operator: str, left: Bound, right: Bound) -> Binary:
    """Build a comparison of typed operands."""
    return Binary(Type.BOOLEAN, False, operator, left, right)


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


def _mismatch(
    operator: str, expected: TypeSet, actual: TypeSet, attributes: dict[str, str]
) -> YtError:
    return YtError(
        f'Type mismatch in expression "{_NAMES[operator]}": '
        f'expected "{describe(expected)}", got "{describe(actual)}"',
        attributes=attributes,
    )


def _fold_unary(operator: str, operand: Constant) -> Constant | None:
    """Evaluate a unary operator; None when it is left for later."""
    if operator == "NOT":
        return None
    if operator == "+" or operand.value is None:
        return operand
    return Constant(operand.type, negate(operand.type, operand.value))


def _fold_binary(operator: str, left: Constant, right: Constant) -> Constant:
    """Evaluate a binary operator.

    Raises:
        YtError: the operands do not go together, or the result does not exist.
    """
    if operator in ("AND", "OR"):
        return Constant(Type.BOOLEAN, _logical(left.value, right.value, operator == "OR"))
    if operator in RELATIONS:
        if left.value is not None and right.value is not None:
            left, right = _unified(left, right)
        return Constant(Type.BOOLEAN, relate(operator, left.value, right.value))
    if left.value is None or right.value is None:
        return Constant(Type.NULL, None)
    left, right = _unified(left, right)
    return Constant(left.type, calculate(operator, left.type, left.value, right.value))


def _unified(left: Constant, right: Constant) -> tuple[Constant, Constant]:
    if left.type is right.type:
        return left, right
    if left.type not in NUMERIC or right.type not in NUMERIC:
        raise YtError(
            "Type mismatch in expression", lhs_type=left.type.title, rhs_type=right.type.title
        )
    target = max(left.type, right.type)
    return (
        Constant(target, convert_constant(left.type, left.value, target)),
        Constant(target, convert_constant(right.type, right.value, target)),
    )


def _logical(left: Any, right: Any, absorbing: Any) -> bool | None:
    if left is None:
        return bool(right) if right is not None and right == absorbing else None
    return bool(left) if left == absorbing else right
