"""A query evaluated the plain way: the syntax tree over lists of dicts, one row at a time.

It shares the parser with the query language and nothing else: neither types nor SQL.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from yt_exactly_once.local.ql.text.syntax import Expression, Expressions

TWO_63, TWO_64 = 1 << 63, 1 << 64


@dataclass(frozen=True)
class Value:
    """A value and its type; a literal still takes the type of its company."""

    kind: Type
    data: Any
    is_literal: bool = False


@dataclass(frozen=True)
class Table:
    """Rows in table order, and the types of their columns."""

    columns: Mapping[str, Type]
    rows: Sequence[Mapping[str, Any]]


Row = dict[tuple[str | None, str], Value]

AGGREGATES = frozenset(("sum", "avg", "min", "max", "first", "argmin", "argmax", "cardinality"))


@dataclass
class Scope:
    """What names mean: the values of a row, or the keys of a group with its rows."""

    row: Row = field(default_factory=dict)
    keys: dict[str, Value] | None = None
    rows: Sequence[Row] = ()


def run(
    query: syntax.Query, tables: Mapping[str, Table], *, canonical_nulls: bool
) -> list[dict[str, Value]]:
    return _Run(query, tables, canonical_nulls=canonical_nulls).answer()


def wrap(kind: Type, number: int) -> int:
    bits = number % TWO_64
    return bits - TWO_64 if kind is Type.INT64 and bits >= TWO_63 else bits


def convert(value: Value, kind: Type) -> Any:
    if value.data is None or value.kind is kind or value.kind is Type.NULL:
        return value.data
    return float(value.data) if kind is Type.DOUBLE else wrap(kind, value.data)


def together(values: Sequence[Value]) -> tuple[Type, list[Any]]:
    """Give values that meet in an operator their common type."""
    fixed = [value.kind for value in values if not value.is_literal]
    kind = fixed[0] if fixed else max(value.kind for value in values)
    return kind, [convert(value, kind) for value in values]


def boolean(data: bool | None) -> Value:
    return Value(Type.BOOLEAN, data)


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def order(left: Any, right: Any) -> int:
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return bool(left > right) - bool(left < right)


def holds(operator: str, sign: int) -> bool:
    return {
        "=": sign == 0,
        "!=": sign != 0,
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
    }[operator]


def divide(left: int, right: int) -> tuple[int, int]:
    quotient, rest = divmod(abs(left), abs(right))
    same_sign = (left < 0) == (right < 0)
    return (quotient if same_sign else -quotient), (rest if left >= 0 else -rest)


def calculate(operator: str, kind: Type, left: Any, right: Any) -> Any:
    if operator == "||":
        return left + right
    results: dict[str, Callable[[], Any]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right if kind is Type.DOUBLE else divide(left, right)[0],
        "%": lambda: divide(left, right)[1],
        "&": lambda: left & right,
        "|": lambda: left | right,
        "<<": lambda: left << right % 64,
        ">>": lambda: left >> right % 64,
    }
    result = results[operator]()
    return result if kind is Type.DOUBLE else wrap(kind, result)


def matches(pattern: bytes, text: bytes) -> bool:
    if not pattern:
        return not text
    if pattern[:1] == b"%":
        return any(matches(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[:1] in (b"_", text[:1]) and matches(pattern[1:], text[1:])


class _Run:
    def __init__(
        self, query: syntax.Query, tables: Mapping[str, Table], *, canonical_nulls: bool
    ) -> None:
        self.query = query
        self.tables = tables
        self.canonical_nulls = canonical_nulls
        self.expanding: set[str] = set()

    def answer(self) -> list[dict[str, Value]]:
        query = self.query
        scopes = [Scope(row) for row in self.source()]
        scopes = [scope for scope in scopes if self.test(query.where, scope)]
        if query.group_by is not None:
            scopes = [s for s in self.groups(scopes) if self.test(query.group_by.having, s)]
        if query.order_by:
            scopes.sort(key=functools.cmp_to_key(self.compare))
        end = None if query.limit is None else (query.offset or 0) + query.limit
        return [self.output(scope) for scope in scopes[query.offset or 0 : end]]

    def output(self, scope: Scope) -> dict[str, Value]:
        if self.query.select is None:
            return {name: value for (_, name), value in scope.row.items()}
        found = {}
        for item in self.query.select:
            assert isinstance(item, syntax.Alias)
            found[item.name] = self.evaluate(item, scope)
        return found

    def test(self, condition: Expressions | None, scope: Scope) -> bool:
        return condition is None or self.evaluate(condition[0], scope).data is True

    def compare(self, left: Scope, right: Scope) -> int:
        for item in self.query.order_by:
            for expression in item.expressions:
                sign = order(
                    self.evaluate(expression, left).data, self.evaluate(expression, right).data
                )
                if sign:
                    return -sign if item.descending else sign
        return 0

    def source(self) -> Iterator[Row]:
        found = [dict(row) for row in self.rows(self.query.table)]
        for join in self.query.joins:
            found = [joined for row in found for joined in self.joined(row, join)]
        return iter(found)

    def rows(self, table: syntax.Table) -> Iterator[Row]:
        source = self.tables[table.path]
        for row in source.rows:
            yield {(table.alias, n): Value(kind, row[n]) for n, kind in source.columns.items()}

    def joined(self, row: Row, join: syntax.Join) -> list[Row]:
        pairs = [
            row | partner
            for partner in self.rows(join.table)
            if all(
                order(*together(self.sides(left, right, row, partner))[1]) == 0
                for left, right in zip(join.left, join.right, strict=True)
            )
            and self.test(join.predicate, Scope(partner))
        ]
        if pairs or not join.is_left:
            return pairs
        columns = self.tables[join.table.path].columns
        return [row | {(join.table.alias, n): Value(kind, None) for n, kind in columns.items()}]

    def sides(self, left: Expression, right: Expression, row: Row, partner: Row) -> list[Value]:
        return [self.evaluate(left, Scope(row)), self.evaluate(right, Scope(partner))]

    def groups(self, scopes: Sequence[Scope]) -> list[Scope]:
        assert self.query.group_by is not None
        groups: dict[tuple[Any, ...], Scope] = {}
        for scope in scopes:
            keys = {}
            for item in self.query.group_by.keys:
                assert isinstance(item, syntax.Alias)
                keys[item.name] = self.evaluate(item.expression, scope)
            group = groups.setdefault(
                tuple(value.data for value in keys.values()), Scope(keys=keys, rows=[])
            )
            assert isinstance(group.rows, list)
            group.rows.append(scope.row)
        return list(groups.values())

    def evaluate(self, node: Expression, scope: Scope) -> Value:  # noqa: C901, PLR0911 - a case per node
        match node:
            case syntax.Literal(kind, data):
                return Value(kind, data, is_literal=True)
            case syntax.Alias(_, name):
                return self.name(name, None, scope)
            case syntax.Reference(name, table):
                return self.name(name, table, scope)
            case syntax.Call(name, arguments) if name in AGGREGATES:
                return self.aggregate(name, arguments, scope)
            case syntax.Call(name, arguments):
                return _FUNCTIONS[name]([self.evaluate(a, scope) for a in arguments])
            case syntax.Unary(operator, (operand,)):
                return self.unary(operator, self.evaluate(operand, scope))
            case syntax.Binary(operator, left, right):
                return self.binary(
                    operator,
                    [self.evaluate(item, scope) for item in left],
                    [self.evaluate(item, scope) for item in right],
                )
            case syntax.In(operand, tuples):
                values = [self.evaluate(item, scope) for item in operand]
                return boolean(any(self.equal(values, constants, scope) for constants in tuples))
            case syntax.Between(operand, ranges):
                return self.between([self.evaluate(item, scope) for item in operand], ranges, scope)
            case syntax.Transform() | syntax.Case():
                return self.choice(node, scope)
            case syntax.Like((text,), _, (pattern,), None):
                found = [self.evaluate(part, scope).data for part in (pattern, text)]
                return boolean(None if None in found else matches(*found))
        raise TypeError(f"No query has a node like {node}")

    def name(self, name: str, table: str | None, scope: Scope) -> Value:
        if scope.keys is not None and name in scope.keys:
            return scope.keys[name]
        named = self.query.aliases.get(name) if table is None else None
        if named is None or name in self.expanding:
            return scope.row[table, name]
        self.expanding.add(name)
        try:
            return self.evaluate(named, scope)
        finally:
            self.expanding.remove(name)

    def unary(self, operator: str, value: Value) -> Value:
        if value.data is None:
            return value
        if operator == "NOT":
            return boolean(not value.data)
        if value.kind is Type.DOUBLE:
            return Value(value.kind, -value.data, value.is_literal)
        changed = -value.data if operator == "-" else ~value.data
        return Value(value.kind, wrap(value.kind, changed), value.is_literal)

    def binary(self, operator: str, left: list[Value], right: list[Value]) -> Value:
        if operator in ("AND", "OR"):
            join = both if operator == "AND" else either
            return boolean(join(left[0].data, right[0].data))
        if operator in ("=", "!=", "<", "<=", ">", ">="):
            return boolean(self.relation(operator, left, right))
        kind, (first, second) = together([*left, *right])
        if first is None or second is None:
            return Value(kind, None)
        return Value(kind, calculate(operator, kind, first, second))

    def relation(self, operator: str, left: list[Value], right: list[Value]) -> bool | None:
        first = self.simple_relation(operator, left[0], right[0])
        if len(left) == 1:
            return first
        rest = self.relation(operator, left[1:], right[1:])
        if operator == "!=":
            return either(first, rest)
        same = both(self.simple_relation("=", left[0], right[0]), rest)
        if operator == "=":
            return same
        return either(self.simple_relation(operator[0], left[0], right[0]), same)

    def simple_relation(self, operator: str, left: Value, right: Value) -> bool | None:
        _, (first, second) = together([left, right])
        if self.canonical_nulls and (first is None or second is None):
            return None
        return holds(operator, order(first, second))

    def equal(self, values: list[Value], constants: Expressions, scope: Scope) -> bool:
        return all(
            order(*together([value, self.evaluate(constant, scope)])[1]) == 0
            for value, constant in zip(values, constants, strict=True)
        )

    def between(self, values: list[Value], ranges: Any, scope: Scope) -> Value:
        def sign(bound: Expressions) -> int:
            for value, constant in zip(values, bound, strict=False):
                found = order(*together([value, self.evaluate(constant, scope)])[1])
                if found:
                    return found
            return 0

        return boolean(any(sign(low) >= 0 and sign(high) <= 0 for low, high in ranges))

    def choice(self, node: syntax.Transform | syntax.Case, scope: Scope) -> Value:
        if isinstance(node, syntax.Transform):
            values = [self.evaluate(item, scope) for item in node.operand]
            conditions = [self.equal(values, key, scope) for key in node.keys]
            results = [self.evaluate(value[0], scope) for value in node.values]
        else:
            tests = [self.evaluate(test[0], scope) for test, _ in node.branches]
            results = [self.evaluate(result[0], scope) for _, result in node.branches]
            if node.operand is None:
                conditions = [test.data is True for test in tests]
            else:
                tested = self.evaluate(node.operand[0], scope)
                conditions = [self.simple_relation("=", tested, test) is True for test in tests]
        if node.default is not None:
            conditions.append(True)
            results.append(self.evaluate(node.default[0], scope))
        kind, converted = together(results)
        taken = (d for condition, d in zip(conditions, converted, strict=True) if condition)
        return Value(kind, next(taken, None))

    def aggregate(self, name: str, arguments: Expressions, scope: Scope) -> Value:
        rows = [[self.evaluate(a, Scope(row)) for a in arguments] for row in scope.rows]
        kind = rows[0][0].kind
        known = [row for row in rows if all(value.data is not None for value in row)]
        data = [row[0].data for row in known]
        if name == "cardinality":
            empty = b"" if kind is Type.STRING else 0
            distinct = {
                (row[0].data is None and kind is Type.STRING, row[0].data or empty) for row in rows
            }
            return Value(Type.UINT64, len(distinct))
        if name == "avg":
            total = sum(data) if kind is Type.DOUBLE else wrap(kind, sum(data))
            return Value(Type.DOUBLE, float(total) / len(data) if data else None)
        return Value(kind, _SUMMARIES[name](kind, known) if data else None)


def _sum(kind: Type, rows: Sequence[Sequence[Value]]) -> Any:
    total = sum(row[0].data for row in rows)
    return total if kind is Type.DOUBLE else wrap(kind, total)


def _smallest(_kind: Type, rows: Sequence[Sequence[Value]]) -> Any:
    return min(rows, key=lambda row: row[-1].data)[0].data


def _largest(_kind: Type, rows: Sequence[Sequence[Value]]) -> Any:
    return max(rows, key=lambda row: row[-1].data)[0].data


_SUMMARIES: dict[str, Callable[[Type, Sequence[Sequence[Value]]], Any]] = {
    "sum": _sum,
    "min": _smallest,
    "argmin": _smallest,
    "max": _largest,
    "argmax": _largest,
    "first": lambda _kind, rows: rows[0][0].data,
}


def _if(values: list[Value]) -> Value:
    condition, *results = values
    kind, (yes, no) = together(results)
    return Value(kind, None if condition.data is None else yes if condition.data else no)


def _first_known(values: list[Value]) -> Value:
    kind, converted = together(values)
    return Value(kind, next((data for data in converted if data is not None), None))


def _of_known(kind: Type, function: Callable[..., Any]) -> Callable[[list[Value]], Value]:
    def call(values: list[Value]) -> Value:
        data = [value.data for value in values]
        return Value(kind, None if None in data else function(*data))

    return call


_FUNCTIONS: dict[str, Callable[[list[Value]], Value]] = {
    "if": _if,
    "if_null": _first_known,
    "coalesce": _first_known,
    "is_null": lambda values: boolean(values[0].data is None),
    "length": _of_known(Type.INT64, len),
    "lower": _of_known(Type.STRING, bytes.lower),
    "concat": _of_known(Type.STRING, lambda left, right: left + right),
    "is_prefix": _of_known(Type.BOOLEAN, lambda part, whole: whole.startswith(part)),
    "is_substr": _of_known(Type.BOOLEAN, lambda part, whole: part in whole),
    "int64": _of_known(Type.INT64, lambda number: wrap(Type.INT64, int(number))),
    "uint64": _of_known(Type.UINT64, lambda number: wrap(Type.UINT64, int(number))),
    "double": _of_known(Type.DOUBLE, float),
}
