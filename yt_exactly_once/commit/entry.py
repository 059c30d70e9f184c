"""An entry of the ledger: one row per query and target that says which batch was committed last, and how.

It resolves commits with an unknown outcome. Every commit writes it, so of two writers at most one wins. Every
mode writes it, so a query may change its mode. An entry that contradicts the batch is an error.

The first columns are what the protocol compares. The others are statistics for people and tools, and the
protocol never looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.commit.cluster import Row
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.commit.tally import READ, Tally
from yt_exactly_once.errors import LedgerError, require_known_format

LEDGER_VERSION = 1
"""Format of the entries and of the table. Raise it when an earlier version would misread an entry."""

APPLICATION_PREFIX = "application:"
"""In front of an application's name, where a batch job has no id of a query: none begins so."""

LETTERS_PREFIX = "dead-letters:"
"""In front of the id of a dead-letter table, where its replayed rows are an entry of their own."""


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
    first: int = 0


SourceKey = tuple[str, str, str, str]
"""`SourceRange.key`: what a source is told apart by."""

Offsets = dict[SourceKey, dict[int, PartitionOffset]]
"""Per source, per partition."""


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
        query_name: name of the query in Spark (`queryName`); `None` without one.
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
    query_name: str | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def application(self) -> str:
        """The name of the batch job that the entry is of; empty for that of a query."""
        _, _, name = self.query_id.partition(APPLICATION_PREFIX)
        return name

    @property
    def name(self) -> str:
        """The name of the query, that of the batch job, or the first characters of its id."""
        return self.query_name or self.application or self.query_id[:8]

    @property
    def label(self) -> str:
        """The name with the first characters of the id; the id of a query without a name."""
        return f"{self.query_name} ({self.query_id[:8]})" if self.query_name else self.query_id

    def is_of(self, query: str | None) -> bool:
        """Return whether this query is meant: by its name, or by the first characters of its id."""
        return (
            query is None
            or self.query_id.startswith(query)
            or query in {self.query_name, self.application}
        )

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
    def batch_bytes(self) -> int:
        """Bytes of the encoded rows of the batch in all targets whose tallies are known."""
        return sum(tally.bytes for tally in self.tallies.values())

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
                **{name: READ[kind](row[name]) for name, kind in ENTRY_COLUMNS.items()},
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
            **{name: getattr(self, name) for name in ENTRY_COLUMNS},
            "format_version": LEDGER_VERSION,
            "part_digests": list(self.part_digests),
            "offsets": _with_facts([*_offsets_to(self.offsets)], self._facts()),
            **self.tally.to_row(),
        }


ENTRY_COLUMNS = {
    "query_id": "string", "target": "string", "batch_id": "int64", "run_id": "string",
    "transaction_id": "string", "part": "int64", "part_count": "int64", "other_sources": "string",
    "mode": "string", "attempts": "int64", "started_at": "string", "committed_at": "string",
    "seconds": "double",
}  # fmt: skip
"""Columns that are one field each of `LedgerEntry`, with their types."""

_FACTS = ("stateful", "advances", "query_name")
"""Fields that each source in `offsets` has: tables of earlier versions would lack columns of theirs."""

_COLUMNS = "columns"
"""Where each source has the columns of the target."""

_NO_SOURCE = {"cluster": "", "queue": "", "queue_id": "", "consumer": "", "partitions": {}}
"""What has the facts of an entry without a queue."""


def _facts_from(sources: Sequence[Any]) -> dict[str, Any]:
    first = sources[0] if sources else {}
    return {name: first.get(name) for name in _FACTS}


def _columns_from(target: str, sources: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    known = sources[0].get(_COLUMNS) if sources else None
    return {} if known is None else {target: tuple(map(str, known))}


def _with_facts(sources: list[dict[str, Any]], facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**source, **facts} for source in sources or ([_NO_SOURCE] if facts else [])]


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
