"""The ledger: one row per query and target that says which batch was committed last, and how.

It resolves commits with an unknown outcome. Every commit writes it, so of two writers at most one wins. Every
mode writes it, so a query may change its mode. An entry that contradicts the batch is an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once.codec.row_hash import HASH_VERSION, joined
from yt_exactly_once.errors import (
    FencedError,
    LedgerDivergedError,
    LedgerError,
    RepeatedCallError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
    from yt_exactly_once.commit.cluster import Reader, Row, Transaction

LEDGER_SCHEMA: list[dict[str, Any]] = [
    {"name": "query_id", "type": "string", "required": True, "sort_order": "ascending"},
    {"name": "target", "type": "string", "required": True, "sort_order": "ascending"},
    {"name": "batch_id", "type": "int64", "required": True},
    {"name": "run_id", "type": "string", "required": True},
    {"name": "transaction_id", "type": "string", "required": True},
    {"name": "offsets", "type": "any"},
    {"name": "part", "type": "int64", "required": True},
    {"name": "part_count", "type": "int64", "required": True},
    {"name": "digests", "type": "any"},
    {"name": "row_count", "type": "int64", "required": True},
    {"name": "committed_at", "type": "string", "required": True},
]
"""Columns of the ledger table."""

LEDGER_MARK = "yt_exactly_once_ledger"
"""Attribute of every ledger, by which it is found; its value is the version of the entries."""

LEDGER_VERSION = 1

_RESTORE = "Another checkpoint has written the ledger: restore that one"

_OTHERS = "others"
"""Key of the digest among the offsets, and of no queue. Its item also holds the statistics."""


class Verdict(StrEnum):
    """What a ledger entry says about a batch."""

    NEW = "new"
    PARTIAL = "partial"
    REPLAY = "replay"


@dataclass(frozen=True)
class PartitionOffset:
    """Where a batch left one queue partition.

    Attributes:
        start: first row of the batch.
        end: first row after it.
        left: where the consumer was left: `end`; `start` for a stateful query; and where the entry
            before had left it when the transaction did not move it.
    """

    start: int
    end: int
    left: int


Offsets = dict[tuple[str, str, str, str], dict[int, PartitionOffset]]
"""Per `SourceRange.key`, per partition."""


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
    total: int
    from_start: bool
    replaces: bool

    @classmethod
    def from_told(cls, told: Mapping[str, Any]) -> Self | None:
        """Read what an entry says; nothing if another version of this package hashes rows otherwise."""
        if told["version"] != HASH_VERSION:
            return None
        batch, total = int(told["batch"], 16), int(told["total"], 16)
        return cls(batch, total, told["from_start"], told["replaces"])

    def to_told(self) -> dict[str, Any]:
        """Return what an entry says."""
        texts = {"batch": f"{self.batch:016x}", "total": f"{self.total:016x}"}
        return {**asdict(self), **texts, "version": HASH_VERSION}


@dataclass(frozen=True)
class Written:
    """What one part of a batch writes into one target.

    Attributes:
        rows: written or deleted.
        rejected: rows that the target cannot take.
        digest: of the rows; `None` if none is kept.
        replaces: see `RowDigest`.
    """

    rows: int = 0
    rejected: int = 0
    digest: int | None = None
    replaces: bool = False


@dataclass(frozen=True)
class Tally:
    """What a query has written into one target; for people and tools, the protocol never looks at it.

    Attributes:
        rows: rows of the last batch, written or deleted.
        total_rows: rows of all counted batches.
        batches: number of counted batches.
        from_start: whether every batch of the query is counted. Entries of older versions have no tally,
            and counting then began in the middle.
        rejected: rows of the last batch that the target cannot take; they are not among `rows`.
        total_rejected: the same for all counted batches.
        digest: of the rows; `None` unless the target is given `digest=True`.
    """

    rows: int
    total_rows: int
    batches: int
    from_start: bool
    rejected: int = 0
    total_rejected: int = 0
    digest: RowDigest | None = None

    @classmethod
    def from_told(cls, told: Mapping[str, Any]) -> Self:
        """Read what an entry says."""
        digest = told.get("digest")
        return cls(**{**told, "digest": RowDigest.from_told(digest) if digest else None})

    def to_told(self) -> dict[str, Any]:
        """Return what an entry says."""
        told = asdict(replace(self, digest=None))
        if self.digest is None:
            del told["digest"]
            return told
        return {**told, "digest": self.digest.to_told()}

    def after(self, written: Written, *, is_same: bool) -> Tally:
        """Return the tally after one more part.

        Args:
            written: by the part.
            is_same: whether it is a part of the batch that was counted last.
        """
        return Tally(
            rows=written.rows + (self.rows if is_same else 0),
            total_rows=self.total_rows + written.rows,
            batches=self.batches + (not is_same),
            from_start=self.from_start,
            rejected=written.rejected + (self.rejected if is_same else 0),
            total_rejected=self.total_rejected + written.rejected,
            digest=self._digest_after(written, is_same=is_same),
        )

    def _digest_after(self, written: Written, *, is_same: bool) -> RowDigest | None:
        old = self.digest
        if written.digest is None:
            # A later part of a batch need not write into every target.
            return old if is_same and not written.rows else None
        if old is None or old.replaces != written.replaces:
            is_whole = self.from_start and not self.batches
            return RowDigest(written.digest, written.digest, is_whole, written.replaces)
        return RowDigest(
            batch=joined(written.digest, old.batch if is_same else 0),
            total=joined(old.total, written.digest),
            from_start=old.from_start,
            replaces=written.replaces,
        )


@dataclass(frozen=True)
class LedgerEntry:
    """The committed state of one query and target.

    Attributes:
        query_id: id of the query.
        target: path of the table written to.
        batch_id: the last committed batch.
        run_id: the run that committed it.
        transaction_id: the tablet transaction that committed it.
        offsets: the ranges of the batch and where it left the consumers.
        part: the last committed part of the batch, from 1.
        part_count: how many parts the batch has; 1 unless it was split.
        digests: of the committed parts of a split batch.
        others: `MicroBatch.others` of the batch; empty in entries that do not know it.
        row_count: rows of the batch in this target, those that it cannot take left out. Entries of older
            versions count the rows of all targets, and rejected ones too.
        committed_at: UTC time by the driver's clock, ISO 8601; for people, never compared.
        mode: write mode of the batch; empty in entries that do not know it.
        attempts: how many attempts the part took; 0 in entries that do not know it.
        tallies: by target; empty in entries that do not know it.
    """

    query_id: str
    target: str
    batch_id: int
    run_id: str
    transaction_id: str
    offsets: Offsets
    row_count: int
    committed_at: str
    part: int = 1
    part_count: int = 1
    digests: tuple[str, ...] = ()
    others: str = ""
    mode: str = ""
    attempts: int = 0
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the whole batch is committed."""
        return self.part == self.part_count

    @property
    def batch_rows(self) -> int:
        """Rows of the batch in all targets whose tallies are known, rejected ones included."""
        if not self.tallies:
            return self.row_count
        return sum(tally.rows + tally.rejected for tally in self.tallies.values())

    def offset(self, source: SourceRange, partition: int) -> PartitionOffset | None:
        """Return where the batch left a partition, if it knew it."""
        return self.offset_at(source.key, partition)

    def offset_at(
        self, source: tuple[str, str, str, str], partition: int
    ) -> PartitionOffset | None:
        """Return the same as `offset`, by `SourceRange.key`."""
        return self.offsets.get(source, {}).get(partition)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read a ledger row.

        Raises:
            LedgerError: the row was not written by this package.
        """
        try:
            offsets = row["offsets"] or []
            told: Row = next((known for known in offsets if _OTHERS in known), {})
            tally = told.get("tally")
            return cls(
                query_id=row["query_id"],
                target=row["target"],
                batch_id=int(row["batch_id"]),
                run_id=row["run_id"],
                transaction_id=row["transaction_id"],
                offsets=_offsets_from(offsets),
                row_count=int(row["row_count"]),
                committed_at=row["committed_at"],
                part=int(row["part"]),
                part_count=int(row["part_count"]),
                digests=tuple(row["digests"] or ()),
                others=str(told.get(_OTHERS, "")),
                mode=str(told.get("mode", "")),
                attempts=int(told.get("attempts", 0)),
                tallies={row["target"]: Tally.from_told(tally)} if tally else {},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                "The ledger row cannot be read",
                remedy="Restore the row or the table: only this package may write to it. Use another "
                "ledger_path only with a new checkpoint, because it does not know earlier batches",
                query=row.get("query_id"),
                target=row.get("target"),
            ) from error

    def to_row(self) -> Row:
        """Return the row to write."""
        tally = self.tallies.get(self.target)
        return {
            "query_id": self.query_id,
            "target": self.target,
            "batch_id": self.batch_id,
            "run_id": self.run_id,
            "transaction_id": self.transaction_id,
            "offsets": [*_offsets_to(self.offsets), *self._told()],
            "row_count": tally.rows if tally else self.row_count,
            "committed_at": self.committed_at,
            "part": self.part,
            "part_count": self.part_count,
            "digests": list(self.digests),
        }

    def _told(self) -> list[dict[str, Any]]:
        """Return what has no column of its own: mounted tables cannot get one, older ledgers included."""
        tally = self.tallies.get(self.target)
        told: dict[str, Any] = {"mode": self.mode, "attempts": self.attempts} if self.mode else {}
        if tally:
            told["tally"] = tally.to_told()
        return [{_OTHERS: self.others, **told}] if self.others or told else []


def offsets_of(
    batch: MicroBatch, before: LedgerEntry | None = None, *, moved: bool = True
) -> Offsets:
    """Return the offsets a ledger entry for this batch carries.

    The consumer of a stateful query is left at the start: a replay must rebuild the state from the
    batch's rows, so the queue must not be allowed to trim them yet.

    Args:
        batch: the batch.
        before: the entry that will be replaced.
        moved: whether the transaction of the entry moves the consumers. Even then the consumer of a
            queue without new rows stays where it is.
    """
    return {
        source.key: {
            part.partition: PartitionOffset(
                part.start,
                part.end,
                _aim(batch, part) if moved and source.moves else _rest(before, source, part),
            )
            for part in source.partitions
        }
        for source in batch.sources
    }


def _aim(batch: MicroBatch, part: PartitionRange) -> int:
    return part.start if batch.needs_its_rows else part.end


def _rest(before: LedgerEntry | None, source: SourceRange, part: PartitionRange) -> int:
    known = before.offset(source, part.partition) if before else None
    return known.left if known else 0


class CommitLedger:
    """Entries of one query in one ledger table, for the targets of one sink.

    Args:
        path: the ledger table.
        query_id: id of the query.
        targets: paths of the tables that are written together.
    """

    def __init__(self, path: str, query_id: str, targets: Sequence[str]) -> None:
        self.path = path
        self.query_id = query_id
        self.targets = tuple(targets)

    def read(self, reader: Reader) -> LedgerEntry | None:
        """Return the entry of the first target, with the tallies of all; they are always written together.

        Raises:
            LedgerError: the targets' entries are not of one batch, or cannot be read.
        """
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
        first, *others = entries
        if first is None:
            return None
        tallies = dict(first.tallies)
        for entry in others:
            assert entry is not None
            tallies |= entry.tallies
        return replace(first, tallies=tallies)

    def record(self, transaction: Transaction, entry: LedgerEntry) -> None:
        """Write the entry for every target; it takes effect with the transaction."""
        rows = [replace(entry, target=target).to_row() for target in self.targets]
        transaction.insert(self.path, rows)

    def tallies(
        self, before: LedgerEntry | None, batch: MicroBatch, written: Mapping[str, Written]
    ) -> dict[str, Tally]:
        """Return the tallies after one more part.

        Args:
            before: the entry that will be replaced.
            batch: the batch of the part.
            written: by the part, by path of the target.
        """
        is_same = before is not None and before.batch_id == batch.batch_id
        tallies = {}
        for target in self.targets:
            old = before.tallies.get(target) if before else Tally(0, 0, 0, from_start=True)
            old = old or Tally(0, 0, 0, from_start=False)
            tallies[target] = old.after(written.get(target, Written()), is_same=is_same)
        return tallies


def nothing_logged(_batch_id: int) -> tuple[SourceRange, ...]:
    """Return no ranges: the offset log is unavailable."""
    return ()


def judge(
    entry: LedgerEntry | None,
    batch: MicroBatch,
    *,
    ledger: str,
    running: bool = False,
    logged: Callable[[int], tuple[SourceRange, ...]] = nothing_logged,
    accepted: Collection[int] = (),
) -> Verdict:
    """Decide whether a batch was committed before.

    Args:
        entry: what the ledger holds.
        batch: the batch.
        ledger: path of the ledger, for messages.
        running: whether this run has agreed with the ledger before; then a later batch is of another
            run.
        logged: returns the ranges of an earlier batch from Spark's log, nothing when they are unknown;
            called only when batch numbers have a gap.
        accepted: batches that the user has settled.

    Raises:
        FencedError: another run committed a later batch.
        LedgerDivergedError: the entry contradicts the batch: a later batch was committed, the same
            one with other offsets, or the offsets do not continue where the entry ends and Spark's
            log does not say that this is the same checkpoint.
    """
    if entry is None:
        return Verdict.NEW
    where = {
        "query": batch.query_id,
        "batch": batch.batch_id,
        "target": entry.target,
        "ledger": ledger,
    }
    if entry.batch_id > batch.batch_id and running:
        raise FencedError(
            f"Another run of this query has already committed batch {entry.batch_id}",
            remedy="Two drivers share one checkpoint: stop one of them. The other run has written this "
            "batch; this run has not",
            run=entry.run_id,
            **where,
        )
    if entry.batch_id > batch.batch_id:
        raise LedgerDivergedError(
            f"The ledger already holds batch {entry.batch_id}, but Spark runs batch {batch.batch_id}",
            remedy="The checkpoint is older than the ledger: it was restored, or a second run of the query "
            "is active. Stop other runs, and restore the newest checkpoint",
            **where,
        )
    now = _ranges_of(batch.sources)
    then = _ranges(entry.offsets)
    if entry.batch_id == batch.batch_id:
        if now == then and _same_others(entry, batch):
            return Verdict.REPLAY if entry.is_complete else Verdict.PARTIAL
        raise LedgerDivergedError(
            f"The ledger holds this batch with other offsets: {_render(then)}, now {_render(now)}"
            + ("" if now != then else ", and other offsets of sources that are no queues"),
            remedy=f"{_RESTORE}. If it is lost, start with a new checkpoint and the same consumer. A new "
            "consumer would begin at the first row of the queue. A query that keeps state has lost it, so "
            "empty its target and let it read the queue from the beginning",
            **where,
        )
    if not entry.is_complete:
        raise LedgerDivergedError(
            f"Only {entry.part} of {entry.part_count} parts of batch {entry.batch_id} were written",
            remedy=_RESTORE,
            **where,
        )
    between = set(range(entry.batch_id + 1, batch.batch_id))
    if between and (between <= set(accepted) or then == _ranges_of(logged(entry.batch_id))):
        # Spark's log agrees with the entry: the sink was not called for the batches in between.
        return Verdict.NEW
    for key, (start, _) in now.items():
        if key in then and then[key][1] != start:
            raise LedgerDivergedError(
                f"Partition {key[-1]} of {key[1]} starts at {start}, but the ledger ends at "
                f"{then[key][1]}",
                remedy=f"{_RESTORE}. Or the sink was not called for some batches: call it for every "
                "batch, empty ones too, and start with a new checkpoint and the same consumer",
                **where,
            )
    return Verdict.NEW


def require_one_sink(
    entry: LedgerEntry, batch: MicroBatch, sent: Collection[str], *, ledger: str
) -> None:
    """Check that an entry of this very run and batch was written by a call that is known to have been sent.

    The sink finds a second call before it gets here. This check is for a second call that looks like
    another one's, such as a sink with another name of the same ledger.

    Args:
        entry: what the ledger holds.
        batch: the batch.
        sent: transactions that this run has tried to commit for this batch.
        ledger: path of the ledger, for the message.

    Raises:
        RepeatedCallError: another sink wrote it; taken for a replay, the rows of this one would be lost.
    """
    of_this_run = entry.run_id == batch.run_id and entry.batch_id == batch.batch_id
    if of_this_run and entry.transaction_id not in sent:
        raise RepeatedCallError(
            "Another sink of this query has written this batch into the same target, but the ledger "
            "holds one entry per query and target",
            remedy="Give one sink several Targets. Or give each sink a target of its own, and set "
            "advance_consumer=False for all sinks of the function except the last",
            query=batch.query_id,
            batch=batch.batch_id,
            target=entry.target,
            ledger=ledger,
        )


def _same_others(entry: LedgerEntry, batch: MicroBatch) -> bool:
    return not (entry.others and batch.others) or entry.others == batch.others


_Place = tuple[str, str, str, str, int]


def _ranges(offsets: Offsets) -> dict[_Place, tuple[int, int]]:
    return {
        (*source, partition): (part.start, part.end)
        for source, parts in offsets.items()
        for partition, part in parts.items()
    }


def _ranges_of(sources: Sequence[SourceRange]) -> dict[_Place, tuple[int, int]]:
    return {
        (*source.key, part.partition): (part.start, part.end)
        for source in sources
        for part in source.partitions
    }


def _render(ranges: dict[_Place, tuple[int, int]]) -> str:
    return json.dumps({f"{key[1]}[{key[-1]}]": list(value) for key, value in ranges.items()})


def _offsets_to(offsets: Offsets) -> list[dict[str, Any]]:
    return [
        {
            "cluster": cluster,
            "queue": queue,
            "queue_id": queue_id,
            "consumer": consumer,
            "partitions": {
                str(partition): [part.start, part.end, part.left]
                for partition, part in sorted(parts.items())
            },
        }
        for (cluster, queue, consumer, queue_id), parts in offsets.items()
    ]


def _offsets_from(rows: Sequence[Any]) -> Offsets:
    return {
        (
            str(row["cluster"]),
            str(row["queue"]),
            str(row["consumer"]),
            str(row.get("queue_id", "")),
        ): {
            int(partition): PartitionOffset(*(int(number) for number in numbers))
            for partition, numbers in row["partitions"].items()
        }
        for row in rows
        if _OTHERS not in row
    }
