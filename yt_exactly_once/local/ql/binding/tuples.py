"""Constant tuples next to operands: IN and BETWEEN over ranges.

Owns the conversion of constants to the types of the operands and the checks the server makes on ranges.
A range may be shorter than the tuple; then it bounds a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import compare_keys, convert_constant
from yt_exactly_once.local.ql.binding.bound import Binary, Bound, Constant
from yt_exactly_once.local.ql.binding.operators import relation
from yt_exactly_once.local.ql.value_types import NUMERIC, Type

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Constants

Row = tuple[Any, ...]


def constant_rows(
    tuples: Sequence[Constants], operands: Sequence[Bound], source: str, *, exact_width: bool
) -> tuple[Row, ...]:
    """Convert constant tuples to the types of the operands.

    Raises:
        YtError: a wrong number of items, or an item of another kind.
    """
    rows = []
    for constants in tuples:
        if len(constants) > len(operands) or (exact_width and len(constants) != len(operands)):
            raise YtError("Arguments size mismatch in tuple", source=source)
        rows.append(
            tuple(
                _converted(constant.type, constant.value, operand.type, source)
                for constant, operand in zip(constants, operands, strict=False)
            )
        )
    return tuple(rows)


def between(
    operands: tuple[Bound, ...], ranges: Sequence[tuple[Constants, Constants]], source: str
) -> Bound:
    """Spell membership in one of several ranges with comparisons; null is below everything."""
    lowers = constant_rows([low for low, _ in ranges], operands, source, exact_width=False)
    uppers = constant_rows([high for _, high in ranges], operands, source, exact_width=False)
    pairs = sorted(zip(lowers, uppers, strict=True), key=cmp_to_key(_compare_pairs))
    for lower, upper in pairs:
        if _compare_prefix(lower, upper) > 0:
            raise YtError("Lower bound is greater than upper", lower=str(lower), upper=str(upper))
    for (_, previous), (following, _) in pairwise(pairs):
        if _compare_prefix(previous, following) >= 0:
            raise YtError("Ranges are not disjoint", source=source)
    alternatives = [
        _logical("AND", _bound(">=", operands, lower), _bound("<=", operands, upper))
        for lower, upper in pairs
    ]
    return balanced("OR", alternatives)


def balanced(operator: str, conditions: Sequence[Bound]) -> Bound:
    """Join conditions as a tree of logarithmic depth: SQLite limits the depth."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _logical(
        operator, balanced(operator, conditions[:middle]), balanced(operator, conditions[middle:])
    )


def _converted(kind: Type, value: Any, target: Type, source: str) -> Any:
    if value is None or kind is target:
        return value
    if kind not in NUMERIC or target not in NUMERIC:
        raise YtError(
            "Types mismatch in tuple",
            source=source,
            actual_type=kind.title,
            expected_type=target.title,
        )
    return convert_constant(kind, value, target)


def _logical(operator: str, left: Bound, right: Bound) -> Bound:
    return Binary(Type.BOOLEAN, left.nullable or right.nullable, operator, left, right)


def _bound(operator: str, operands: Sequence[Bound], row: Row) -> Bound:
    """Compare the leading operands with a bound, lexicographically."""
    result: Bound = Constant(Type.BOOLEAN, value=True)
    for index in range(len(row) - 1, -1, -1):
        operand, constant = operands[index], Constant(operands[index].type, row[index])
        if index == len(row) - 1:
            result = relation(operator, operand, constant)
            continue
        equal = relation("=", operand, constant)
        strict = relation(operator[0], operand, constant)
        result = _logical("OR", strict, _logical("AND", equal, result))
    return result


def _compare_prefix(left: Row, right: Row) -> int:
    comparisons = (compare_keys(a, b) for a, b in zip(left, right, strict=False))
    return next(filter(None, comparisons), 0)


def _compare_pairs(left: tuple[Row, Row], right: tuple[Row, Row]) -> int:
    order: Callable[[Row, Row], int] = _compare_prefix
    return order(left[0], right[0]) or order(left[1], right[1])
