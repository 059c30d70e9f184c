"""Where a dynamic table lies in SQLite: names, columns, tablets. The query language reads tables by it.

Owns the layout and its load from the store; it never changes rows. A layout is immutable and is
cached per process under a version that every change of schema or state replaces, so a cached one is
only used when the store, inside the same SQLite transaction, still names that version.

Sorted table: `"$key"` (blob in table order), `"$ts"` (commit timestamp), `"$deleted"` (tombstone, kept
for conflict detection), then one column per schema column. Ordered table: `"$tablet_index"`,
`"$row_index"`, `"$ts"`, then the schema columns. Readers take `sql_source`, which hides tombstones and
honours `read_timestamp`; trimmed rows are gone from the table itself.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.schema import Column, TableSchema, parse_schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

__all__ = [
    "Column",
    "TableLayout",
    "Tablet",
    "find_layout",
    "initialize",
    "load_layout",
    "quote",
    "save_layout",
    "touch_layout",
]

_MAX_TIMESTAMP = 2**63 - 1
READABLE_STATES = frozenset(("mounted", "freezing", "frozen", "unfreezing"))

_TABLES = """
CREATE TABLE IF NOT EXISTS dynamic_tables (
    node_id TEXT PRIMARY KEY, version TEXT NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tablets (
    node_id TEXT NOT NULL, tablet_index INTEGER NOT NULL, tablet_id TEXT NOT NULL,
    state TEXT NOT NULL, pivot_key BLOB NOT NULL, mount_revision INTEGER NOT NULL,
    total_rows INTEGER NOT NULL DEFAULT 0, trimmed_rows INTEGER NOT NULL DEFAULT 0,
    total_weight INTEGER NOT NULL DEFAULT 0, trimmed_weight INTEGER NOT NULL DEFAULT 0,
    last_write_ts INTEGER NOT NULL DEFAULT 0, flushed_ts INTEGER NOT NULL DEFAULT 0,
    chunk_ts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (node_id, tablet_index)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunk_lists (
    tablet_id TEXT NOT NULL, position INTEGER NOT NULL, chunk_id TEXT NOT NULL,
    first INTEGER NOT NULL, past INTEGER NOT NULL, dropped INTEGER NOT NULL,
    PRIMARY KEY (tablet_id, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending_appends (
    id INTEGER PRIMARY KEY, due REAL NOT NULL, node_id TEXT NOT NULL, ts INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS row_locks (
    node_id TEXT NOT NULL, key BLOB NOT NULL, lock TEXT NOT NULL,
    read_ts INTEGER NOT NULL DEFAULT 0, write_ts INTEGER NOT NULL DEFAULT 0,
    shared_ts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (node_id, key, lock)
) WITHOUT ROWID;
"""

_ADDED_COLUMNS = (
    ("row_locks", "shared_ts"),
    ("tablets", "flushed_ts"),
    ("tablets", "chunk_ts"),
)
"""Columns that data directories of earlier versions lack."""


@dataclass(frozen=True)
class Tablet:
    """One tablet: everything about it that does not change with every commit.

    Attributes:
        index: position in the table.
        tablet_id: object id.
        state: `mounted`, `frozen` or `unmounted`.
        pivot_key: encoded first key (sorted tables; empty blob for the first tablet).
        pivot_values: the same key as values.
        mount_revision: number that every mount replaces.
        chunk_timestamp: last write before the tablet was mounted; conflicts with it and with what was
            before are not known any more.
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
        return self.state in READABLE_STATES


@dataclass(frozen=True, eq=False)
class TableLayout:
    """A dynamic table as the store holds it.

    Attributes:
        node_id: Cypress id of the table.
        path: path under which it was found.
        schema: schema of the table.
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
    def sorted(self) -> bool:
        """Whether the table is sorted."""
        return self.schema.is_sorted

    @cached_property
    def locks(self) -> tuple[str, ...]:
        """Lock groups: the primary one, named "", and those that columns name."""
        named = dict.fromkeys(column.lock for column in self.columns if column.lock)
        return ("", *named) if self.sorted else ("",)

    @cached_property
    def lock_columns(self) -> tuple[str, ...]:
        """SQL columns with the last write of each lock group; none when there is one group."""
        return tuple(f"$lock:{name}" for name in self.locks) if len(self.locks) > 1 else ()

    @property
    def state(self) -> str:
        """State of the tablets, `mixed` when they differ."""
        states = {tablet.state for tablet in self.tablets}
        return states.pop() if len(states) == 1 else "mixed"

    @property
    def sql_table(self) -> str:
        """Unquoted name of the SQL table."""
        return f"{'s' if self.sorted else 'o'}_{self.node_id}"

    @property
    def history_table(self) -> str:
        """Unquoted name of the SQL table with replaced versions of a sorted table."""
        return f"h_{self.node_id}"

    @cached_property
    def sql_source(self) -> str:
        """What to put after FROM to read the visible rows."""
        if not self.sorted:
            return quote(self.sql_table)
        wanted = '"$deleted" = 0'
        if self.retention_timestamp:
            wanted += f' AND "$ts" >= {self.retention_timestamp}'
        if self.read_timestamp is None:
            return f"(SELECT * FROM {quote(self.sql_table)} WHERE {wanted})"
        names = ", ".join(['"$key"', '"$ts"', *map(quote, self.sql_names)])
        moment = f'{wanted} AND "$ts" <= {self.read_timestamp}'
        return (
            f"(SELECT {names} FROM {quote(self.sql_table)} WHERE {moment} "
            f"UNION ALL SELECT {names} FROM {quote(self.history_table)} "
            f'WHERE {moment} AND "$until" > {self.read_timestamp})'
        )

    def since(self, timestamp: int) -> TableLayout:
        """Return the layout for reads of what was written from a timestamp on."""
        return replace(self, retention_timestamp=min(timestamp, _MAX_TIMESTAMP))

    def at(self, timestamp: int) -> TableLayout:
        """Return the layout for reads at a timestamp."""
        return replace(self, read_timestamp=timestamp)

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {column.name: index for index, column in enumerate(self.columns)}

    def column(self, name: str) -> Column | None:
        """Return a column by name."""
        index = self._by_name.get(name)
        return None if index is None else self.columns[index]

    def sql_column(self, name: str) -> str:
        """Return the quoted SQL name of a column; system columns of ordered tables included."""
        index = self._by_name.get(name)
        return quote(name if index is None else self.sql_names[index])

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


def initialize(connection: sqlite3.Connection) -> None:
    """Create the tables of this package; needs a connection of `Store.write`."""
    for statement in _TABLES.split(";"):
        if statement.strip():
            connection.execute(statement)
    for table, column in _ADDED_COLUMNS:
        known = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
        if column not in known:
            connection.execute(
                f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0"
            )


_cache: dict[str, tuple[str, TableLayout]] = {}
_cache_lock = threading.Lock()
_CACHED_LAYOUTS = 1000


def find_layout(connection: sqlite3.Connection, node_id: str, path: str) -> TableLayout | None:
    """Load a layout; None when the node is not a dynamic table."""
    found = connection.execute(
        "SELECT version FROM dynamic_tables WHERE node_id = ?", (node_id,)
    ).fetchone()
    if found is None:
        return None
    cached = _cache.get(node_id)
    if cached is not None and cached[0] == found[0] and cached[1].path == path:
        return cached[1]
    (body,) = connection.execute(
        "SELECT body FROM dynamic_tables WHERE node_id = ?", (node_id,)
    ).fetchone()
    fields = {key.decode(): value for key, value in values.load_yson(body).items()}
    layout = TableLayout(
        node_id=node_id,
        path=path,
        schema=parse_schema(fields["schema"]),
        sql_names=tuple(name.decode() for name in fields["sql_names"]),
        tablets=_load_tablets(connection, node_id),
        options={key.decode(): value for key, value in fields["options"].items()},
    )
    with _cache_lock:
        if len(_cache) >= _CACHED_LAYOUTS:
            _cache.clear()
        _cache[node_id] = (found[0], layout)
    return layout


def load_layout(connection: sqlite3.Connection, node_id: str, path: str) -> TableLayout:
    """Load the layout of a dynamic table; other nodes are an error."""
    layout = find_layout(connection, node_id, path)
    if layout is None:
        raise YtError(f"Table {path} is not dynamic")
    return layout


def save_layout(
    connection: sqlite3.Connection,
    node_id: str,
    schema: TableSchema,
    sql_names: Sequence[str],
    options: dict[str, Any],
) -> None:
    """Write schema and options of a table and give it a new version."""
    body = values.dump_yson(
        {"schema": schema.to_yson(), "sql_names": list(sql_names), "options": options}
    )
    connection.execute(
        "INSERT OR REPLACE INTO dynamic_tables VALUES (?, ?, ?)", (node_id, new_version(), body)
    )


def touch_layout(connection: sqlite3.Connection, node_id: str) -> None:
    """Give a table a new version after a change of its tablets."""
    connection.execute(
        "UPDATE dynamic_tables SET version = ? WHERE node_id = ?", (new_version(), node_id)
    )


def new_version() -> str:
    """Return a version never used before, not even by a change that was rolled back."""
    return uuid.uuid4().hex


def _load_tablets(connection: sqlite3.Connection, node_id: str) -> tuple[Tablet, ...]:
    rows = connection.execute(
        "SELECT tablet_index, tablet_id, state, pivot_key, mount_revision, chunk_ts FROM tablets"
        " WHERE node_id = ? ORDER BY tablet_index",
        (node_id,),
    ).fetchall()
    tablets = []
    for index, tablet_id, state, pivot, *moments in rows:
        encoded, pivot_values = values.load_yson(pivot)
        tablets.append(Tablet(index, tablet_id, state, encoded, tuple(pivot_values), *moments))
    return tuple(tablets)
