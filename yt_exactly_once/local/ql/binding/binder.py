"""From syntax to typed expressions.

It resolves names, with aliases and groups, and infers types. A table with an alias answers only to qualified
names, one without only to plain ones, as on the server. An expression first gets the set of types that
it could have. The expressions around it then decide for one type, as in the server's expression builder
version 1 (`yt/yt/library/query/base/expr_builder_v1.cpp`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.arithmetic import RELATIONS
from yt_exactly_once.local.ql.binding import operators
from yt_exactly_once.local.ql.binding.bound import Aggregate, Bound, Column, GroupValue, InSet
from yt_exactly_once.local.ql.binding.operators import Untyped
from yt_exactly_once.local.ql.functions.general import AGGREGATES, SCALARS
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.naming import (
    column_name,
    expression_text,
    expressions_text,
    reference_name,
)
from yt_exactly_once.local.ql.text.parser import scalar
from yt_exactly_once.local.ql.value_types import (
    ALL_TYPES,
    Type,
    TypeSet,
    describe,
    of_column,
    of_literal,
)
from yt_exactly_once.local.tables.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Expression, Expressions
    from yt_exactly_once.local.tables.layout import TableLayout

MAX_EXPRESSION_DEPTH = 50
POSITION_COLUMNS = tuple(
    SchemaColumn(name, "int64", "int64", required=True, sort_order="ascending")
    for name in ("$tablet_index", "$row_index")
)


@dataclass(frozen=True)
class Source:
    """The table of a query.

    Attributes:
        layout: where its rows are.
        alias: what the names of its columns are qualified with.
    """

    layout: TableLayout
    alias: str | None

    @cached_property
    def _by_name(self) -> dict[str, SchemaColumn]:
        return {column.name: column for column in self.columns}

    @property
    def columns(self) -> tuple[SchemaColumn, ...]:
        """Columns that a query sees; an ordered table has its position in front."""
        if self.layout.sorted:
            return self.layout.columns
        return POSITION_COLUMNS + self.layout.columns

    @property
    def key_columns(self) -> tuple[SchemaColumn, ...]:
        """Columns that form the key of the table, or the position in an ordered one."""
        return self.layout.key_columns if self.layout.sorted else POSITION_COLUMNS

    def resolve(self, reference: syntax.Reference) -> Column | None:
        """Return the column that a name means."""
        found = self._by_name.get(reference.name) if reference.table == self.alias else None
        return None if found is None else Column(of_column(found.wire_type), found.name)


@dataclass
class Group:
    """What GROUP BY leaves of the rows: the keys by name, and the aggregates asked for so far."""

    keys: list[tuple[str, Bound]]
    aggregates: list[Aggregate] = field(default_factory=list)

    @property
    def values(self) -> list[GroupValue]:
        """All of them."""
        named = [(bound.type, name) for name, bound in self.keys]
        named += [(aggregate.type, aggregate.name) for aggregate in self.aggregates]
        return [GroupValue(kind, index, name) for index, (kind, name) in enumerate(named)]

    def key(self, name: str) -> GroupValue | None:
        """Return a key by its name."""
        keys = self.values[: len(self.keys)]
        return next((key for key in keys if key.name == name), None)

    def aggregate(self, wanted: Aggregate) -> GroupValue:
        """Return the value of an aggregate, adding it if it is new."""
        if wanted not in self.aggregates:
            self.aggregates.append(wanted)
        return self.values[len(self.keys) + self.aggregates.index(wanted)]


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

    def _node(self, node: Expression) -> Untyped:  # noqa: PLR0911 - a case per kind
        match node:
            case syntax.Literal():
                return Untyped.of_constant(node, of_literal(node.type))
            case syntax.Alias():
                return self._reference(syntax.Reference(node.name))
            case syntax.Reference():
                return self._reference(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Unary():
                return self._unary(node)
            case syntax.Binary():
                return self._binary(node)
        return self._in(node)

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

    def _call(self, call: syntax.Call) -> Untyped:
        name = call.function.lower()
        if name in AGGREGATES:
            return self._aggregate(call, name)
        function = SCALARS.get(name)
        if function is None:
            raise YtError(
                f'Undefined function "{name}": there is none, or it is not supported by the embedded'
                " cluster; rewrite the query without it"
            )
        return operators.applied(function, self._each(call.arguments), call)

    def _aggregate(self, call: syntax.Call, name: str) -> Untyped:
        group, self._group = self._group, None
        if group is None:
            raise YtError(f'Misuse of aggregate function "{name}"')
        text = f"{name}({expressions_text(call.arguments)})"

        def build(kind: Type, arguments: tuple[Bound, ...]) -> Bound:
            (argument,) = arguments
            return group.aggregate(Aggregate(AGGREGATES[name], argument, kind, text))

        try:
            return operators.applied(AGGREGATES[name], self._each(call.arguments), call, build)
        finally:
            self._group = group

    def _each(self, expressions: Expressions) -> list[Untyped]:
        return [self._bind(expression) for expression in expressions]

    def _unary(self, unary: syntax.Unary) -> Untyped:
        if len(unary.operand) != 1:
            raise YtError(f'Unary operator "{unary.operator}" must have exactly one argument')
        return operators.applied(operators.UNARY[unary.operator], self._each(unary.operand), unary)

    def _binary(self, binary: syntax.Binary) -> Untyped:
        if binary.operator not in RELATIONS:
            operands = self._each((scalar(binary.left), scalar(binary.right)))
            return operators.applied(operators.BINARY[binary.operator], operands, binary)
        if len(binary.left) != len(binary.right):
            raise YtError(
                f"Tuples of same size are expected but got {len(binary.left)} "
                f"vs {len(binary.right)}",
                source=expression_text(binary),
            )
        return operators.compare_tuples(binary, self._each(binary.left), self._each(binary.right))

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
