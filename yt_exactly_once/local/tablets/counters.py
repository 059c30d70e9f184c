"""What the store counts for each tablet: rows, weights, and when things happened to it."""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.tables.layout import TableLayout


def of(connection: Connection, layout: TableLayout, index: int, *names: str) -> Any:
    """Return some counters of a tablet; a single one by itself."""
    found = connection.execute(
        f"SELECT {', '.join(names)} FROM tablets WHERE node_id = ? AND tablet_index = ?",
        (layout.node_id, index),
    ).fetchone()
    return found if len(names) > 1 else found[0]


def of_all(connection: Connection, layout: TableLayout, *names: str) -> list[Any]:
    """Return some counters of every tablet, in order."""
    return connection.execute(
        f"SELECT {', '.join(names)} FROM tablets WHERE node_id = ? ORDER BY tablet_index",
        (layout.node_id,),
    ).fetchall()


def put(connection: Connection, layout: TableLayout, index: int, **values: Any) -> None:
    """Change some counters of a tablet."""
    changes = ", ".join(f"{name} = ?" for name in values)
    connection.execute(
        f"UPDATE tablets SET {changes} WHERE node_id = ? AND tablet_index = ?",
        (*values.values(), layout.node_id, index),
    )
