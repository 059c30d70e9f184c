"""A dynamic table in SQLite: names, columns, tablets. The query language reads tables by it.

A layout is immutable and has all that SQL over the table needs. `tablets.catalog` stores layouts.

Sorted table: `"$key"` (blob in table order), `"$ts"` (commit timestamp), `"$deleted"` (tombstone, kept
for conflict detection), `"$stamps"` (see `stamps`), then one column per schema column. Readers take
`sql_source`, which hides tombstones and honours `read_timestamp`. Rows of an ordered table lie elsewhere, see
`tablets.blocks`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from yt_exactly_once.local.tables import keys, stamps
from yt_exactly_once.local.tables.schema import Column, TableSchema

_MAX_TIMESTAMP = 2**63 - 1
VERSION_COLUMNS = ("$key", "$ts", "$deleted", "$stamps")
"""What each version of a row has before the columns of the schema."""


@dataclass(frozen=True)
class Tablet:
    """One tablet: everything about it that does not change with every commit.

    Attributes:
        index: position in the table.
        state: `mounted`, `frozen` or `unmounted`.
        pivot_key: encoded first key (sorted tables; empty blob for the first tablet).
        pivot_values: the same key as values.
        mount_revision: number that every mount replaces.
        chunk_timestamp: last write before the tablet was mounted or frozen; conflicts with it and with what
            was before are not known any more.
    """

    index: int
    tablet_id: str
    state: str
    pivot_key: bytes
    pivot_values: tuple[Any, ...]
    mount_revision: int
    chunk_timestamp: int = 0

    @property
    def is_readable(self) -> bool:
        """Whether it answers reads."""
        return self.state != "unmounted"


@dataclass(frozen=True, eq=False)
class TableLayout:
    """A dynamic table as the store holds it.

    Attributes:
        node_id: Cypress id of the table.
        path: path under which it was found.
        sql_names: SQL column names, parallel to the columns of the schema.
        tablets: tablets in order.
        options: settings that act on rows, such as `max_rows_per_transaction`.
        read_timestamp: when set, `sql_source` shows the rows of that moment (sorted tables).
        retention_timestamp: when set, rows not written since then are left out (sorted tables).
    """

    node_id: str
    path: str
    schema: TableSchema
    sql_names: tuple[str, ...]
    tablets: tuple[Tablet, ...]
    options: dict[str, Any] = field(default_factory=dict)
    read_timestamp: int | None = None
    retention_timestamp: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the schema in order."""
        return self.schema.columns

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Key columns in order; empty for an ordered table."""
        return self.schema.key_columns

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """Columns that are not part of the key."""
        return self.columns[len(self.key_columns) :]

    @cached_property
    def writable_columns(self) -> tuple[Column, ...]:
        """Columns that a client may give in a write."""
        return tuple(
            column
            for column in self.columns
            if column.expression is None and (self.sorted or not column.is_system)
        )

    @cached_property
    def system_weight(self) -> int:
        """Data weight that the system columns add to each row."""
        return 8 * sum(column.is_system for column in self.columns)

    @cached_property
    def sorted(self) -> bool:
        """Whether the table is sorted."""
        return self.schema.is_sorted

    @cached_property
    def locks(self) -> tuple[str, ...]:
        """Lock groups: the primary one, named "", and those that columns name."""
        named = dict.fromkeys(column.lock for column in self.columns if column.lock)
        return ("", *named) if self.sorted else ("",)

    @property
    def state(self) -> str:
        """State of the tablets, `mixed` when they differ."""
        states = {tablet.state for tablet in self.tablets}
        return states.pop() if len(states) == 1 else "mixed"

    @property
    def sql_table(self) -> str:
        """Quoted name of the SQL table of a sorted table."""
        return quote(f"s_{self.node_id}")

    @property
    def history_table(self) -> str:
        """Quoted name of the SQL table with replaced versions of a sorted table."""
        return quote(f"h_{self.node_id}")

    @cached_property
    def version_columns(self) -> str:
        """The list of SQL columns that a version of a row has."""
        return ", ".join(map(quote, (*VERSION_COLUMNS, *self.sql_names)))

    @cached_property
    def sql_source(self) -> str:
        """What to put after FROM to read the visible rows of a sorted table."""
        wanted, names = '"$deleted" = 0', "*"
        if self.retention_timestamp:
            wanted += f' AND "$ts" >= {self.retention_timestamp}'
            hidden = [
                f"iif({stamps.column(place)} >= {self.retention_timestamp}, {name}, NULL) AS {name}"
                for place, name in enumerate(map(quote, self.sql_names[len(self.key_columns) :]))
            ]
            kept = map(quote, (*VERSION_COLUMNS, *self.sql_names[: len(self.key_columns)]))
            names = ", ".join([*kept, *hidden])
        if self.read_timestamp is None:
            return f"(SELECT {names} FROM {self.sql_table} WHERE {wanted})"
        names = self.version_columns if names == "*" else names
        moment = f'{wanted} AND "$ts" <= {self.read_timestamp}'
        return (
            f"(SELECT {names} FROM {self.sql_table} WHERE {moment} "
            f"UNION ALL SELECT {names} FROM {self.history_table} "
            f'WHERE {moment} AND "$until" > {self.read_timestamp})'
        )

    def since(self, timestamp: int) -> TableLayout:
        """Return the layout for reads of what was written from a timestamp on."""
        return replace(self, retention_timestamp=min(timestamp, _MAX_TIMESTAMP))

    def at(self, timestamp: int) -> TableLayout:
        """Return the layout for reads at a timestamp."""
        return replace(self, read_timestamp=timestamp)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column is, by name."""
        return {column.name: index for index, column in enumerate(self.columns)}

    def sql_column(self, name: str) -> str:
        """Return the quoted SQL name of a column; null for one that the table got later."""
        return quote(self.sql_names[self.places[name]]) if name in self.places else "NULL"

    @property
    def tablet_count(self) -> int:
        """Number of tablets."""
        return len(self.tablets)

    @property
    def pivot_keys(self) -> tuple[tuple[Any, ...], ...]:
        """First key of every tablet, as values."""
        return tuple(tablet.pivot_values for tablet in self.tablets)

    @cached_property
    def _pivots(self) -> list[bytes]:
        return [tablet.pivot_key for tablet in self.tablets]

    def tablet_of(self, key: bytes) -> Tablet:
        """Return the tablet of a sorted table that holds an encoded key."""
        return self.tablets[bisect_right(self._pivots, key) - 1]

    def tablets_of(self, keys: Sequence[bytes]) -> list[Tablet]:
        """Return the tablets of a sorted table that hold encoded keys, in order."""
        if self.tablet_count == 1:
            return list(self.tablets) if keys else []
        return [self.tablets[index] for index in sorted({self.tablet_of(k).index for k in keys})]

    @cached_property
    def encode_keys(self) -> Any:
        """Function from stored key columns to encoded keys, see `keys.key_encoder`."""
        return keys.key_encoder(self.key_columns)


def quote(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
