"""ARRAY JOIN: lists of a row become rows, several lists side by side.

Owns the binding of the clause and what its columns are; SQLite unrolls the lists through `json_each` over
their indexes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.bound import Bound, Column, Member
from yt_exactly_once.local.ql.value_types import Type, of_logical
from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from yt_exactly_once.local.ql import syntax
    from yt_exactly_once.local.ql.binder import Binder
    from yt_exactly_once.local.ql.scope import AnySource, Scope


@dataclass(frozen=True)
class ArraySource:
    """The columns that one ARRAY JOIN adds; it looks to a scope like a table without an alias.

    Attributes:
        index: position among the joined tables.
        arrays: the lists, by the name of their column.
        columns: what a query sees.
    """

    index: int
    arrays: dict[str, Bound]
    columns: tuple[SchemaColumn, ...]
    alias: None = None
    shared: frozenset[str] = field(default=frozenset())

    @property
    def sql_alias(self) -> str:
        """Name of the unrolled indexes inside the SQL statement."""
        return f"t{self.index}"

    @property
    def position(self) -> str:
        """SQL of the index inside the lists."""
        return f"{self.sql_alias}.key"

    def schema_column(self, name: str) -> SchemaColumn | None:
        """Return how a column is declared."""
        return next((column for column in self.columns if column.name == name), None)

    def column(self, name: str) -> Column | None:
        """Return a column by its name; a list that is shorter than the others yields nulls."""
        found = self.schema_column(name)
        if found is None:
            return None
        return Column(of_logical(found.type_v3), nullable=True, source=self.index, name=name)


@dataclass(frozen=True)
class BoundArrayJoin:
    """An ARRAY JOIN that is ready to be compiled.

    Attributes:
        source: its columns.
        is_left: whether rows without items are kept.
        predicate: condition on the items.
    """

    source: ArraySource
    is_left: bool
    predicate: Bound | None


def bind_array_join(
    join: syntax.ArrayJoin, index: int, own: Binder, foreign: Binder, own_scope: Scope, inner: Scope
) -> BoundArrayJoin:
    """Bind one ARRAY JOIN.

    Raises:
        YtError: an expression is no list.
    """
    arrays: dict[str, Bound] = {}
    columns = []
    for alias in join.arrays:
        bound = own.bind(alias.expression)
        item = _item_type(bound, own_scope.sources)
        v1, required = types.to_v1(item)
        arrays[alias.name] = bound
        columns.append(SchemaColumn(alias.name, v1, item, required))
    source = ArraySource(index, arrays, tuple(columns))
    inner.add(source)
    predicate = None
    if join.predicate is not None:
        predicate = foreign.predicate(join.predicate, "JOIN-PREDICATE-clause")
    return BoundArrayJoin(source, join.is_left, predicate)


def _item_type(bound: Bound, sources: Sequence[AnySource]) -> Any:
    logical = logical_type(bound, sources)
    inner = types.value_type(logical)
    if not isinstance(inner, dict) or inner["type_name"] != "list":
        raise YtError(
            "Expected a list-like type expression in the ARRAY JOIN operator, "
            f"got {types.describe(logical)}"
        )
    return inner["item"]


def logical_type(bound: Bound, sources: Sequence[AnySource]) -> Any:
    """Return the logical type of an expression; all but columns and their parts have simple types."""
    if isinstance(bound, Member):
        return bound.logical
    if isinstance(bound, Column):
        for source in sources:
            column = source.schema_column(bound.name)
            if source.index == bound.source and column is not None:
                return column.type_v3
    return "yson" if bound.type is Type.ANY else bound.type.title
