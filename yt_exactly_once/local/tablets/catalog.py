"""The catalog of dynamic tables: their layouts in the store, and the SQL tables of this package.

It never changes rows. Each process caches layouts under their version. Every change of schema or state makes
a new version. A cached layout is used only if the store still has its version, read in the same SQLite
transaction.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema

_TABLES = """
CREATE TABLE IF NOT EXISTS dynamic_tables (
    node_id TEXT PRIMARY KEY, version TEXT NOT NULL, pruned_at INTEGER NOT NULL DEFAULT 0,
    retained_from INTEGER NOT NULL DEFAULT 0, checked_from INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tablets (
    node_id TEXT NOT NULL, tablet_index INTEGER NOT NULL, tablet_id TEXT NOT NULL,
    state TEXT NOT NULL, pivot_key BLOB NOT NULL, mount_revision INTEGER NOT NULL,
    total_rows INTEGER NOT NULL DEFAULT 0, trimmed_rows INTEGER NOT NULL DEFAULT 0,
    total_weight INTEGER NOT NULL DEFAULT 0, trimmed_weight INTEGER NOT NULL DEFAULT 0,
    last_write_ts INTEGER NOT NULL DEFAULT 0, flushed_ts INTEGER NOT NULL DEFAULT 0,
    chunk_ts INTEGER NOT NULL DEFAULT 0, written_at REAL NOT NULL DEFAULT 0, flush_due REAL,
    PRIMARY KEY (node_id, tablet_index)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tablets_to_flush ON tablets (flush_due) WHERE flush_due IS NOT NULL;
CREATE TABLE IF NOT EXISTS chunk_lists (
    tablet_id TEXT NOT NULL, position INTEGER NOT NULL, chunk_id TEXT NOT NULL,
    first INTEGER NOT NULL, past INTEGER NOT NULL, dropped INTEGER NOT NULL,
    released REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (tablet_id, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending_appends (
    id INTEGER PRIMARY KEY, due REAL NOT NULL, node_id TEXT NOT NULL,
    tablet_index INTEGER NOT NULL, total_rows INTEGER NOT NULL, total_weight INTEGER NOT NULL,
    ts INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS row_locks (
    node_id TEXT NOT NULL, key BLOB NOT NULL, lock TEXT NOT NULL,
    read_ts INTEGER NOT NULL DEFAULT 0, write_ts INTEGER NOT NULL DEFAULT 0,
    shared_ts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (node_id, key, lock)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (
    key INTEGER PRIMARY KEY, tablet_id TEXT NOT NULL, first INTEGER NOT NULL,
    past INTEGER NOT NULL, weight INTEGER NOT NULL, oldest INTEGER NOT NULL,
    newest INTEGER NOT NULL, columns TEXT NOT NULL, size INTEGER NOT NULL,
    passed INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS blocks_by_row ON blocks (tablet_id, first)
"""


def initialize(connection: Connection) -> None:
    """Create the tables of this package; needs a connection of `Store.write`."""
    for statement in _TABLES.split(";"):
        connection.execute(statement)


_cache: dict[tuple[str, str], tuple[str, TableLayout]] = {}
_cache_lock = threading.Lock()
_CACHED_LAYOUTS = 1000


def find_layout(connection: Connection, node_id: str, path: str) -> TableLayout | None:
    """Load a layout; None when the node is not a dynamic table."""
    found = connection.execute(
        "SELECT version FROM dynamic_tables WHERE node_id = ?", (node_id,)
    ).fetchone()
    if found is None:
        return None
    cached = _cache.get((node_id, path))
    if cached is not None and cached[0] == found[0]:
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
        _cache[node_id, path] = (found[0], layout)
    return layout


def load_layout(connection: Connection, node_id: str, path: str) -> TableLayout:
    """Load the layout of a dynamic table; other nodes are an error."""
    layout = find_layout(connection, node_id, path)
    if layout is None:
        raise YtError(f"Table {path} is not dynamic")
    return layout


def save_layout(
    connection: Connection,
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
        "INSERT INTO dynamic_tables (node_id, version, body) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET version = excluded.version, body = excluded.body",
        (node_id, new_version(), body),
    )


def touch_layout(connection: Connection, node_id: str) -> None:
    """Give a table a new version after a change of its tablets."""
    connection.execute(
        "UPDATE dynamic_tables SET version = ? WHERE node_id = ?", (new_version(), node_id)
    )


def new_version() -> str:
    """Return a version never used before, not even by a change that was rolled back."""
    return uuid.uuid4().hex


def _load_tablets(connection: Connection, node_id: str) -> tuple[Tablet, ...]:
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
