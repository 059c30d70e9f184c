"""Writes to the SQL table of one sorted table, with the check that nobody else was faster.

If a table has one lock group and all locks are exclusive, one upsert does both. Its condition lets a row
through only if its last write is not newer than the start of the transaction. The number of changed rows
shows whether all rows passed. Other locks are looked up first, see `row_locks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import pyarrow as pa
from yt.yson import YsonUint64

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import stamps, values, vectors
from yt_exactly_once.local.tables.packed import unpacked
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets import aggregates, row_images, row_locks
from yt_exactly_once.local.tablets.modifications import Batch

_PRIMARY_NAME = "<primary>"
_GUARD = ' WHERE "$ts" <= ? OR "$ts" = ?1'
"""The condition on the existing row under which a write is not a conflict."""


@dataclass(frozen=True)
class SortedWriter(row_locks.RowLocks):
    """The writes of one commit to one sorted table, and the locks that they take."""

    transaction_id: str

    def write(self, batches: Sequence[Batch]) -> None:
        """Apply batches in order.

        Raises:
            YtError: 1700 when a row was written or locked after the transaction started.
        """
        exclusive = len(self.layout.locks) == 1 and all(
            batch.kind != "lock" and {"exclusive"} >= set(batch.locks.values()) for batch in batches
        )
        guarded = exclusive and not self.any_newer()
        if guarded and self._write(batches, guarded=True):
            return
        masks = row_locks.merge((batch.keys, batch.locks) for batch in batches)
        conflict = self.find_conflict(masks)
        if conflict is not None:
            raise self._error(batches, conflict)
        if guarded:
            raise AssertionError("a refused write has no conflicting row")
        self.remember_writes(masks)
        self._write((batch for batch in batches if batch.kind != "lock"), guarded=False)
        self.record(masks)

    def _write(self, batches: Iterable[Batch], *, guarded: bool) -> bool:
        """Write rows and tell whether all have passed."""
        return all(self._write_batch(batch, guarded=guarded) for batch in batches if batch.keys)

    def _write_batch(self, batch: Batch, *, guarded: bool) -> bool:
        columns = batch.rows.columns if batch.kind == "write" else self.layout.key_columns
        given = list(map(unpacked, batch.rows.data[: len(columns)]))
        image = row_images.image_of([pa.array(batch.keys, pa.binary()), *given])
        if batch.aggregate:
            aggregates.register(self.connection)
        if image is None:
            stored = list(map(vectors.to_stored, given))
            changed = self._write_bound(batch, columns, stored, guarded=guarded)
        else:
            with row_images.opened(self.connection, image):
                changed = self._write_opened(batch, columns, guarded=guarded)
        return changed == len(batch.keys)

    def _write_opened(self, batch: Batch, columns: Sequence[Column], *, guarded: bool) -> int:
        """Write the rows of an image and return how many have passed."""
        if self._any_between(batch.keys[0], batch.keys[-1]):
            join = f'CROSS JOIN {self.layout.sql_table} ON "$key" = {row_images.column(0)}'
            self._keep_replaced(f"{row_images.TABLE} {join} WHERE true")
        given = [row_images.column(number) for number in range(1 + len(columns))]
        insert, row, update = self._upsert(batch, columns, given, guarded=guarded)
        # Without a condition, ON would be that of a join.
        return self.connection.execute(
            f"{insert} SELECT {row} FROM {row_images.TABLE} WHERE true {update}",
            (self.timestamp, *[self.start] * guarded),
        ).rowcount

    def _write_bound(
        self,
        batch: Batch,
        columns: Sequence[Column],
        given: Sequence[list[object]],
        *,
        guarded: bool,
    ) -> int:
        """Write rows as parameters of statements and return how many have passed."""
        for marks, portion in row_images.portions(batch.keys):
            self._keep_replaced(f'{self.layout.sql_table} WHERE "$key" IN ({marks})', portion)
        given_marks = ["?"] * (1 + len(columns))
        insert, row, update = self._upsert(batch, columns, given_marks, guarded=guarded)
        starts = [repeat(self.start)] * guarded
        return self.connection.executemany(
            f"{insert} VALUES ({row}) {update}",
            zip(repeat(self.timestamp), batch.keys, *given, *starts, strict=False),
        ).rowcount

    def _any_between(self, first: bytes, last: bytes) -> bool:
        """Tell whether a row is there whose key is between others; the keys of a batch are in order."""
        found = self.connection.execute(
            f'SELECT 1 FROM {self.layout.sql_table} WHERE "$key" BETWEEN ? AND ? LIMIT 1',
            (first, last),
        )
        return found.fetchone() is not None

    def _keep_replaced(self, rows: str, keys: Sequence[bytes] = ()) -> None:
        """Keep what a write will replace, for reads at a timestamp; `rows` follows FROM, with a condition."""
        listed = self.layout.version_columns
        self.connection.execute(
            f'INSERT OR IGNORE INTO {self.layout.history_table} ({listed}, "$until")'
            f' SELECT {listed}, ? FROM {rows} AND "$ts" <> ?',
            (self.timestamp, *keys, self.timestamp),
        )

    def _upsert(
        self, batch: Batch, columns: Sequence[Column], given: Sequence[str], *, guarded: bool
    ) -> tuple[str, str, str]:
        """Return an upsert in three parts: what comes before the rows, one row, and the rest.

        SQLite then knows the statement from the commit before. Its first parameter is the commit timestamp.

        Args:
            given: SQL for the key and for each column.
            guarded: let no row through that was written since the start, which is then the last parameter.
        """
        is_delete = batch.kind == "delete"
        deleted = "1" if is_delete else "0"
        names = [self.layout.sql_column(column.name) for column in columns]
        known = {column.name for column in columns}
        written = [column.name in known or is_delete for column in self.layout.value_columns]
        if not all(written):
            stamps.register(self.connection)
        # In this order, so that the timestamp is the first parameter whatever the others are.
        new_stamps, old_stamps = stamps.written(written, "?1")
        inserted = ['"$ts"', '"$deleted"', '"$stamps"', '"$key"', *names]
        literals = ["?1", deleted, new_stamps, *given]
        changes = ['"$ts" = ?1', f'"$deleted" = {deleted}', f'"$stamps" = {old_stamps}']
        changed = self.layout.value_columns if is_delete else columns
        changes += [self._change(batch, column) for column in changed if not column.is_key]
        return (
            f"INSERT INTO {self.layout.sql_table} ({', '.join(inserted)})",
            ", ".join(literals),
            f'ON CONFLICT ("$key") DO UPDATE SET {", ".join(changes)}{_GUARD if guarded else ""}',
        )

    def _change(self, batch: Batch, column: Column) -> str:
        name = self.layout.sql_column(column.name)
        if batch.kind == "delete":
            return f"{name} = NULL"
        if batch.aggregate and column.aggregate:
            return f"{name} = {aggregates.expression(column, name)}"
        return f"{name} = excluded.{name}"

    def _error(self, batches: Sequence[Batch], conflict: row_locks.Conflict) -> YtError:
        layout, key = self.layout, conflict.key
        batch = next(batch for batch in batches if key in batch.keys)
        index = batch.keys.index(key)
        shown = [
            values.decode_value(column, *vectors.to_stored(unpacked(stored)[index : index + 1]))
            for column, stored in zip(layout.key_columns, batch.rows.data, strict=False)
        ]
        return YtError(
            conflict.message,
            Code.TRANSACTION_LOCK_CONFLICT,
            {
                "loser_transaction_id": self.transaction_id,
                "winner_transaction_commit_timestamp": YsonUint64(conflict.winner),
                "tablet_id": layout.tablet_of(key).tablet_id,
                "table_path": layout.path,
                "key": shown,
                "lock": conflict.lock or _PRIMARY_NAME,
            },
        )
