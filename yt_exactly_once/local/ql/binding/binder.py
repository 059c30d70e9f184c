"""From syntax to typed expressions.

It resolves names, with aliases and groups, and infers types. An expression first gets the set of types that
it could have. The expressions around it then decide for one type, as in the server's expression builder
version 1 (`yt/yt/library/query/base/expr_builder_v1.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import RELATIONS
from yt_exactly_once.local.ql.binding import operators
from yt_exactly_once.local.ql.binding.bound import (
    Aggregate,
    AggregateValue,
    Apply,
    Bound,
    Constant,
    GroupKey,
    InSet,
)
from yt_exactly_once.local.ql.binding.operators import Untyped
from yt_exactly_once.local.ql.functions.aggregates import AGGREGATES
from yt_exactly_once.local.ql.functions.general import LACKING, SCALARS
from yt_exactly_once.local.ql.functions.signatures import infer
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.naming import (
    column_name,
    expression_text,
    expressions_text,
    reference_name,
)
from yt_exactly_once.local.ql.text.parser import scalar
from yt_exactly_once.local.ql.value_types import ALL_TYPES, Type, TypeSet, describe, of_literal

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.source import Source
    from yt_exactly_once.local.ql.text.syntax import Expression, Expressions

MAX_EXPRESSION_DEPTH = 50


@dataclass
class Group:
    """What GROUP BY leaves of the rows: the keys by name, and the aggregates asked for so far."""

    keys: list[tuple[str, Bound]]
    aggregates: list[Aggregate] = field(default_factory=list)

    def key(self, name: str) -> GroupKey | None:
        """Return a key by its name."""
        for index, (key_name, bound) in enumerate(self.keys):
            if key_name == name:
                return GroupKey(bound.type, bound.nullable, index, name)
        return None

    def aggregate(self, wanted: Aggregate) -> int:
        """Return the number of an aggregate, adding it if it is new."""
        if wanted not in self.aggregates:
            self.aggregates.append(wanted)
        return self.aggregates.index(wanted)


class Binder:
    """Binds expressions over a table.

    Args:
        aliases: expressions named by AS anywhere in the query.
    """

    def __init__(self, source: Source, aliases: Mapping[str, Expression]) -> None:
        self._source = source
        self._aliases = aliases
        self._expanding: set[str] = set()
        self._depth = 0
        self._group: Group | None = None

    def group(self, group: Group) -> None:
        """From now on bind over groups instead of rows."""
        self._group = group

    def bind(self, expression: Expression, types: TypeSet = ALL_TYPES) -> Bound:
        """Bind an expression that must have one of the given types.

        Raises:
            YtError: an unknown name, a misplaced aggregate, types that do not go together.
        """
        untyped = self._bind(expression)
        common = types & untyped.types
        if not common:
            raise YtError(
                f'Type mismatch in expression: expected "{describe(types)}", '
                f'got "{describe(untyped.types)}"',
                source=expression_text(expression),
            )
        return untyped.generate(min(common))

    def predicate(self, expressions: Expressions, clause: str) -> Bound:
        """Bind the condition of a clause."""
        expression = scalar(expressions)
        bound = self.bind(expression)
        if bound.type is not Type.BOOLEAN:
            raise YtError(
                f"{clause} is not a boolean expression",
                source=expression_text(expression),
                actual_type=bound.type.title,
                expected_type="boolean",
            )
        return bound

    def _bind(self, expression: Expression) -> Untyped:
        self._depth += 1
        if self._depth > MAX_EXPRESSION_DEPTH:
            raise YtError(
                "Maximum expression depth exceeded", max_expression_depth=MAX_EXPRESSION_DEPTH
            )
        try:
            return self._node(expression)
        finally:
            self._depth -= 1

    @singledispatchmethod
    def _node(self, expression: Any) -> Untyped:
        raise TypeError(f"{type(expression).__name__} cannot be bound")

    @_node.register(syntax.Literal)
    def _literal(self, literal: syntax.Literal) -> Untyped:
        return Untyped.of_constant(Constant(literal.type, literal.value), of_literal(literal.type))

    @_node.register(syntax.Alias)
    def _alias(self, alias: syntax.Alias) -> Untyped:
        return self._reference(syntax.Reference(alias.name))

    @_node.register(syntax.Reference)
    def _reference(self, reference: syntax.Reference) -> Untyped:
        if reference.table is None:
            key = None if self._group is None else self._group.key(reference.name)
            if key is not None:
                return Untyped.fixed(key)
            named = self._aliases.get(reference.name)
            # Inside its own definition an alias means the column of that name.
            if named is not None and reference.name not in self._expanding:
                self._expanding.add(reference.name)
                try:
                    return self._bind(named)
                finally:
                    self._expanding.discard(reference.name)
        column = None if self._group is not None else self._source.resolve(reference)
        if column is None:
            name = reference_name(reference.name, reference.table)
            raise YtError(f'Undefined reference "{name}"')
        return Untyped.fixed(column)

    @_node.register(syntax.Call)
    def _call(self, call: syntax.Call) -> Untyped:
        name = call.function.lower()
        if name in AGGREGATES:
            return self._aggregate(call, name)
        function = SCALARS.get(name)
        if function is None:
            if name in LACKING:
                raise YtError(
                    f'Function "{name}" is not supported by the embedded cluster; '
                    "rewrite the query without it"
                )
            raise YtError(f'Undefined function "{name}"')
        arguments = [self._bind(argument) for argument in call.arguments]
        inference = infer(function, [a.types for a in arguments], expression_text(call))

        def generate(result: Type) -> Bound:
            bound = _generate(arguments, inference.choose(result))
            return Apply(result, not function.takes_null, function, bound)

        return Untyped(inference.result_types, generate)

    def _aggregate(self, call: syntax.Call, name: str) -> Untyped:
        function, _ = AGGREGATES[name]
        group = self._group
        if group is None:
            raise YtError(f'Misuse of aggregate function "{name}"')
        with self._over_rows():
            arguments = [self._bind(argument) for argument in call.arguments]
        inference = infer(function, [a.types for a in arguments], expression_text(call))

        def generate(result: Type) -> Bound:
            bound = _generate(arguments, inference.choose(result))
            text = f"{name}({expressions_text(call.arguments)})"
            index = group.aggregate(Aggregate(name, bound, result, text))
            return AggregateValue(result, nullable=not function.takes_null, index=index)

        return Untyped(inference.result_types, generate)

    @contextmanager
    def _over_rows(self) -> Iterator[None]:
        group, self._group = self._group, None
        try:
            yield
        finally:
            self._group = group

    @_node.register(syntax.Unary)
    def _unary(self, unary: syntax.Unary) -> Untyped:
        if len(unary.operand) != 1:
            raise YtError(f'Unary operator "{unary.operator}" must have exactly one argument')
        return operators.unary(
            unary.operator, self._bind(unary.operand[0]), expression_text(unary.operand[0])
        )

    @_node.register(syntax.Binary)
    def _binary(self, binary: syntax.Binary) -> Untyped:
        if binary.operator not in RELATIONS:
            left, right = scalar(binary.left), scalar(binary.right)
            return operators.binary(
                binary.operator,
                self._bind(left),
                self._bind(right),
                (expression_text(left), expression_text(right)),
            )
        if len(binary.left) != len(binary.right):
            raise YtError(
                f"Tuples of same size are expected but got {len(binary.left)} "
                f"vs {len(binary.right)}",
                source=expression_text(binary),
            )
        return operators.compare_tuples(
            binary.operator,
            [self._bind(item) for item in binary.left],
            [self._bind(item) for item in binary.right],
            [
                (expression_text(left), expression_text(right))
                for left, right in zip(binary.left, binary.right, strict=True)
            ],
        )

    @_node.register(syntax.In)
    def _in(self, node: syntax.In) -> Untyped:
        """Every operand decides its own type."""
        operands = tuple(self.bind(each, ALL_TYPES - {Type.ANY}) for each in node.operand)
        names = [column_name(e) for e in node.operand if isinstance(e, syntax.Reference)]
        for name in names:
            if names.count(name) > 1:
                raise YtError(
                    f"IN operator has multiple references to column {name}",
                    source=expressions_text(node.operand),
                )
        rows = operators.constant_rows(node.values, operands, expression_text(node))
        return Untyped.fixed(InSet(Type.BOOLEAN, operands, rows))


def _generate(arguments: list[Untyped], types: tuple[Type, ...]) -> tuple[Bound, ...]:
    return tuple(a.generate(kind) for a, kind in zip(arguments, types, strict=True))
