"""The ledger: one row per query and target that says which batch was committed last, and how.

It resolves commits with an unknown outcome. Every commit writes it, so of two writers at most one wins. Every
mode writes it, so a query may change its mode. An entry that contradicts the batch is an error.

The first columns are what the protocol compares. The others are statistics for people and tools, and the
protocol never looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.codec.row_hash import HASH_VERSION, combined, spelled
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import Reader, Row, Transaction
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.errors import LedgerDivergedError, LedgerError, require_known_format

LEDGER_VERSION = 1
"""Format of the entries and of the table. Raise it when an earlier version would misread an entry."""

LEDGER_MARK = "yt_exactly_once_ledger"
"""Attribute of every ledger, by which it is found; its value is the format of the table."""

APPLICATION_PREFIX = "application:"
"""In front of an application's name, where a batch job has no id of a query: none begins so."""

LETTERS_PREFIX = "dead-letters:"
"""In front of the id of a dead-letter table, where its replayed rows are an entry of their own."""


class SentBy(StrEnum):
    """Who sends the rows of a batch to the cluster."""

    DRIVER = "driver"
    TASKS = "tasks"


@dataclass(frozen=True)
class PartitionOffset:
    """Where a batch left one queue partition.

    Attributes:
        start: first row of the batch.
        end: first row after it.
        left: where the consumer was left: `end`; `start` for a stateful query; and where the entry
            before had left it when the transaction did not move it.
        first: first row that the query has ever read there; for tools.
    """

    start: int
    end: int
    left: int
    first: int = field(default=0, compare=False)


SourceKey = tuple[str, str, str, str]
"""`SourceRange.key`: what a source is told apart by."""

Offsets = dict[SourceKey, dict[int, PartitionOffset]]
"""Per source, per partition."""


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
        values = {name: _READ[kind](row[name]) for name, kind in _TALLY.items()}
        tables = {
            path: TableRows.from_list(*known) for path, known in (row.get(TABLES) or {}).items()
        }
        return cls(**values, digest=RowDigest.from_row(row), tables=tables)

    def to_row(self) -> Row:
        """Return its columns; that of tables only with some, since an earlier ledger lacks it."""
        values = {name: getattr(self, name) for name in _TALLY}
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


@dataclass(frozen=True)
class LedgerEntry:
    """The committed state of one query and target. The fields are called as the columns of the ledger.

    Attributes:
        batch_id: the last committed batch.
        offsets: the ranges of the batch and where it left the consumers.
        part: the last committed part of the batch, from 1.
        part_count: how many parts the batch has; 1 unless it was split.
        part_digests: of the committed parts of a split batch.
        other_sources: `MicroBatch.others` of the batch; versions before kept a digest of it.
        attempts: how many attempts the part took.
        started_at: when the sink began with the batch, UTC by the driver's clock, ISO 8601; never compared.
        committed_at: when its commit was sent; as `started_at`.
        seconds: between the two, by a clock that is never set.
        stateful: whether the query keeps state; `None` if the entry does not say so.
        advances: whether the sink moves the consumers (`advance_consumer`); `None` as above.
        tallies: by target.
        columns: that were written into each target, if the sink may add some; see `TargetColumns`.
    """

    query_id: str
    target: str
    batch_id: int
    run_id: str
    transaction_id: str
    offsets: Offsets
    part: int = 1
    part_count: int = 1
    part_digests: tuple[str, ...] = ()
    other_sources: str = ""
    mode: str = ""
    attempts: int = 1
    started_at: str = ""
    committed_at: str = ""
    seconds: float = 0.0
    stateful: bool | None = None
    advances: bool | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def application(self) -> str:
        """The name of the batch job that the entry is of; empty for that of a query."""
        _, _, name = self.query_id.partition(APPLICATION_PREFIX)
        return name

    @property
    def is_complete(self) -> bool:
        """Whether the whole batch is committed."""
        return self.part == self.part_count

    @property
    def others(self) -> OtherSources | None:
        """Where the batch began and ended in sources that are no queues, if the entry keeps it."""
        return OtherSources.from_text(self.other_sources)

    @property
    def tally(self) -> Tally:
        """What the query has written into the target of this entry."""
        return self.tallies.get(self.target, Tally())

    @property
    def pattern(self) -> PathPattern | None:
        """By which its rows name their tables; `None` if the target is one table."""
        return PathPattern.of(self.target)

    @property
    def tables(self) -> tuple[str, ...]:
        """The paths of the tables that the query has written as this target."""
        return tuple(self.tally.tables) if self.pattern else (self.target,)

    def of_table(self, path: str) -> Self:
        """Return the entry of a pattern as that of one of its tables."""
        return replace(self, target=path, tallies={path: self.tally.of_table(path)})

    @property
    def batch_rows(self) -> int:
        """Rows of the batch in all targets whose tallies are known, rejected ones included."""
        return sum(tally.rows + tally.rejected_rows for tally in self.tallies.values())

    @property
    def source_rows(self) -> int:
        """Rows of the queues in the batch."""
        return sum(one.end - one.start for one in self._partitions())

    @property
    def moves_consumer(self) -> bool:
        """Whether the sink moves the consumers. An entry that does not say so is taken at what it left."""
        return (
            any(one.left for one in self._partitions()) if self.advances is None else self.advances
        )

    @property
    def keeps_state(self) -> bool:
        """Whether the query keeps state. An entry that does not say so is taken for one of such a query."""
        if self.stateful is not None:
            return self.stateful
        return any(one.left < one.end for one in self._partitions())

    def _facts(self) -> dict[str, Any]:
        known = {name: getattr(self, name) for name in _FACTS}
        if self.target in self.columns:
            known[_COLUMNS] = list(self.columns[self.target])
        return {name: value for name, value in known.items() if value is not None}

    def _partitions(self) -> Iterator[PartitionOffset]:
        return (one for partitions in self.offsets.values() for one in partitions.values())

    def offset(self, source: SourceKey, partition: int) -> PartitionOffset | None:
        """Return where the batch left a partition, if it knew it."""
        return self.offsets.get(source, {}).get(partition)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read a ledger row.

        Raises:
            NewerFormatError: a newer version of this package wrote it.
            LedgerError: the row was not written by this package.
        """
        where: dict[str, Any] = {"query": row.get("query_id"), "target": row.get("target")}
        try:
            require_known_format(
                int(row["format_version"]), LEDGER_VERSION, "The ledger entry", **where
            )
            return cls(
                **{name: _READ[kind](row[name]) for name, kind in _ENTRY.items()},
                offsets=_offsets_from(row["offsets"] or ()),
                **_facts_from(row["offsets"] or ()),
                columns=_columns_from(row["target"], row["offsets"] or ()),
                part_digests=tuple(row["part_digests"] or ()),
                tallies={row["target"]: Tally.from_row(row)},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                "The ledger row cannot be read",
                remedy="Restore the row or the table: only this package may write to it. Use another "
                "ledger_path only with a new checkpoint, because it does not know earlier batches",
                **where,
            ) from error

    def to_row(self) -> Row:
        """Return the row to write."""
        return {
            **{name: getattr(self, name) for name in _ENTRY},
            "format_version": LEDGER_VERSION,
            "part_digests": list(self.part_digests),
            "offsets": _with_facts([*_offsets_to(self.offsets)], self._facts()),
            **self.tally.to_row(),
        }


class CommitLedger:
    """Entries of one query in one ledger table, for the targets that one sink writes together."""

    def __init__(self, path: str, query_id: str, targets: Sequence[str]) -> None:
        self.path = path
        self.query_id = query_id
        self.targets = tuple(targets)

    def read(self, reader: Reader) -> LedgerEntry | None:
        """Return the first entry with all tallies; raise `LedgerError` if several commits wrote them."""
        keys = [{"query_id": self.query_id, "target": target} for target in self.targets]
        rows = reader.lookup(self.path, keys)
        entries = [None if row is None else LedgerEntry.from_row(row) for row in rows]
        if len({entry.transaction_id if entry else None for entry in entries}) > 1:
            raise LedgerDivergedError(
                "The targets of this sink were not written by the same transaction",
                remedy="After a change of the targets, use a new ledger_path and a new checkpoint",
                query=self.query_id,
                ledger=self.path,
            )
        if entries[0] is None:
            return None
        known = [entry for entry in entries if entry]
        tallies = [each for entry in known for each in entry.tallies.items()]
        columns = [each for entry in known for each in entry.columns.items()]
        return replace(entries[0], tallies=dict(tallies), columns=dict(columns))

    def record(self, transaction: Transaction, entry: LedgerEntry) -> None:
        """Write the entry for every target; it takes effect with the transaction."""
        rows = [replace(entry, target=target).to_row() for target in self.targets]
        transaction.insert(self.path, rows)

    def tallies(
        self, entry: LedgerEntry | None, batch: MicroBatch, written: Mapping[str, Tally]
    ) -> dict[str, Tally]:
        """Return the tallies after one more part, by what it has written into each target."""
        is_same = entry is not None and entry.batch_id == batch.batch_id
        old, nothing = entry.tallies if entry else {}, Tally()
        return {
            target: old.get(target, nothing).after(written.get(target, nothing), is_same=is_same)
            for target in self.targets
        }


def _column(name: str, kind: str, *, required: bool = True, **more: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "required": required, **more}


_READ: dict[str, Callable[[Any], Any]] = {"string": str, "int64": int, "double": float}

_ENTRY = {
    "query_id": "string", "target": "string", "batch_id": "int64", "run_id": "string",
    "transaction_id": "string", "part": "int64", "part_count": "int64", "other_sources": "string",
    "mode": "string", "attempts": "int64", "started_at": "string", "committed_at": "string",
    "seconds": "double",
}  # fmt: skip
_TALLY = {
    "rows": "int64", "total_rows": "int64", "total_batches": "int64", "rejected_rows": "int64",
    "total_rejected_rows": "int64", "bytes": "int64", "total_bytes": "int64", "sent_by": "string",
}  # fmt: skip
"""Columns that are one field each of `LedgerEntry` and of `Tally`, with their types."""

_FACTS = ("stateful", "advances")
"""Fields that each source in `offsets` has: tables of earlier versions would lack columns of theirs."""

_COLUMNS = "columns"
"""Where each source has the columns of the target. An entry without a source gets one that is none."""

_NO_SOURCE = {"cluster": "", "queue": "", "queue_id": "", "consumer": "", "partitions": {}}

_KEY = ("query_id", "target")

TABLES = "tables"
"""Column with the rows of each table of a pattern."""

_DIGEST_COLUMNS = {
    "batch_digest": "string", "total_digest": "string", "digest_version": "int64",
    "digest_from_start": "boolean", "digest_replaces": "boolean",
}  # fmt: skip
_NO_DIGEST: Row = dict.fromkeys(_DIGEST_COLUMNS)

LEDGER_SCHEMA: list[dict[str, Any]] = [
    *(_column(name, "string", sort_order="ascending") for name in _KEY),
    _column("format_version", "int64"),
    *(_column(name, kind) for name, kind in _ENTRY.items() if name not in _KEY),
    _column("part_digests", "any", required=False),
    _column("offsets", "any", required=False),
    *(_column(name, kind) for name, kind in _TALLY.items()),
    *(_column(name, kind, required=False) for name, kind in _DIGEST_COLUMNS.items()),
    _column(TABLES, "any", required=False),
]
"""Columns of the ledger table."""

EARLIER_LEDGER_SCHEMA = [column for column in LEDGER_SCHEMA if column["name"] != TABLES]
"""The columns that ledgers of an earlier version have: enough for all targets but patterns."""

HISTORY_SCHEMA = [
    *LEDGER_SCHEMA[:2],
    _column("batch_id", "int64", sort_order="ascending"),
    *(column for column in LEDGER_SCHEMA[2:] if column["name"] != "batch_id"),
]
"""Columns of a table that keeps the entries of earlier batches too."""


def require_known_ledger(attributes: Mapping[str, Any], path: str) -> None:
    """Check the mark of a ledger's table; raise `NewerFormatError` if a newer version has created it."""
    version = int(attributes.get(LEDGER_MARK, LEDGER_VERSION))
    require_known_format(version, LEDGER_VERSION, "The ledger", ledger=path)


def _facts_from(sources: Sequence[Any]) -> dict[str, Any]:
    first = sources[0] if sources else {}
    return {name: first.get(name) for name in _FACTS}


def _columns_from(target: str, sources: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    known = sources[0].get(_COLUMNS) if sources else None
    return {} if known is None else {target: tuple(map(str, known))}


def _with_facts(sources: list[dict[str, Any]], facts: dict[str, Any]) -> list[dict[str, Any]]:
    if not sources and _COLUMNS in facts:
        sources = [_NO_SOURCE]
    return [{**source, **facts} for source in sources]


def _offsets_to(offsets: Offsets) -> Iterator[dict[str, Any]]:
    for (cluster, queue, consumer, queue_id), partitions in offsets.items():
        yield {
            "cluster": cluster,
            "queue": queue,
            "queue_id": queue_id,
            "consumer": consumer,
            "partitions": {
                str(number): [one.start, one.end, one.left, one.first]
                for number, one in sorted(partitions.items())
            },
        }


def _offsets_from(sources: Sequence[Any]) -> Offsets:
    return {
        (source["cluster"], source["queue"], source["consumer"], source["queue_id"]): {
            int(partition): PartitionOffset(*map(int, numbers))
            for partition, numbers in source["partitions"].items()
        }
        for source in sources
        if source["queue"]
    }
