"""The transactional protocol: rows, consumer offsets and ledger entry in one short tablet transaction.

Exactly once for any query, for three reasons. Every commit writes the query's ledger row, so of two writers
at most one wins. Offsets are compared and set in the same transaction. A commit with an unknown outcome is
resolved from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.history import ONE_CALL, settle
from yt_exactly_once.commit.ledger import (
    LedgerEntry,
    Verdict,
    judge,
    nothing_logged,
    offsets_of,
    require_one_sink,
)
from yt_exactly_once.commit.parts import digest_of
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    LedgerDivergedError,
    OffsetConflictError,
    RepeatedCallError,
    TransactionLostError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from yt_exactly_once.commit.batch import MicroBatch, SourceRange
    from yt_exactly_once.commit.cluster import Cluster, Payload, Row, Transaction
    from yt_exactly_once.commit.ledger import CommitLedger
    from yt_exactly_once.commit.parts import Part, TargetRows
    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.observability import Emitter

Call = Callable[["Transaction"], Any]
"""A request inside a transaction that does not depend on the others of its step."""

Moves = dict[int, int]
"""Where a consumer is moved to, per partition that moves."""


@dataclass(frozen=True)
class Committed:
    """How a batch was committed.

    Attributes:
        transaction_id: the transaction that carried it.
        attempts: how many attempts it took.
        row_count: rows written.
    """

    transaction_id: str
    attempts: int
    row_count: int


class BatchCommit:
    """Commits batches of one query; steps 4 to 9 of the protocol.

    Args:
        cluster: where.
        ledger: the query's ledger entries.
        policy: how often an attempt is repeated.
        emit: takes events.
        transaction_timeout: lease of a transaction.
        lanes: requests sent side by side.
        advance_consumer: whether consumers are moved; off for all but the last of several sinks.
        sent: transactions whose commit this run has sent for the batch. Each has a digest of its rows when
            an earlier call sent it, and an empty one otherwise. This call adds its own.
        logged: see `judge`.
        accepted: see `judge`.
        mode: the write mode, for the ledger entry.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger: CommitLedger,
        *,
        policy: RetryPolicy,
        emit: Emitter,
        transaction_timeout: timedelta,
        lanes: int,
        advance_consumer: bool,
        sent: dict[str, str] | None = None,
        logged: Callable[[int], tuple[SourceRange, ...]] = nothing_logged,
        accepted: Collection[int] = (),
        mode: str = "",
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._policy = policy
        self._emit = emit
        self._timeout = transaction_timeout
        self._lanes = lanes
        self._advance_consumer = advance_consumer
        self._sent = {} if sent is None else sent
        self._logged = logged
        self._accepted = accepted
        self._mode = mode

    def commit(
        self, batch: MicroBatch, parts: Sequence[Part], resumed: LedgerEntry | None = None
    ) -> Committed:
        """Make the batch visible exactly once.

        Every part is one transaction, and almost every batch has one part. Every attempt at a part:
        4. opens a transaction,
        5. checks, inside it, the ledger entry and the consumers,
        6. writes the rows,
        7. advances the consumers, with the last part,
        8. records the ledger entry,
        9. commits; an unknown outcome is resolved from the ledger.

        Args:
            batch: the batch.
            parts: its rows.
            resumed: the ledger entry of a part that was committed before; the parts up to it are
                compared by digest and left out.

        Raises:
            FencedError: another run has committed a later batch.
            LedgerDivergedError: the ledger contradicts the batch.
            OffsetConflictError: a consumer is not where this query left it.
            RetriesExhaustedError: every attempt failed.
            ExactlyOnceError: the cluster refused the rows; nothing was written.
        """
        done = attempts = 0
        if resumed is not None:
            _require_same_parts(batch, parts[-1].digests, len(parts), resumed)
            done = resumed.part
        transaction_id = resumed.transaction_id if resumed else ""
        for part in parts[done:]:
            transaction_id, needed = self._commit_part(batch, part)
            attempts += needed
        return Committed(transaction_id, attempts, sum(part.row_count for part in parts))

    def _commit_part(self, batch: MicroBatch, part: Part) -> tuple[str, int]:
        def attempt(number: int) -> tuple[str, int]:
            try:
                return self._attempt(batch, part, number), number
            except (ClusterUnavailableError, TransactionLostError):
                # After an unknown outcome `_commit` has left the proxy already.
                self._cluster.unpin()
                raise

        try:
            return run_attempts(attempt, self._policy, self._emit)
        except BaseException:
            # A later call for this batch must not take other rows for these.
            for transaction, digest in self._sent.items():
                self._sent[transaction] = digest or digest_of(part.targets)
            raise

    def _attempt(self, batch: MicroBatch, part: Part, number: int) -> str:
        transaction = self._cluster.begin(self._timeout, self._lanes)  # 4
        try:
            self._emit(Event.TRANSACTION_STARTED, attempt=number, transaction=transaction.id)
            entry, offsets = self._read(transaction, batch)  # 5
            if entry is not None and self._is_done(entry, batch, part):
                # An earlier attempt, of this run or of one that died, was applied after all.
                self._emit(
                    Event.COMMIT_OUTCOME_RESOLVED,
                    transaction=entry.transaction_id,
                    own=entry.transaction_id in self._sent,
                )
                transaction.abort()
                return entry.transaction_id
            moves = [
                (source, plan_moves(source, current, entry, batch)) for source, current in offsets
            ]
            self._tell_left_out(entry, batch)
            replaced = [_replace(transaction, target) for target in part.targets]
            calls = _writes(part.targets)  # 6
            if part.is_last:
                calls += _advances(moves)  # 7
            calls.append(self._record(transaction, entry, batch, part, number))  # 8
            transaction.side_by_side(calls)
            self._report(transaction, part, replaced, moves)
        except BaseException:
            transaction.abort()
            self._emit(Event.TRANSACTION_ABORTED, attempt=number, transaction=transaction.id)
            raise
        self._sent[transaction.id] = ""
        self._commit(transaction, number)  # 9
        return transaction.id

    def _is_done(self, entry: LedgerEntry, batch: MicroBatch, part: Part) -> bool:
        """Check whether the part is committed, with the same offsets and rows.

        Raises:
            FencedError: another run has committed a later batch.
            LedgerDivergedError: the ledger contradicts the batch.
            RepeatedCallError: another call has written the batch, with other rows.
        """
        ledger = self._ledger.path
        verdict = judge(
            entry,
            batch,
            ledger=ledger,
            running=True,
            logged=self._logged,
            accepted=self._accepted,
        )
        if verdict is Verdict.NEW or entry.part < part.number:
            return False
        require_one_sink(entry, batch, self._sent, ledger=ledger)
        self._require_same_rows(entry, batch, part)
        _require_same_parts(batch, part.digests, part.count, entry)
        return True

    def _require_same_rows(self, entry: LedgerEntry, batch: MicroBatch, part: Part) -> None:
        """Check that a transaction which an earlier call sent carried the rows of this call."""
        sent = self._sent.get(entry.transaction_id)
        if sent and not part.digests and sent != digest_of(part.targets):
            raise RepeatedCallError(
                "The commit of an earlier call for this batch was applied although that call failed, and "
                "this call has other rows",
                remedy=f"{ONE_CALL}. {settle(range(batch.batch_id, batch.batch_id + 1))}",
                query=batch.query_id,
                batch=batch.batch_id,
                target=entry.target,
                ledger=self._ledger.path,
            )

    def _read(
        self, transaction: Transaction, batch: MicroBatch
    ) -> tuple[LedgerEntry | None, list[tuple[SourceRange, dict[int, int]]]]:
        """Read the ledger entry and the consumers' offsets, as of the transaction's start."""
        sources = [
            source
            for source in batch.sources
            if self._advance_consumer and source.consumer is not None and source.moves
        ]
        reads: list[Callable[[Transaction], Any]] = [
            self._ledger.read,
            *(partial(consumer_offsets, source=source) for source in sources),
        ]
        entry, *offsets = transaction.side_by_side(reads)
        return entry, list(zip(sources, offsets, strict=True))

    def _record(
        self,
        transaction: Transaction,
        before: LedgerEntry | None,
        batch: MicroBatch,
        part: Part,
        number: int,
    ) -> Call:
        entry = LedgerEntry(
            query_id=batch.query_id,
            target=self._ledger.targets[0],
            batch_id=batch.batch_id,
            run_id=batch.run_id,
            transaction_id=transaction.id,
            offsets=offsets_of(batch, before, moved=part.is_last and self._advance_consumer),
            row_count=part.row_count,
            committed_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            part=part.number,
            part_count=part.count,
            digests=part.digests,
            others=batch.others,
            mode=self._mode,
            attempts=number,
            tallies=self._ledger.tallies(before, batch, part.written()),
        )
        return partial(self._ledger.record, entry=entry)

    def _tell_left_out(self, entry: LedgerEntry | None, batch: MicroBatch) -> None:
        """Warn of rows that Spark has given to batches which never came to the sink.

        No error, because a function may leave out empty DataFrames. If it caught an error of its own, they
        are lost.
        """
        if entry is None or entry.batch_id + 1 in self._accepted:
            return
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
            if target.lanes or deleted:
                self._emit(
                    Event.ROWS_WRITTEN, path=target.path, rows=target.row_count, replaced=deleted
                )
        if part.is_last:
            moved = sum(len(partitions) for _, partitions in moves)
            self._emit(Event.OFFSETS_ADVANCED, partitions=moved)
        self._emit(Event.LEDGER_RECORDED, transaction=transaction.id)

    def _commit(self, transaction: Transaction, number: int) -> None:
        try:
            transaction.commit()
        except CommitOutcomeUnknownError as error:
            self._emit(
                Event.COMMIT_OUTCOME_UNKNOWN,
                attempt=number,
                transaction=transaction.id,
                error=str(error),
            )
            self._cluster.unpin()
            entry = self._ledger.read(self._cluster)
            if entry is None or entry.transaction_id != transaction.id:
                raise
            self._emit(Event.COMMIT_OUTCOME_RESOLVED, transaction=transaction.id, own=True)
        self._emit(Event.TRANSACTION_COMMITTED, attempt=number, transaction=transaction.id)


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

    def write(transaction: Transaction, target: TargetRows, lane: Sequence[Payload]) -> None:
        transaction.write(
            target.path, lane, target.wire, update=target.update, aggregate=target.aggregate
        )

    return [partial(write, target=target, lane=lane) for target in targets for lane in target.lanes]


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


def consumer_offsets(transaction: Transaction, source: SourceRange) -> dict[int, int]:
    """Return the consumer's offsets as of the transaction's start; 0 without a row."""
    assert source.consumer is not None
    keys = [_consumer_key(source, part.partition) for part in source.partitions]
    rows = transaction.lookup(source.consumer, keys)
    return {
        part.partition: 0 if row is None else int(row["offset"])
        for part, row in zip(source.partitions, rows, strict=True)
    }


def consumer_rows(source: SourceRange, moves: Moves) -> list[Row]:
    """Return the consumer's rows after the move.

    One request writes all partitions, where `advance_queue_consumer` needs one request each. `plan_moves`
    compares the offsets, on rows read in the same transaction. The commit fails when another transaction has
    written those rows since.
    """
    return [
        {**_consumer_key(source, partition), "offset": offset}
        for partition, offset in moves.items()
    ]


def _consumer_key(source: SourceRange, partition: int) -> Row:
    return {
        "queue_cluster": source.cluster,
        "queue_path": source.queue,
        "partition_index": partition,
    }


def plan_moves(
    source: SourceRange, current: dict[int, int], before: LedgerEntry | None, batch: MicroBatch
) -> Moves:
    """Decide how the consumer moves.

    Each partition must be at or after the offset that this query's last commit left, and at or before the
    start of the batch. The source itself moves a stateful query's consumer within that range, once Spark has
    logged the batch. Before the first commit any offset up to the start of the batch is fine.

    Raises:
        OffsetConflictError: a partition is at another offset.
    """
    moves: Moves = {}
    for part in source.partitions:
        at = current[part.partition]
        last = before.offset(source, part.partition) if before else None
        low, high = (last.left if last else 0), part.start
        if not low <= at <= high:
            expected = str(low) if low == high else f"{low} to {high}"
            other = (
                "Or another sink of the function moved it: set advance_consumer=False for all but the last"
                if before
                else "Or another sink of the function moved it: set advance_consumer=False for all but the "
                "last. Or starting_offsets begins before it: move it back to there, in every partition"
            )
            raise OffsetConflictError(
                f"The consumer is at row {at} of partition {part.partition}, expected {expected}",
                remedy="Another client moved this consumer. Give each query its own consumer. If the move "
                f"was intended, set the offset back to {high}, or start a new checkpoint. {other}",
                query=batch.query_id,
                batch=batch.batch_id,
                consumer=source.consumer,
                queue=source.queue,
                partition=part.partition,
            )
        new = part.start if batch.needs_its_rows else part.end
        if new > at:
            moves[part.partition] = new
    return moves


def left_out(before: LedgerEntry, batch: MicroBatch) -> int:
    """Return how many rows lie between the batch that was committed last and this one, in all queues."""
    return sum(
        max(0, part.start - known.end)
        for source in batch.sources
        for part in source.partitions
        if (known := before.offset(source, part.partition)) is not None
    )


def _require_same_parts(
    batch: MicroBatch, digests: Sequence[str], part_count: int, entry: LedgerEntry
) -> None:
    """Make sure that the committed parts of a batch are the ones it is cut into now.

    Raises:
        LedgerDivergedError: the replay was cut otherwise, or has other rows.
    """
    both = min(len(digests), len(entry.digests))
    if entry.part_count != part_count or tuple(digests[:both]) != entry.digests[:both]:
        raise LedgerDivergedError(
            f"The batch differs from the {entry.part} of its {entry.part_count} parts that are written",
            remedy="With split_oversized every run must produce the same rows in the same order, with the "
            "same dyn_batch_size, wire_format, rows_per_tablet_limit, placement and tablets. Restore "
            "these. Or remove the rows of this batch from the target, and start a new checkpoint",
            query=batch.query_id,
            batch=batch.batch_id,
            target=entry.target,
        )
