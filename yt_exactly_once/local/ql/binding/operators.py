"""Types of operators, and expressions whose type is still open.

Owns what an operator accepts and returns, and how a comparison of tuples is spelled with comparisons of
scalars. Constants are folded on the way (`FoldConstants` in `expr_builder_base.cpp`), and may still become
another numeric type. Those of IN take the types of its operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.arithmetic import RELATIONS, convert_constant
from yt_exactly_once.local.ql.binding.bound import Apply, Bound, Constant, compiled
from yt_exactly_once.local.ql.functions.signatures import Function, infer
from yt_exactly_once.local.ql.value_types import INTEGRAL, NUMERIC, SCALAR, Type, TypeSet, only

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Binary, Constants, Expression, Literal

_ARITHMETIC = {"+": "Plus", "-": "Minus", "*": "Multiply", "/": "Divide", "%": "Modulo"}
_RELATIONAL = ("Equal", "NotEqual", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_TRUTH = only(Type.BOOLEAN)


def _operator(
    symbol: str, name: str, among: TypeSet, python: Callable[..., Any], count: int = 2, **named: Any
) -> Function:
    given = {"parameters": ("value",) * count, "result": "value", **named}
    return Function(symbol, python=python, among=among, operator=name, **given)


UNARY = {
    "+": _operator("+", "Plus", NUMERIC, lambda value: value, 1),
    "-": _operator("-", "Minus", NUMERIC, arithmetic.negate, 1, typed=True),
    "NOT": _operator("NOT", "Not", _TRUTH, operator.not_, 1),
}
BINARY = {
    "AND": _operator("AND", "And", _TRUTH, partial(arithmetic.logical, False), lazy=True),
    "OR": _operator("OR", "Or", _TRUTH, partial(arithmetic.logical, True), lazy=True),
}
for _symbol, _name in _ARITHMETIC.items():
    _among = INTEGRAL if _symbol == "%" else NUMERIC
    _python = partial(arithmetic.calculate, _symbol)
    BINARY[_symbol] = _operator(_symbol, _name, _among, _python, typed=True)
for _symbol, _name in zip(RELATIONS, _RELATIONAL, strict=True):
    _python = partial(arithmetic.relate, _symbol)
    BINARY[_symbol] = _operator(
        _symbol, _name, SCALAR, _python, result=Type.BOOLEAN, takes_null=True
    )


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


def applied(
    function: Function,
    arguments: Sequence[Untyped],
    call: Expression,
    build: Callable[[Type, tuple[Bound, ...]], Bound] | None = None,
) -> Untyped:
    """Type a call of a function or an operator; operators on constants are computed at once.

    Args:
        call: what errors quote.
        build: makes the call from the type of its result and its arguments.
    """
    types, choose = infer(function, [argument.types for argument in arguments], call)

    def generate(kind: Type) -> Bound:
        chosen = zip(arguments, choose(kind), strict=True)
        given = tuple(argument.generate(wanted) for argument, wanted in chosen)
        return Apply(kind, function, given) if build is None else build(kind, given)

    if not function.operator or not all(argument.is_constant for argument in arguments):
        return Untyped(types, generate)
    kind = min(types)
    return Untyped.of_constant(Constant(kind, compiled(generate(kind), {})(())), types)


def compare_tuples(
    comparison: Binary, left: Sequence[Untyped], right: Sequence[Untyped]
) -> Untyped:
    """Spell a comparison of tuples with comparisons of their items, from the last one outwards."""

    def joined(symbol: str, first: Untyped, second: Untyped) -> Untyped:
        return applied(BINARY[symbol], (first, second), comparison)

    symbol = comparison.operator
    *pairs, last = zip(left, right, strict=True)
    result = joined(symbol, *last)
    for pair in reversed(pairs):
        if symbol == "!=":
            result = joined("OR", joined("!=", *pair), result)
            continue
        result = joined("AND", joined("=", *pair), result)
        if symbol != "=":
            result = joined("OR", joined(symbol[0], *pair), result)
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
