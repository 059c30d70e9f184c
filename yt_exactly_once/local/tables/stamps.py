"""When each value of a row of a sorted table was written.

A write of every value column, the usual one, leaves one timestamp for all of them, that of the row. A write
of some columns leaves one per value column in `"$stamps"`: numbers of equal width in the order of the
schema, 0 where nothing was written. So SQL finds the number of a column by its place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

_SQL_FUNCTION, _MOVED = "yt_stamps", "yt_moved_stamps"
_WIDTH = 20


def column(position: int) -> str:
    """Return the SQL for the timestamp of a value column, by its place; null where nothing was written."""
    one = f'substr("$stamps", {position * _WIDTH + 1}, {_WIDTH})'
    return f'iif("$stamps" IS NULL, "$ts", nullif(CAST({one} AS INTEGER), 0))'


def register(connection: sqlite3.Connection) -> None:
    """Make the function of `written` known to a connection, once: SQLite then forgets its statements."""
    known = "SELECT 1 FROM pragma_function_list WHERE name = ?"
    if connection.execute(known, (_SQL_FUNCTION,)).fetchone() is None:
        connection.create_function(_SQL_FUNCTION, 5, _written, deterministic=True)


def written(columns: Sequence[bool], moment: str) -> tuple[str, str]:
    """Return the SQL for `"$stamps"` after a write: of a new row, and of one that is there.

    Args:
        columns: which value columns are written.
        moment: SQL for the timestamp of the write.
    """
    if all(columns):
        return "NULL", "NULL"
    mask = "".join("01"[each] for each in columns)
    before = '"$stamps", "$ts", "$deleted"'
    new, old = (f"{_SQL_FUNCTION}({each}, {moment}, '{mask}')" for each in ("NULL, 0, 1", before))
    return new, old


def move(
    connection: sqlite3.Connection, table: str, before: Sequence[str], after: Sequence[str]
) -> None:
    """Follow a change of the value columns in every row of a quoted table; new columns were never written."""
    if before == after:
        return

    def moved(stamps: str | None, timestamp: int) -> str:
        known = dict(zip(before, every(stamps, timestamp, len(before)), strict=True))
        return _join(known.get(name, 0) for name in after)

    connection.create_function(_MOVED, 2, moved, deterministic=True)
    connection.execute(
        f'UPDATE {table} SET "$stamps" = {_MOVED}("$stamps", "$ts") WHERE "$deleted" = 0'
    )


def _join(moments: Iterable[int]) -> str:
    return "".join(f"{moment:0{_WIDTH}}" for moment in moments)


@lru_cache(1024)
def _written(stamps: str | None, before: int, deleted: int, moment: int, mask: str) -> str:
    known = every(stamps, 0 if deleted else before, len(mask))
    return _join(moment if mark == "1" else old for mark, old in zip(mask, known, strict=True))


def every(stamps: str | None, timestamp: int, count: int) -> list[int]:
    """Return the timestamps of the value columns of a row with this timestamp."""
    if stamps is None:
        return [timestamp] * count
    return [int(stamps[start : start + _WIDTH]) for start in range(0, count * _WIDTH, _WIDTH)]
