"""Writes to the SQL table of one sorted table, with the check that nobody else was faster.

One upsert per row does both: its condition lets a row through only when the last write to its locks is
not newer than the start of the transaction, and the number of changed rows tells whether all passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt.yson import YsonUint64

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tablets import aggregates, values
from yt_exactly_once.local.tablets.layout import quote
from yt_exactly_once.local.tablets.modifications import PRIMARY_LOCK

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from yt_exactly_once.local.tablets.layout import TableLayout
    from yt_exactly_once.local.tablets.modifications import Batch
    from yt_exactly_once.local.tablets.schema import Column

_CHUNK = 500
"""Keys per SELECT when a conflict is looked for."""

_PRIMARY_NAME = "<primary>"


class SortedWriter:
    """The writes of one commit to one sorted table.

    Args:
        connection: from `Store.write`.
        layout: the table.
        transaction_id: who writes.
        start: the moment after which another write is a conflict.
        timestamp: commit timestamp.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        layout: TableLayout,
        transaction_id: str,
        start: int,
        timestamp: int,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._transaction_id = transaction_id
        self._start = start
        self._timestamp = timestamp
        self._table = quote(layout.sql_table)
        self._sql_names = dict(
            zip((column.name for column in layout.columns), layout.sql_names, strict=True)
        )

    def write(self, batch: Batch) -> None:
        """Apply one batch.

        Raises:
            YtError: 1700 when a row was written after the transaction started.
        """
        if not batch.keys:
            return
        if batch.kind == "lock":
            self._lock(batch)
            return
        columns = batch.rows.columns if batch.kind == "write" else self._layout.key_columns
        statement = self._upsert(batch, columns)
        if batch.aggregate:
            aggregates.register(self._connection)
        cursor = self._connection.executemany(
            statement, zip(batch.keys, *batch.rows.data[: len(columns)], strict=True)
        )
        if cursor.rowcount != len(batch.keys):
            raise self._conflict(batch)

    def check_read_locks(self, batch: Batch) -> None:
        """Refuse writes to rows that others have locked since the transaction started."""
        newer = self._connection.execute(
            "SELECT 1 FROM row_locks WHERE node_id = ? AND max(read_ts, write_ts) > ? LIMIT 1",
            (self._layout.node_id, self._start),
        ).fetchone()
        if newer is None:
            return
        shared = all(lock.startswith("shared_") for lock in batch.locks.values())
        moment = "write_ts" if shared and batch.kind == "lock" else "max(read_ts, write_ts)"
        locks = {*batch.locks, PRIMARY_LOCK}
        for chunk in _chunks(batch.keys):
            marks = ", ".join("?" * len(chunk))
            names = ", ".join("?" * len(locks))
            found = self._connection.execute(
                f"SELECT key, lock, {moment}, write_ts > ? FROM row_locks WHERE node_id = ?"
                f" AND key IN ({marks}) AND lock IN ({names}) AND {moment} > ? LIMIT 1",
                (self._start, self._layout.node_id, *chunk, *locks, self._start),
            ).fetchone()
            if found is not None:
                key, lock, winner, exclusive = found
                text = (
                    "Row lock conflict due to concurrent write"
                    if exclusive
                    else "Write failed due to concurrent read lock"
                )
                raise self._error(text, batch, key, lock, winner)

    def _lock(self, batch: Batch) -> None:
        guard = self._guard(batch)
        for chunk in _chunks(batch.keys):
            marks = ", ".join("?" * len(chunk))
            found = self._connection.execute(
                f'SELECT 1 FROM {self._table} WHERE "$key" IN ({marks}) AND NOT ({guard}) LIMIT 1',
                chunk,
            ).fetchone()
            if found is not None:
                raise self._conflict(batch)
        for name, lock in batch.locks.items():
            moment = "write_ts" if lock == "exclusive" else "read_ts"
            self._connection.executemany(
                f"INSERT INTO row_locks (node_id, key, lock, {moment}) VALUES (?, ?, ?, ?)"
                f" ON CONFLICT DO UPDATE SET {moment} = excluded.{moment}",
                [(self._layout.node_id, key, name, self._timestamp) for key in batch.keys],
            )

    def _upsert(self, batch: Batch, columns: Sequence[Column]) -> str:
        timestamp = str(self._timestamp)
        deleted = "1" if batch.kind == "delete" else "0"
        lock_columns = [
            quote(column)
            for column, name in zip(self._layout.lock_columns, self._layout.locks, strict=False)
            if name in batch.locks
        ]
        names = [quote(self._sql_names[column.name]) for column in columns]
        inserted = ['"$key"', '"$ts"', '"$deleted"', *lock_columns, *names]
        literals = ["?", timestamp, deleted, *[timestamp] * len(lock_columns), *["?"] * len(names)]
        changes = [f'"$ts" = {timestamp}', f'"$deleted" = {deleted}']
        changes += [f"{column} = {timestamp}" for column in lock_columns]
        changes += self._changes(batch, columns)
        return (
            f"INSERT INTO {self._table} ({', '.join(inserted)}) VALUES ({', '.join(literals)})"
            f' ON CONFLICT ("$key") DO UPDATE SET {", ".join(changes)} WHERE {self._guard(batch)}'
        )

    def _changes(self, batch: Batch, columns: Sequence[Column]) -> list[str]:
        if batch.kind == "delete":
            return [
                f"{quote(self._sql_names[column.name])} = NULL"
                for column in self._layout.value_columns
            ]
        changes = []
        for column in columns:
            if column.is_key:
                continue
            name = quote(self._sql_names[column.name])
            if batch.aggregate and column.aggregate:
                changes.append(f"{name} = {aggregates.expression(column, name)}")
            else:
                changes.append(f"{name} = excluded.{name}")
        return changes

    def _guard(self, batch: Batch) -> str:
        """Build the condition on the existing row under which a write is not a conflict."""
        columns = self._guarded(batch)
        return " AND ".join(
            f"(coalesce({column}, 0) <= {self._start} OR {column} = {self._timestamp})"
            for column in columns
        )

    def _guarded(self, batch: Batch) -> list[str]:
        if not self._layout.lock_columns:
            return ['"$ts"']
        return [
            quote(column)
            for column, name in zip(self._layout.lock_columns, self._layout.locks, strict=True)
            if name in batch.locks or name == PRIMARY_LOCK
        ]

    def _conflict(self, batch: Batch) -> YtError:
        guarded = self._guarded(batch)
        guard = self._guard(batch)
        for chunk in _chunks(batch.keys):
            marks = ", ".join("?" * len(chunk))
            found = self._connection.execute(
                f'SELECT "$key", {", ".join(guarded)} FROM {self._table}'
                f' WHERE "$key" IN ({marks}) AND NOT ({guard}) ORDER BY "$key" LIMIT 1',
                chunk,
            ).fetchone()
            if found is not None:
                key, *moments = found
                winner = max(moment or 0 for moment in moments if moment != self._timestamp)
                lock = PRIMARY_LOCK
                if self._layout.lock_columns:
                    lock = guarded[moments.index(winner)].strip('"').removeprefix("$lock:")
                text = "Row lock conflict due to concurrent write"
                return self._error(text, batch, key, lock, winner)
        raise AssertionError("a refused write has no conflicting row")

    def _error(self, message: str, batch: Batch, key: bytes, lock: str, winner: int) -> YtError:
        layout = self._layout
        index = batch.keys.index(key)
        shown = [
            values.decode_value(column, batch.rows.data[position][index])
            for position, column in enumerate(layout.key_columns)
        ]
        return YtError(
            message,
            Code.TRANSACTION_LOCK_CONFLICT,
            {
                "loser_transaction_id": self._transaction_id,
                "winner_transaction_commit_timestamp": YsonUint64(winner),
                "tablet_id": layout.tablet_of(key).tablet_id,
                "table_path": layout.path,
                "key": shown,
                "lock": lock or _PRIMARY_NAME,
            },
        )


def _chunks(keys: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]
