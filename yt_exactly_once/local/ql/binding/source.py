"""Which columns a query can name: those of its table.

Owns name resolution for columns. A table with an alias answers only to qualified names, one without only
to plain ones, as on the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.binding.bound import Column
from yt_exactly_once.local.ql.value_types import of_column
from yt_exactly_once.local.tables.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.text.syntax import Reference
    from yt_exactly_once.local.tables.layout import TableLayout

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

    def resolve(self, reference: Reference) -> Column | None:
        """Return the column that a name means."""
        found = self._by_name.get(reference.name) if reference.table == self.alias else None
        return None if found is None else Column(of_column(found.wire_type), found.name)
