"""The transactional protocol: rows, consumer offsets and ledger entry in one short tablet transaction.

Exactly once for any query, for three reasons. Every commit writes the query's ledger row, so of two writers
at most one wins. Offsets are compared and set in the same transaction. A commit with an unknown outcome is
resolved from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

from yt_exactly_once import config, errors
from yt_exactly_once.commit import claims, consumers
from yt_exactly_once.commit.batch import MicroBatch, SourceRange, TargetColumns
from yt_exactly_once.commit.cluster import Ahead, Cluster, OpenTransaction, Transaction
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.judgement import (
    Verdict,
    columns_after,
    judge,
    nothing_logged,
    require_columns,
    require_one_sink,
    require_same_parts,
    rows_left_out,
)
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.lineage import lineage_of
from yt_exactly_once.commit.notes import ONE_CALL, settle
from yt_exactly_once.commit.parts import Part, TargetRows, digest_of
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.observability import Emitter, Event
from yt_exactly_once.retrying import run_attempts

UNSEEN = "rows that only tasks have seen"
"""In place of the digest of rows which the driver never had: no later call can show that it has the same."""

SHARE_AHEAD = 4
"""Computing may use one part in so many of the lease of a transaction that was opened ahead."""

Request = Callable[[Transaction], Any]
"""A request inside a transaction that does not depend on the others of its step."""


class Read(NamedTuple):
    """What step 5 reads inside a transaction.

    Attributes:
        entry: of the ledger; `None` before the first commit.
        offsets: where the consumer is of each source that moves one, by partition.
    """

    entry: LedgerEntry | None
    offsets: list[dict[int, int]]


@dataclass(frozen=True)
class Committed:
    """How a batch was committed; there is no entry if an earlier run had committed it."""

    transaction_id: str
    attempts: int
    entry: LedgerEntry | None = field(default=None, compare=False)


@dataclass
class BatchCommit:
    """Commits one batch of a query; steps 4 to 9 of the protocol.

    Attributes:
        connections: how many requests are sent side by side.
        advance_consumer: whether consumers are moved; off for all but the last of several sinks.
        commits_sent: transactions whose commit this run has sent for the batch. Each has a digest of its
            rows when an earlier call sent it, and `None` otherwise. This call adds its own.
        logged: see `judge`.
        accepted: see `judge`.
        mode: the delivery mode, for the ledger entry.
        columns: see `require_columns`.
        before: the ledger entry that this run has committed last; `None` before the first.
        began: when the sink began with the batch, on the monotonic clock.
        entries: those that were written, by transaction; also of one whose commit seems to have failed.
    """

    ledger: CommitLedger
    batch: MicroBatch
    cluster: Cluster
    _: KW_ONLY
    policy: RetryPolicy
    emit: Emitter
    connections: int
    advance_consumer: bool
    commits_sent: dict[str, str | None] = field(default_factory=dict)
    logged: Callable[[int], tuple[SourceRange, ...]] = nothing_logged
    accepted: Collection[int] = ()
    mode: str = ""
    columns: Mapping[str, TargetColumns] = field(default_factory=dict)
    before: LedgerEntry | None = None
    began: float = field(default_factory=time.monotonic)
    entries: dict[str, LedgerEntry] = field(default_factory=dict, init=False)
    _ahead: Ahead[Read] | None = field(default=None, init=False)
    _opened: float = field(default=0.0, init=False)
    _until: float = field(default=0.0, init=False)
    _has_warned: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Abort what is left open."""
        self.leave_ahead()

    def begin_ahead(
        self, opened: OpenTransaction | None = None, age: float = 0.0
    ) -> Ahead[Read] | None:
        """Begin the first attempt while the caller computes the rows: steps 4 and 5.

        Tasks may write the rows into the transaction, see `TargetRows.inside`. It sees the cluster as of a
        moment before the rows were computed. If another writer changes the ledger entry or a consumer after
        that moment, the cluster refuses the commit. If computing takes too much of the lease, and no task has
        written, the attempt opens another transaction.

        Args:
            opened: the transaction, where tasks have opened it.
            age: how many seconds ago they may have begun to claim their partitions.

        Returns:
            The transaction, which is the same until it is left; `None` where none could be begun.
        """
        if self._ahead is None:
            # When computing has spent its share of the lease.
            self._opened = time.monotonic() - age
            self._until = self._opened + config.LEASE.total_seconds() / SHARE_AHEAD
            # The attempt meets a failure again, and handles it.
            with suppress(errors.TransientError):
                self._ahead = (
                    self.cluster.begin_ahead(config.LEASE, self.connections, self._read)
                    if opened is None
                    else self.cluster.join_ahead(
                        opened.id, self.connections, self._read, proxy=opened.proxy
                    )
                )
        return self._ahead

    def leave_ahead(self) -> None:
        """Abort the transaction that was opened ahead, if no attempt has taken it.

        A task that still runs cannot change anything then. Nobody commits the transaction if the abort fails.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            # What its first requests have failed with does not matter any more.
            with suppress(errors.ExactlyOnceError):
                ahead.read()
            with suppress(errors.ExactlyOnceError):
                ahead.transaction().abort()

    def commit(self, parts: Sequence[Part], resumed: LedgerEntry | None = None) -> Committed:
        """Make the batch visible exactly once.

        Every part is one transaction, and almost every batch has one part. Rows that tasks have written into
        the transaction have one attempt: nobody could write them into another one. Every attempt at a part:
        4. opens a transaction, or takes the one that `begin_ahead` has opened,
        5. checks, inside it, the ledger entry and the consumers,
        6. writes the rows,
        7. advances the consumers, with the last part,
        8. records the ledger entry,
        9. commits; an unknown outcome is resolved from the ledger.

        Args:
            resumed: the ledger entry of a part that was committed before; the parts up to it are
                compared by digest and left out.

        Raises:
            FencedError: another run has committed a later batch.
            LedgerDivergedError: the ledger contradicts the batch.
            OffsetConflictError: a consumer is not where this query left it.
            RetriesExhaustedError: every attempt failed.
            ExactlyOnceError: the cluster refused the rows; nothing was written.
        """
        done, attempts, transaction_id = 0, 0, ""
        if resumed is not None:
            require_same_parts(resumed, self.batch, parts[-1].digests, len(parts))
            done, transaction_id = resumed.part, resumed.transaction_id
        for part in parts[done:]:
            transaction_id, needed = self._commit_part(part)
            attempts += needed
        return Committed(transaction_id, attempts, self.entries.get(transaction_id))

    def _commit_part(self, part: Part) -> tuple[str, int]:
        def attempt(number: int) -> tuple[str, int]:
            try:
                return self._attempt(part, number), number
            except (errors.ClusterUnavailableError, errors.TransactionLostError):
                # After an unknown outcome `_commit` has left the proxy already.
                self.cluster.unpin()
                raise

        if part.inside:
            return attempt(1)
        try:
            return run_attempts(attempt, self.policy, self.emit)
        except BaseException:
            # A later call for this batch must not take other rows for these.
            for transaction, digest in self.commits_sent.items():
                self.commits_sent[transaction] = digest or digest_of(part.targets)
            raise

    def _attempt(self, part: Part, number: int) -> str:
        transaction, ahead = self._open(part)  # 4
        try:
            self.emit(Event.TRANSACTION_STARTED, attempt=number, transaction=transaction.id)
            expected = self._expected(part) if ahead else None
            if expected is not None:
                # Beside the reads, which the commit waits for.
                self._fill(transaction, expected, part, number)
            read = ahead.read() if ahead else self._read(transaction)  # 5
            if expected is not None:
                self._require_expected(expected, read)
            entry = read.entry
            if entry is not None and self._is_done(entry, part):
                # An earlier attempt, of this run or of one that died, was applied after all.
                own = entry.transaction_id in self.commits_sent
                self.emit(Event.COMMIT_OUTCOME_RESOLVED, transaction=entry.transaction_id, own=own)
                transaction.abort()
                return entry.transaction_id
            self._warn_of_left_out(entry)
            if expected is None:
                self._fill(transaction, read, part, number)  # 6 to 8
        except BaseException:
            if ahead is not None:
                # The transaction must not end while it is read in.
                with suppress(errors.ExactlyOnceError):
                    ahead.read()
            transaction.abort()
            self.emit(Event.TRANSACTION_ABORTED, attempt=number, transaction=transaction.id)
            raise
        self.commits_sent[transaction.id] = UNSEEN if part.inside else None
        self._commit(transaction, number, self._tables(part))  # 9
        return transaction.id

    def _expected(self, part: Part) -> Read | None:
        """Return what step 5 will find, if only this run writes the ledger entry and moves the consumers.

        Nothing, where that cannot be known, or would not let the batch be written: then step 5 comes first.
        """
        entry = self.before
        if entry is None or part.inside or self.batch.needs_its_rows:
            return None
        expected = Read(entry, [])
        for source in self._moving:
            known = {
                one.partition: entry.offset(source.key, one.partition) for one in source.partitions
            }
            if None in known.values():
                return None
            expected.offsets.append({partition: at.left for partition, at in known.items() if at})
        with suppress(errors.ExactlyOnceError):
            if not self._is_done(entry, part):
                self._moves(expected)
                return expected
        return None

    def _require_expected(self, expected: Read, read: Read) -> None:
        """Raise `ConflictError` if step 5 finds other than was expected: the next attempt begins with it."""
        left, found = (each.entry and each.entry.transaction_id for each in (expected, read))
        if left != found or expected.offsets != read.offsets:
            raise errors.ConflictError(
                "The ledger entry or a consumer is not what this run has left",
                ledger=self.ledger.path,
            )

    def _read(self, transaction: Transaction) -> Read:
        """Read the ledger entry and the consumers' offsets, as of the transaction's start."""
        reads: list[Request] = [
            partial(consumers.consumer_offsets, source=source) for source in self._moving
        ]
        entry, *offsets = transaction.side_by_side([self.ledger.read, *reads])
        return Read(entry, offsets)

    def _moves(self, read: Read) -> list[consumers.Moves]:
        """Plan how consumers move; raise `OffsetConflictError` if one is not where this query left it."""
        return [
            consumers.plan_moves(source, offsets, read.entry, self.batch, self.ledger.path)
            for source, offsets in zip(self._moving, read.offsets, strict=True)
        ]

    def _fill(self, transaction: Transaction, read: Read, part: Part, number: int) -> None:
        """Steps 6 to 8: write the rows, move the consumers and record the part, by what step 5 reads."""
        moves = self._moves(read)
        targets = [one for target in part.targets for one in target.effective(transaction)]
        replaced = [target.delete_surplus(transaction) for target in targets]
        calls: list[Request] = [
            partial(target.write, payloads=group)
            for target in targets
            for group in target.groups
            if group
        ]  # 6
        if part.is_last:
            calls += [
                partial(consumers.advance, source=source, moves=to)
                for source, to in zip(self._moving, moves, strict=True)
                if to
            ]  # 7
        entry = self._entry(transaction, read.entry, part, number)
        # Kept whatever comes: a commit that seems to have failed may be found in the ledger.
        self.entries[transaction.id] = entry
        calls.append(partial(self.ledger.record, entry=entry))  # 8
        transaction.side_by_side(calls)
        self._emit_written(targets, replaced)
        if part.is_last:
            self.emit(Event.OFFSETS_ADVANCED, partitions=sum(map(len, moves)))
        self.emit(Event.LEDGER_RECORDED, transaction=transaction.id, **lineage_of(entry))

    def _emit_written(self, targets: Sequence[TargetRows], replaced: Sequence[int]) -> None:
        """Emit the rows of each table, and those of all tables of a pattern together."""
        found: dict[str, dict[str, Any]] = {}
        for target, deleted in zip(targets, replaced, strict=True):
            if target.groups or target.inside or deleted or target.outdated:
                counts = {"rows": 0, "replaced": 0, "outdated": 0}
                fields = {**counts, "sent_by": target.sent_by.value}
                known = found.setdefault(target.pattern or target.path, fields)
                known["rows"] += target.row_count
                known["replaced"] += deleted
                known["outdated"] += target.outdated
        for path, fields in found.items():
            self.emit(Event.ROWS_WRITTEN, path=path, **fields)

    @cached_property
    def _moving(self) -> list[SourceRange]:
        """The sources whose consumers move with the batch."""
        return [
            source
            for source in self.batch.sources
            if self.advance_consumer and source.consumer is not None and source.moves
        ]

    def _tables(self, part: Part) -> list[str]:
        """Return what a transaction writes: targets, the ledger, consumers."""
        moved = [source.consumer for source in self._moving if source.consumer]
        beside = [target.compared.beside for target in part.targets if target.compared]
        return [*(target.path for target in part.targets), *beside, self.ledger.path, *moved]

    def _entry(
        self, transaction: Transaction, entry: LedgerEntry | None, part: Part, number: int
    ) -> LedgerEntry:
        batch, seconds = self.batch, time.monotonic() - self.began
        moved = part.is_last and self.advance_consumer
        return LedgerEntry(
            query_id=batch.query_id,
            target=self.ledger.targets[0],
            batch_id=batch.batch_id,
            run_id=batch.run_id,
            transaction_id=transaction.id,
            offsets=consumers.offsets_of(batch, entry, moved=moved),
            part=part.number,
            part_count=part.count,
            part_digests=part.digests,
            other_sources=batch.others,
            mode=self.mode,
            attempts=number,
            started_at=_at(datetime.now(UTC) - timedelta(seconds=seconds)),
            committed_at=_at(datetime.now(UTC)),
            seconds=round(seconds, 3),
            stateful=batch.stateful,
            advances=self.advance_consumer,
            query_name=batch.query_name or None,
            tallies=self.ledger.tallies(entry, batch, part.written()),
            columns=columns_after(entry, self.columns),
        )

    def _warn_of_left_out(self, entry: LedgerEntry | None) -> None:
        """Warn once of rows that Spark has given to batches which never came to the sink.

        No error, because a function may leave out empty DataFrames. If it caught an error of its own, they
        are lost.
        """
        if self._has_warned or entry is None or entry.batch_id + 1 in self.accepted:
            return
        self._has_warned = True
        if rows := rows_left_out(entry, self.batch):
            first, last = entry.batch_id + 1, self.batch.batch_id - 1
            self.emit(Event.BATCHES_LEFT_OUT, first=first, last=last, rows=rows)

    def _open(self, part: Part) -> tuple[Transaction, Ahead[Read] | None]:
        """Return a transaction, and what was read in it ahead; raise `TransactionLostError` if it ended."""
        ahead = self._ahead
        if part.inside:
            self._require_claims(part)
        # Of rows before the mount of a sorted tablet its node does not know who has written them, and when.
        is_usable = time.monotonic() < self._until and not part.has_new_tables
        if ahead is not None and (part.inside or is_usable):
            self._ahead = None
            return ahead.transaction(), ahead
        if part.inside:
            raise errors.TransactionLostError(
                "The transaction with the rows of the tasks has ended", transaction=part.inside
            )
        self.leave_ahead()
        return self.cluster.begin(config.LEASE, self.connections), None

    def _require_claims(self, part: Part) -> None:
        """Raise `TransactionLostError` if claims of tasks may have expired while they wrote."""
        if claims.seconds_since(self._opened) > claims.HOLD.total_seconds():
            raise errors.TransactionLostError(
                f"Tasks wrote into a transaction for longer than {claims.HOLD}: their claims may be gone",
                transaction=part.inside,
            )

    def _is_done(self, entry: LedgerEntry, part: Part) -> bool:
        """Check whether the part is committed, with the same offsets and rows; raises as `judge` does.

        If another call has written the batch, with other rows, that is a `RepeatedCallError`.
        """
        batch, ledger = self.batch, self.ledger.path
        verdict = judge(
            entry, batch, ledger=ledger, running=True, logged=self.logged, accepted=self.accepted
        )
        require_columns(entry, batch, self.columns, ledger=ledger, running=True)
        if verdict is Verdict.NEW or entry.part < part.number:
            return False
        require_one_sink(entry, batch, self.commits_sent, ledger=ledger)
        self._require_same_rows(entry, part)
        require_same_parts(entry, batch, part.digests, part.count)
        return True

    def _require_same_rows(self, entry: LedgerEntry, part: Part) -> None:
        """Check that a transaction which an earlier call sent carried the rows of this call."""
        sent = self.commits_sent.get(entry.transaction_id)
        is_own = entry.transaction_id in self.entries
        if sent and not (is_own or part.digests) and sent != digest_of(part.targets):
            number = self.batch.batch_id
            raise errors.RepeatedCallError(
                "The commit of an earlier call for this batch was applied although that call failed, and "
                "this call has other rows",
                remedy=f"{ONE_CALL}. {settle(range(number, number + 1))}",
                **self.batch.where,
                target=entry.target,
                ledger=self.ledger.path,
            )

    def _commit(self, transaction: Transaction, number: int, written: Sequence[str]) -> None:
        try:
            transaction.commit(written)
        except errors.CommitOutcomeUnknownError as error:
            fields = {"attempt": number, "transaction": transaction.id, "error": str(error)}
            self.emit(Event.COMMIT_OUTCOME_UNKNOWN, **fields)
            self.cluster.unpin()
            self._require_applied(transaction, error)
            self.emit(Event.COMMIT_OUTCOME_RESOLVED, transaction=transaction.id, own=True)
        self.emit(Event.TRANSACTION_COMMITTED, attempt=number, transaction=transaction.id)

    def _require_applied(
        self, transaction: Transaction, unknown: errors.CommitOutcomeUnknownError
    ) -> None:
        """Find a commit with an unknown outcome in the ledger; raise the error again if it is not there.

        If the cluster has refused it and a new attempt would not help, that refusal is raised. Rows that
        tasks have written must be computed again then. So for them the ledger is asked as often as an attempt
        is repeated: the commit may still be on its way, or the cluster away for a moment.
        """
        answer = unknown.__cause__
        refusal = None if isinstance(answer, errors.TransientError) else answer

        def look(_: int) -> None:
            entry = self.ledger.read(self.cluster)
            if entry is None or entry.transaction_id != transaction.id:
                raise refusal or unknown

        if self.commits_sent[transaction.id] != UNSEEN:
            look(1)
            return
        try:
            run_attempts(look, self.policy, self.emit)
        except errors.RetriesExhaustedError as error:
            raise unknown from error


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
