"""Which columns a query can name: the joined tables, their aliases, shared columns.

Owns name resolution for columns. A table with an alias answers only to qualified names, one without only
to plain ones, as on the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.bound import Column
from yt_exactly_once.local.ql.text.naming import reference_name
from yt_exactly_once.local.ql.value_types import Type, of_column
from yt_exactly_once.local.tables.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Reference
    from yt_exactly_once.local.tables.layout import TableLayout

TABLET_INDEX = "$tablet_index"
ROW_INDEX = "$row_index"

POSITION_COLUMNS = tuple(
    SchemaColumn(name, "int64", "int64", required=True, sort_order="ascending")
    for name in (TABLET_INDEX, ROW_INDEX)
)


@dataclass(frozen=True)
class Source:
    """One table of a query.

    Attributes:
        index: position among the joined tables; the main one has 0.
        layout: where its rows are.
        optional: whether a row may be absent (right side of a left join).
        shared: names of columns that are the same in an earlier table (USING).
    """

    index: int
    layout: TableLayout
    alias: str | None
    optional: bool = False
    shared: frozenset[str] = frozenset()

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

    def is_simple(self, name: str) -> bool:
        """Tell whether a column has a type of the first generation, possibly optional."""
        logical = self._by_name[name].type_v3
        if isinstance(logical, dict) and logical["type_name"] == "optional":
            logical = logical["item"]
        return isinstance(logical, str)

    @property
    def sql_alias(self) -> str:
        """Name of the table inside the SQL statement."""
        return f"t{self.index}"

    def column(self, name: str) -> Column | None:
        """Return a column by its plain name."""
        found = self._by_name.get(name)
        if found is None:
            return None
        kind = of_column(found.wire_type)
        nullable = self.optional or not found.required or kind is Type.NULL
        return Column(kind, nullable, self.index, name)

    def sql_column(self, name: str) -> str:
        """Return the SQL of a column."""
        return f"{self.sql_alias}.{self.layout.sql_column(name)}"


class Scope:
    """The tables that are visible to an expression."""

    def __init__(self) -> None:
        self.sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Make one more table visible."""
        self.sources.append(source)

    def resolve(self, reference: Reference) -> Column | None:
        """Find the column that a name means.

        Raises:
            YtError: several tables have it and it is not shared between them.
        """
        found: Column | None = None
        for source in self.sources:
            if source.alias != reference.table:
                continue
            column = source.column(reference.name)
            if column is None:
                continue
            if found is None:
                found = column
            elif reference.name not in source.shared:
                name = reference_name(reference.name, reference.table)
                raise YtError(f'Ambiguous resolution for column "{name}"')
        return found

    def is_simple(self, column: Column) -> bool:
        """Tell whether a resolved column has a type of the first generation, possibly optional."""
        return any(
            source.is_simple(column.name)
            for source in self.sources
            if source.index == column.source
        )
