"""Bound expressions as SQL.

It translates single expressions. SQLite's operators are used if they give the server's result on stored
values. Otherwise a Python function is called: for arithmetic, unsigned order and NaN.
"""

from __future__ import annotations

import math
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.arithmetic import RELATIONS, wrap
from yt_exactly_once.local.ql.binding.bound import (
    AggregateValue,
    Apply,
    Binary,
    Bound,
    Column,
    Constant,
    GroupKey,
    InSet,
    Unary,
)
from yt_exactly_once.local.ql.functions import udf
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.values import NAN

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.source import Source

_NULL_ORDER = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""How "left is null" relates to "right is null" when a comparison holds because of a null."""


def constant_sql(kind: Type, value: Any) -> str:
    """Return a constant as SQL, in stored form."""
    if value is None:
        return "NULL"
    if kind is Type.STRING:
        return f"X'{value.hex()}'"
    if kind is Type.DOUBLE:
        return _double_sql(value)
    number = wrap(Type.INT64, int(value))
    # Two minus signs in a row would begin a comment.
    return str(number) if number >= 0 else f"({number})"


def _double_sql(value: float) -> str:
    if math.isnan(value):
        return f"'{NAN}'"
    text = "9e999" if math.isinf(value) else repr(abs(value))
    return text if math.copysign(1.0, value) > 0 else f"(-{text})"


class ExpressionSql:
    """Writes expressions over the table of a query, or over its groups, which have the SQL alias `g`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @singledispatchmethod
    def write(self, bound: Bound) -> str:
        """Return the SQL of an expression."""
        raise TypeError(f"{type(bound).__name__} has no SQL")

    @write.register(Constant)
    def _constant(self, node: Constant) -> str:
        return constant_sql(node.type, node.value)

    @write.register(Column)
    def _column(self, node: Column) -> str:
        return self._source.sql_column(node.name)

    @write.register(GroupKey)
    def _group_key(self, node: GroupKey) -> str:
        return f"g.k{node.index}"

    @write.register(AggregateValue)
    def _aggregate(self, node: AggregateValue) -> str:
        return f"g.a{node.index}"

    def order(self, bound: Bound) -> str:
        """Return SQL whose order in SQLite is the order of the values."""
        sql = self.write(bound)
        if bound.type is Type.UINT64:
            return _flipped(bound, sql)
        is_doubtful = bound.type is Type.DOUBLE and _may_be_nan(bound)
        return f"yt_order_double({sql})" if is_doubtful else sql

    @write.register(Unary)
    def _unary(self, node: Unary) -> str:
        operand = self.write(node.operand)
        match node.operator:
            case "+":
                return operand
            case "NOT":
                return f"(NOT {operand})"
        return f"{udf.operator_name('negate', (node.type,))}({operand})"

    @write.register(Binary)
    def _binary(self, node: Binary) -> str:
        left, right = self.write(node.left), self.write(node.right)
        if node.operator in RELATIONS:
            return self._relation(node, left, right)
        if node.operator in ("AND", "OR"):
            return f"({left} {node.operator} {right})"
        return f"{udf.operator_name(node.operator, (node.type, node.type))}({left}, {right})"

    def _relation(self, node: Binary, left: str, right: str) -> str:
        kind = node.left.type
        if kind is Type.DOUBLE and (_may_be_nan(node.left) or _may_be_nan(node.right)):
            return f"{udf.relation_name(node.operator)}({left}, {right})"
        if kind is Type.UINT64 and node.operator in _NULL_ORDER:
            left, right = _flipped(node.left, left), _flipped(node.right, right)
        return _null_aware(node, left, right)

    @write.register(InSet)
    def _in_set(self, node: InSet) -> str:
        operands = [self.write(operand) for operand in node.operands]
        kinds = [operand.type for operand in node.operands]
        rows = [
            [constant_sql(kind, value) for kind, value in zip(kinds, row, strict=True)]
            for row in node.values
        ]
        if any(operand.nullable for operand in node.operands) or any("NULL" in row for row in rows):
            # Row values have no null-safe comparison; a null becomes a flag and a zero.
            operands = [part for o in operands for part in (f"{o} IS NULL", f"ifnull({o}, 0)")]
            rows = [
                [part for v in row for part in (("1", "0") if v == "NULL" else ("0", v))]
                for row in rows
            ]
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"(({', '.join(operands)}) IN (VALUES {listed}))"

    @write.register(Apply)
    def _apply(self, node: Apply) -> str:
        arguments = [self.write(argument) for argument in node.arguments]
        types = tuple(argument.type for argument in node.arguments)
        inline = node.function.inline(arguments, types)
        return inline or f"{udf.call_name(node.function, types)}({', '.join(arguments)})"


def _may_be_nan(bound: Bound) -> bool:
    return not isinstance(bound, Constant) or math.isnan(bound.value or 0.0)


def _flipped(bound: Bound, sql: str) -> str:
    """Map stored unsigned integers to signed ones of the same order."""
    if isinstance(bound, Constant):
        value = None if bound.value is None else bound.value ^ (1 << 63)
        return constant_sql(Type.UINT64, value)
    return f"yt_flip({sql})"


def _null_aware(node: Binary, left: str, right: str) -> str:
    operator = node.operator
    if not (node.left.nullable or node.right.nullable):
        return f"({left} {'<>' if operator == '!=' else operator} {right})"
    if operator in ("=", "!="):
        return f"({left} IS {'NOT ' if operator == '!=' else ''}{right})"
    if node.left.nullable and node.right.nullable:
        fallback = f"({left} IS NULL) {_NULL_ORDER[operator]} ({right} IS NULL)"
    else:
        fallback = str(int((operator[0] == "<") == node.left.nullable))
    return f"coalesce({left} {operator} {right}, {fallback})"
