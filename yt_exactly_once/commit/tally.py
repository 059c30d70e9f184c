"""What a query has written into one target: rows, bytes and digests, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from yt_exactly_once.codec.row_hash import HASH_VERSION, combined, spelled
from yt_exactly_once.commit.cluster import Row


class SentBy(StrEnum):
    """Who sends the rows of a batch to the cluster."""

    DRIVER = "driver"
    TASKS = "tasks"


@dataclass(frozen=True)
class RowDigest:
    """Digests of the rows that a query has written into one target: sums of the hashes of rows.

    A sum does not depend on the order of the rows. It changes with every row that is lost, repeated or
    changed.

    Attributes:
        batch: of the last batch.
        total: of all batches that have a digest.
        from_start: whether these are all batches of the query, written in one way.
        replaces: whether the rows of the last batch are all that the table holds (`write="replace"`).
    """

    batch: int
    total: int = 0
    from_start: bool = False
    replaces: bool = False

    @classmethod
    def from_row(cls, row: Row) -> Self | None:
        """Read a ledger row; nothing if another version of this package hashes rows otherwise."""
        if row["digest_version"] != HASH_VERSION:
            return None
        batch, total = int(row["batch_digest"], 16), int(row["total_digest"], 16)
        return cls(batch, total, row["digest_from_start"], row["digest_replaces"])

    def to_row(self) -> Row:
        """Return its columns."""
        return {
            "batch_digest": spelled(self.batch),
            "total_digest": spelled(self.total),
            "digest_version": HASH_VERSION,
            "digest_from_start": self.from_start,
            "digest_replaces": self.replaces,
        }


class TableRows(NamedTuple):
    """What a query has written into one table of a pattern.

    Attributes:
        rows: of the last batch.
        total_rows: of all batches.
        digest: of all these rows; `None` unless each batch had one.
    """

    rows: int
    total_rows: int
    digest: int | None = None

    @classmethod
    def from_list(cls, rows: int, total_rows: int, digest: str | None, version: int | None) -> Self:
        """Read what `to_list` wrote; another version of this package may hash rows otherwise."""
        is_known = digest is not None and version == HASH_VERSION
        return cls(int(rows), int(total_rows), int(digest, 16) if digest and is_known else None)

    def to_list(self) -> list[Any]:
        """Return what a ledger keeps."""
        version = None if self.digest is None else HASH_VERSION
        text = None if self.digest is None else spelled(self.digest)
        return [self.rows, self.total_rows, text, version]

    def after(self, part: TableRows) -> TableRows:
        """Return the same after one more part of the last batch."""
        digests = (self.digest, part.digest) if self.total_rows else (0, part.digest)
        total = None if None in digests else combined(*(one or 0 for one in digests))
        return TableRows(self.rows + part.rows, self.total_rows + part.total_rows, total)


@dataclass(frozen=True)
class Tally:
    """What a query has written into one target. The fields are called as the columns of the ledger.

    Attributes:
        rows: of the last batch, written or deleted.
        total_rows: of all batches.
        rejected_rows: of the last batch, that the target cannot take; they are not among `rows`.
        bytes: of the encoded rows of the last batch.
        sent_by: who sent the rows of the last batch, see `SentBy`.
        digest: of the rows; `None` unless the target is given `digest=True`.
        tables: all that it has written, by path, where the target is a pattern; empty for any other.
    """

    rows: int = 0
    total_rows: int = 0
    total_batches: int = 0
    rejected_rows: int = 0
    total_rejected_rows: int = 0
    bytes: int = 0
    total_bytes: int = 0
    sent_by: str = SentBy.DRIVER.value
    digest: RowDigest | None = None
    tables: Mapping[str, TableRows] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read a ledger row."""
        values = {name: READ[kind](row[name]) for name, kind in TALLY_COLUMNS.items()}
        tables = {
            path: TableRows.from_list(*known) for path, known in (row.get(TABLES) or {}).items()
        }
        return cls(**values, digest=RowDigest.from_row(row), tables=tables)

    def to_row(self) -> Row:
        """Return its columns; that of tables only with some, since an earlier ledger lacks it."""
        values = {name: getattr(self, name) for name in TALLY_COLUMNS}
        tables = {TABLES: {path: one.to_list() for path, one in self.tables.items()}}
        return {
            **values,
            **(_NO_DIGEST if self.digest is None else self.digest.to_row()),
            **(tables if self.tables else {}),
        }

    def of_table(self, path: str) -> Tally:
        """Return the rows of one of its tables; what it does not know of one table is 0."""
        known = self.tables[path]
        return Tally(
            rows=known.rows,
            total_rows=known.total_rows,
            total_batches=self.total_batches,
            sent_by=self.sent_by,
            digest=None if known.digest is None else RowDigest(0, known.digest, from_start=True),
        )

    def beside(self, other: Tally) -> Tally:
        """Return what this and another table of the same part are given together, without any totals."""
        return replace(
            other,
            rows=self.rows + other.rows,
            rejected_rows=self.rejected_rows + other.rejected_rows,
            bytes=self.bytes + other.bytes,
            digest=other.digest or self.digest,
            tables={**self.tables, **other.tables},
        )

    def after(self, part: Tally, *, is_same: bool) -> Tally:
        """Return the tally after one more part, of the batch that was counted last or of a later one.

        Args:
            part: what the part writes, without any totals.
        """
        last = self if is_same else Tally()
        return Tally(
            rows=last.rows + part.rows,
            total_rows=self.total_rows + part.rows,
            total_batches=self.total_batches + (not is_same),
            rejected_rows=last.rejected_rows + part.rejected_rows,
            total_rejected_rows=self.total_rejected_rows + part.rejected_rows,
            bytes=last.bytes + part.bytes,
            total_bytes=self.total_bytes + part.bytes,
            sent_by=part.sent_by,
            digest=self._digest_after(part, is_same=is_same),
            tables=self._tables_after(part, is_same=is_same),
        )

    def _tables_after(self, part: Tally, *, is_same: bool) -> dict[str, TableRows]:
        known = {
            path: one if is_same else one._replace(rows=0) for path, one in self.tables.items()
        }
        for path, one in part.tables.items():
            known[path] = known.get(path, TableRows(0, 0)).after(one)
        return known

    def _digest_after(self, part: Tally, *, is_same: bool) -> RowDigest | None:
        old, new = self.digest, part.digest
        if new is None:
            # A later part of a batch need not write into every target.
            return old if is_same and not part.rows else None
        if old is None or old.replaces != new.replaces:
            return replace(new, total=new.batch, from_start=not self.total_batches)
        batch = combined(new.batch, old.batch if is_same else 0)
        return replace(old, batch=batch, total=combined(old.total, new.batch))


READ: dict[str, Callable[[Any], Any]] = {"string": str, "int64": int, "double": float}
"""How a value of a column is read, by the column's type."""

TALLY_COLUMNS = {
    "rows": "int64", "total_rows": "int64", "total_batches": "int64", "rejected_rows": "int64",
    "total_rejected_rows": "int64", "bytes": "int64", "total_bytes": "int64", "sent_by": "string",
}  # fmt: skip
"""Columns that are one field each of `Tally`, with their types."""

TABLES = "tables"
"""Column with the rows of each table of a pattern."""

DIGEST_COLUMNS = {
    "batch_digest": "string", "total_digest": "string", "digest_version": "int64",
    "digest_from_start": "boolean", "digest_replaces": "boolean",
}  # fmt: skip
_NO_DIGEST: Row = dict.fromkeys(DIGEST_COLUMNS)
