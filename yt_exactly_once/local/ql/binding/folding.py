"""Evaluation of operators on constants before execution.

It decides which operators are folded, and to what. A folded constant may still become another numeric type,
like a literal. The server does the same (`FoldConstants` in `expr_builder_base.cpp`).
"""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.binding.bound import Constant
from yt_exactly_once.local.ql.value_types import NUMERIC, Type


def fold_unary(operator: str, operand: Constant) -> Constant | None:
    """Evaluate a unary operator; None when it is left for later."""
    if operator == "NOT":
        return None
    if operator == "+" or operand.value is None:
        return operand
    return Constant(operand.type, arithmetic.negate(operand.type, operand.value))


def fold_binary(operator: str, left: Constant, right: Constant) -> Constant:
    """Evaluate a binary operator.

    Raises:
        YtError: the operands do not go together, or the result does not exist.
    """
    if operator in ("AND", "OR"):
        return Constant(Type.BOOLEAN, _logical(left.value, right.value, operator == "OR"))
    if operator in arithmetic.RELATIONS:
        if left.value is not None and right.value is not None:
            left, right = _unified(left, right)
        return Constant(Type.BOOLEAN, arithmetic.relate(operator, left.value, right.value))
    if left.value is None or right.value is None:
        return Constant(Type.NULL, None)
    left, right = _unified(left, right)
    return Constant(left.type, arithmetic.calculate(operator, left.type, left.value, right.value))


def _unified(left: Constant, right: Constant) -> tuple[Constant, Constant]:
    if left.type is right.type:
        return left, right
    if left.type not in NUMERIC or right.type not in NUMERIC:
        raise YtError(
            "Type mismatch in expression", lhs_type=left.type.title, rhs_type=right.type.title
        )
    target = max(left.type, right.type)
    return _converted(left, target), _converted(right, target)


def _converted(constant: Constant, target: Type) -> Constant:
    return Constant(target, arithmetic.convert_constant(constant.type, constant.value, target))


def _logical(left: Any, right: Any, absorbing: Any) -> bool | None:
    if left is None:
        return bool(right) if right is not None and right == absorbing else None
    return bool(left) if left == absorbing else right
