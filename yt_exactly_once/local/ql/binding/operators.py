"""Types of operators, and expressions whose type is still open.

Owns what an operator accepts and returns, and how a comparison of tuples is spelled with comparisons of
scalars. Constants are folded on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import RELATIONS, convert_constant
from yt_exactly_once.local.ql.binding.bound import Binary, Bound, Constant, Unary
from yt_exactly_once.local.ql.binding.folding import fold_binary, fold_unary
from yt_exactly_once.local.ql.value_types import (
    COMPARABLE,
    INTEGRAL,
    NUMERIC,
    Type,
    TypeSet,
    describe,
    only,
)

_NAMES = {
    "+": "Plus",
    "-": "Minus",
    "*": "Multiply",
    "/": "Divide",
    "%": "Modulo",
    "<<": "LeftShift",
    ">>": "RightShift",
    "|": "BitOr",
    "&": "BitAnd",
    "~": "BitNot",
    "||": "Concatenate",
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
    **dict.fromkeys(("%", "<<", ">>", "|", "&", "~"), INTEGRAL),
    **dict.fromkeys(("AND", "OR", "NOT"), only(Type.BOOLEAN)),
    **dict.fromkeys(RELATIONS, COMPARABLE),
    "||": only(Type.STRING),
}
_STRICT = {"<": "<", "<=": "<", ">": ">", ">=": ">"}


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
        folded = fold_unary(operator, operand.constant)
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
    if operator in RELATIONS and not left.types & right.types:
        return _mixed_relation(operator, left, right, sources)
    accepted = _OPERANDS[operator]
    where = {"lhs_source": sources[0], "rhs_source": sources[1]}
    common = accepted
    for operand in (left, right):
        if not common & operand.types:
            raise _mismatch(operator, common, operand.types, where)
        common &= operand.types
    result = only(Type.BOOLEAN) if operator in RELATIONS else common
    if left.constant is not None and right.constant is not None:
        folded = fold_binary(operator, left.constant, right.constant)
        if folded is not None:
            return Untyped.of_constant(folded, result)

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
            result = binary("OR", binary(_STRICT[operator], *sides), result, nowhere)
    return result


def _mixed_relation(
    operator: str, left: Untyped, right: Untyped, sources: tuple[str, str]
) -> Untyped:
    """Compare `any` with a scalar; no other two types can be compared."""
    if Type.ANY not in left.types | right.types:
        raise YtError(
            "Type mismatch in expression",
            lhs_source=sources[0],
            rhs_source=sources[1],
            lhs_type=describe(left.types),
            rhs_type=describe(right.types),
        )
    left_type = Type.ANY if Type.ANY in left.types else min(left.types)
    right_type = Type.ANY if Type.ANY in right.types else min(right.types)

    def generate(_kind: Type) -> Bound:
        return relation(operator, left.generate(left_type), right.generate(right_type))

    return Untyped(only(Type.BOOLEAN), generate)


def _mismatch(
    operator: str, expected: TypeSet, actual: TypeSet, attributes: dict[str, str]
) -> YtError:
    return YtError(
        f'Type mismatch in expression "{_NAMES[operator]}": '
        f'expected "{describe(expected)}", got "{describe(actual)}"',
        attributes=attributes,
    )
