"""What is read and written inside the transaction of a part: steps 5 to 8 of the protocol.

Each attempt of `BatchCommit` takes them. Nothing is judged here, and no transaction is opened or ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from yt_exactly_once.commit import consumers
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.commit.cluster import Payload, Transaction
from yt_exactly_once.commit.entry import CommitLedger, LedgerEntry
from yt_exactly_once.commit.parts import Part, TargetRows
from yt_exactly_once.observability import Emitter, Event

Call = Callable[[Transaction], Any]
"""A request inside a transaction that does not depend on the others of its step."""

Read = tuple[LedgerEntry | None, list[tuple[SourceRange, dict[int, int]]]]
"""The ledger entry, and where the consumer of each source is."""


@dataclass
class TransactionSteps:
    """The steps of a batch inside a transaction: read what it depends on, write what it consists of.

    Attributes:
        advance_consumer: whether consumers are moved; off for all but the last of several sinks.
        accepted: see `judge`.
        mode: the delivery mode, for the ledger entry.
        began: when the sink began with the batch, on the monotonic clock.
        entries: those that were written, by transaction; also of one whose commit seems to have failed.
    """

    ledger: CommitLedger
    batch: MicroBatch
    _: KW_ONLY
    emit: Emitter
    advance_consumer: bool
    accepted: Collection[int] = ()
    mode: str = ""
    began: float = field(default_factory=time.monotonic)
    entries: dict[str, LedgerEntry] = field(default_factory=dict, init=False)
    _has_told: bool = field(default=False, init=False)

    def read(self, transaction: Transaction) -> Read:
        """Read the ledger entry and the consumers' offsets, as of the transaction's start."""
        sources = self._moving()
        reads: list[Call] = [partial(consumers.consumer_offsets, source=one) for one in sources]
        entry, *offsets = transaction.side_by_side([self.ledger.read, *reads])
        return entry, list(zip(sources, offsets, strict=True))

    def left_by(self, entry: LedgerEntry) -> Read | None:
        """Return what `read` finds if the entry is the last change; nothing where it does not tell."""
        offsets: list[tuple[SourceRange, dict[int, int]]] = []
        for source in self._moving():
            known = {
                one.partition: entry.offset(source.key, one.partition) for one in source.partitions
            }
            if None in known.values():
                return None
            offsets.append((source, {one: at.left for one, at in known.items() if at}))
        return entry, offsets

    def moves(self, read: Read) -> list[tuple[SourceRange, consumers.Moves]]:
        """Plan how consumers move; raise `OffsetConflictError` if one is not where this query left it."""
        entry, offsets = read
        return [
            (source, consumers.plan_moves(source, current, entry, self.batch, self.ledger.path))
            for source, current in offsets
        ]

    def fill(self, transaction: Transaction, read: Read, part: Part, number: int) -> None:
        """Steps 6 to 8: write the rows, move the consumers and record the part, by what step 5 reads."""
        planned = self.moves(read)
        replaced = [_replace(transaction, target) for target in part.targets]
        lanes = [(target, lane) for target in part.targets for lane in target.lanes if lane]
        calls: list[Call] = [partial(_write, target=one, payloads=lane) for one, lane in lanes]  # 6
        if part.is_last:
            calls += [partial(_advance, source=one, moves=to) for one, to in planned if to]  # 7
        entry = self._entry(transaction, read[0], part, number)
        # Kept whatever comes: a commit that seems to have failed may be found in the ledger.
        self.entries[transaction.id] = entry
        calls.append(partial(self.ledger.record, entry=entry))  # 8
        transaction.side_by_side(calls)
        for target, deleted in zip(part.targets, replaced, strict=True):
            if target.lanes or target.inside or deleted:
                self.emit(
                    Event.ROWS_WRITTEN,
                    path=target.path,
                    rows=target.row_count,
                    replaced=deleted,
                    sent_by=target.sent_by,
                )
        if part.is_last:
            self.emit(Event.OFFSETS_ADVANCED, partitions=sum(len(one) for _, one in planned))
        self.emit(Event.LEDGER_RECORDED, transaction=transaction.id)

    def _moving(self) -> list[SourceRange]:
        return [
            source
            for source in self.batch.sources
            if self.advance_consumer and source.consumer is not None and source.moves
        ]

    def _entry(
        self, transaction: Transaction, before: LedgerEntry | None, part: Part, number: int
    ) -> LedgerEntry:
        batch, seconds = self.batch, time.monotonic() - self.began
        moved = part.is_last and self.advance_consumer
        return LedgerEntry(
            query_id=batch.query_id,
            target=self.ledger.targets[0],
            batch_id=batch.batch_id,
            run_id=batch.run_id,
            transaction_id=transaction.id,
            offsets=consumers.offsets_of(batch, before, moved=moved),
            part=part.number,
            part_count=part.count,
            part_digests=part.digests,
            other_sources=batch.others,
            mode=self.mode,
            attempts=number,
            started_at=_at(datetime.now(UTC) - timedelta(seconds=seconds)),
            committed_at=_at(datetime.now(UTC)),
            seconds=round(seconds, 3),
            tallies=self.ledger.tallies(before, batch, part.written()),
        )

    def tell_left_out(self, read: Read) -> None:
        """Warn once of rows that Spark has given to batches which never came to the sink.

        No error, because a function may leave out empty DataFrames. If it caught an error of its own, they
        are lost.
        """
        entry, _ = read
        if self._has_told or entry is None or entry.batch_id + 1 in self.accepted:
            return
        self._has_told = True
        rows = sum(
            max(0, part.start - known.end)
            for source in self.batch.sources
            for part in source.partitions
            if (known := entry.offset(source.key, part.partition)) is not None
        )
        if rows:
            first, last = entry.batch_id + 1, self.batch.batch_id - 1
            self.emit(Event.BATCHES_LEFT_OUT, first=first, last=last, rows=rows)


def _replace(transaction: Transaction, target: TargetRows) -> int:
    """Delete the rows that a complete result does not have any more, and return how many.

    Before the others are written: of what is done to one key in a transaction the last thing counts.
    """
    if target.complete is None:
        return 0
    surplus = target.complete.surplus(transaction)
    transaction.write(target.path, surplus, target.wire)
    return sum(payload.row_count for payload in surplus)


def _write(transaction: Transaction, target: TargetRows, payloads: Sequence[Payload]) -> None:
    transaction.write(
        target.path, payloads, target.wire, update=target.update, aggregate=target.aggregate
    )


def _advance(transaction: Transaction, source: SourceRange, moves: consumers.Moves) -> None:
    assert source.consumer is not None
    transaction.insert(source.consumer, consumers.consumer_rows(source, moves))


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
