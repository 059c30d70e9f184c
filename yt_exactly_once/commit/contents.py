"""What the transaction of a part reads and contains: steps 5 to 8 of the protocol.

Each attempt of `BatchCommit` asks here. Nothing is judged here, and no transaction is opened or ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.commit.cluster import Payload, Transaction
from yt_exactly_once.commit.consumers import (
    Moves,
    consumer_offsets,
    consumer_rows,
    left_out,
    offsets_of,
    plan_moves,
)
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import Part, TargetRows
from yt_exactly_once.observability import Emitter, Event

Call = Callable[["Transaction"], Any]
"""A request inside a transaction that does not depend on the others of its step."""

Read = tuple["LedgerEntry | None", list[tuple["SourceRange", dict[int, int]]]]
"""The ledger entry, and where the consumer of each source is."""


class Plan(NamedTuple):
    """What steps 6 to 8 follow from.

    Attributes:
        read: what step 5 finds, or is expected to find.
        moves: where the consumer of each source is moved to.
    """

    read: Read
    moves: list[tuple[SourceRange, Moves]]


class Contents:
    """Reads what a batch depends on, and writes what it consists of.

    Args:
        emit: takes events.
        advance_consumer: whether consumers are moved.
        mode: the delivery mode, for the ledger entry. Its times begin with this object.
    """

    def __init__(
        self,
        ledger: CommitLedger,
        *,
        emit: Emitter,
        advance_consumer: bool,
        accepted: Collection[int],
        mode: str,
    ) -> None:
        self._ledger = ledger
        self._emit = emit
        self._advance_consumer = advance_consumer
        self._accepted = accepted
        self._mode = mode
        self._began = time.monotonic()
        self._has_told = False

    def read(self, transaction: Transaction, batch: MicroBatch) -> Read:
        """Read the ledger entry and the consumers' offsets, as of the transaction's start."""
        sources = self._moving(batch)
        reads: list[Callable[[Transaction], Any]] = [
            self._ledger.read,
            *(partial(consumer_offsets, source=source) for source in sources),
        ]
        entry, *offsets = transaction.side_by_side(reads)
        return entry, list(zip(sources, offsets, strict=True))

    def left_by(self, entry: LedgerEntry, batch: MicroBatch) -> Read | None:
        """Return what `read` finds if the entry is the last change; nothing where it does not tell."""
        offsets: list[tuple[SourceRange, dict[int, int]]] = []
        for source in self._moving(batch):
            known = {
                one.partition: entry.offset(source.key, one.partition) for one in source.partitions
            }
            if None in known.values():
                return None
            offsets.append((source, {one: at.left for one, at in known.items() if at}))
        return entry, offsets

    def plan(self, read: Read, batch: MicroBatch) -> Plan:
        """Work out the moves of the consumers.

        Raises:
            OffsetConflictError: a consumer is not where this query left it.
        """
        entry, offsets = read
        return Plan(
            read,
            [
                (source, plan_moves(source, current, entry, batch, self._ledger.path))
                for source, current in offsets
            ],
        )

    def fill(
        self, transaction: Transaction, plan: Plan, batch: MicroBatch, part: Part, number: int
    ) -> LedgerEntry:
        """Write the rows, move the consumers and record the part; return its ledger entry."""
        before, moves = plan.read[0], plan.moves
        replaced = [_replace(transaction, target) for target in part.targets]
        calls = _writes(part.targets)  # 6
        if part.is_last:
            calls += _advances(moves)  # 7
        entry = self._entry(transaction, before, batch, part, number)
        calls.append(partial(self._ledger.record, entry=entry))  # 8
        transaction.side_by_side(calls)
        self._report(transaction, part, replaced, moves)
        return entry

    def _moving(self, batch: MicroBatch) -> list[SourceRange]:
        return [
            source
            for source in batch.sources
            if self._advance_consumer and source.consumer is not None and source.moves
        ]

    def _entry(
        self,
        transaction: Transaction,
        before: LedgerEntry | None,
        batch: MicroBatch,
        part: Part,
        number: int,
    ) -> LedgerEntry:
        seconds = time.monotonic() - self._began
        return LedgerEntry(
            query_id=batch.query_id,
            target=self._ledger.targets[0],
            batch_id=batch.batch_id,
            run_id=batch.run_id,
            transaction_id=transaction.id,
            offsets=offsets_of(batch, before, moved=part.is_last and self._advance_consumer),
            part=part.number,
            part_count=part.count,
            part_digests=part.digests,
            other_sources=batch.others,
            mode=self._mode,
            attempts=number,
            started_at=_at(datetime.now(UTC) - timedelta(seconds=seconds)),
            committed_at=_at(datetime.now(UTC)),
            seconds=round(seconds, 3),
            tallies=self._ledger.tallies(before, batch, part.written()),
        )

    def tell_left_out(self, read: Read, batch: MicroBatch) -> None:
        """Warn once of rows that Spark has given to batches which never came to the sink.

        No error, because a function may leave out empty DataFrames. If it caught an error of its own, they
        are lost.
        """
        entry, _ = read
        if self._has_told or entry is None or entry.batch_id + 1 in self._accepted:
            return
        self._has_told = True
        if rows := left_out(entry, batch):
            first, last = entry.batch_id + 1, batch.batch_id - 1
            self._emit(Event.BATCHES_LEFT_OUT, first=first, last=last, rows=rows)

    def _report(
        self,
        transaction: Transaction,
        part: Part,
        replaced: Sequence[int],
        moves: Sequence[tuple[SourceRange, Moves]],
    ) -> None:
        """Emit what the transaction contains now."""
        for target, deleted in zip(part.targets, replaced, strict=True):
            if target.lanes or target.inside or deleted:
                self._emit(
                    Event.ROWS_WRITTEN,
                    path=target.path,
                    rows=target.row_count,
                    replaced=deleted,
                    sent_by=target.sent_by,
                )
        if part.is_last:
            moved = sum(len(partitions) for _, partitions in moves)
            self._emit(Event.OFFSETS_ADVANCED, partitions=moved)
        self._emit(Event.LEDGER_RECORDED, transaction=transaction.id)


def _replace(transaction: Transaction, target: TargetRows) -> int:
    """Delete the rows that a complete result does not have any more, and return how many.

    Before the others are written: of what is done to one key in a transaction the last thing counts.
    """
    if target.complete is None:
        return 0
    surplus = target.complete.surplus(transaction)
    transaction.write(target.path, surplus, target.wire)
    return sum(payload.row_count for payload in surplus)


def _writes(targets: Sequence[TargetRows]) -> list[Call]:
    """Return one call per lane; none depends on another."""
    return [
        partial(_write, target=target, payloads=lane)
        for target in targets
        for lane in target.lanes
        if lane
    ]


def _write(transaction: Transaction, target: TargetRows, payloads: Sequence[Payload]) -> None:
    transaction.write(
        target.path, payloads, target.wire, update=target.update, aggregate=target.aggregate
    )


def _advances(moves: Sequence[tuple[SourceRange, Moves]]) -> list[Call]:
    """Return one call per consumer that moves."""

    def advance(transaction: Transaction, source: SourceRange, partitions: Moves) -> None:
        assert source.consumer is not None
        transaction.insert(source.consumer, consumer_rows(source, partitions))

    return [
        partial(advance, source=source, partitions=partitions)
        for source, partitions in moves
        if partitions
    ]


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
