"""The transactional protocol: rows, consumer offsets and ledger entry in one short tablet transaction.

Exactly once for any query, for three reasons. Every commit writes the query's ledger row, so of two writers
at most one wins. Offsets are compared and set in the same transaction. A commit with an unknown outcome is
resolved from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field

from yt_exactly_once import config, errors
from yt_exactly_once.commit.batch import SourceRange
from yt_exactly_once.commit.cluster import Ahead, Cluster, Transaction
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.judgement import Verdict, judge, nothing_logged, require_one_sink
from yt_exactly_once.commit.notes import ONE_CALL, settle
from yt_exactly_once.commit.parts import Part, digest_of
from yt_exactly_once.commit.steps import Read, TransactionSteps
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts

UNSEEN = "rows that only tasks have seen"
"""In place of the digest of rows which the driver never had: no later call can show that it has the same."""

SHARE_AHEAD = 4
"""Computing may use one part in so many of the lease of a transaction that was opened ahead."""


@dataclass(frozen=True)
class Committed:
    """How a batch was committed; there is no entry if an earlier run had committed it."""

    transaction_id: str
    attempts: int
    entry: LedgerEntry | None = field(default=None, compare=False)


@dataclass
class BatchCommit(TransactionSteps):
    """Commits one batch of a query; steps 4 to 9 of the protocol.

    Attributes (after those of `TransactionSteps`):
        lanes: requests sent side by side.
        commits_sent: transactions whose commit this run has sent for the batch. Each has a digest of its
            rows when an earlier call sent it, and an empty one otherwise. This call adds its own.
        logged: see `judge`.
        before: the ledger entry that this run has committed last; `None` before the first.
    """

    cluster: Cluster
    _: KW_ONLY
    policy: RetryPolicy
    lanes: int
    commits_sent: dict[str, str] = field(default_factory=dict)
    logged: Callable[[int], tuple[SourceRange, ...]] = nothing_logged
    before: LedgerEntry | None = None
    _ahead: Ahead[Read] | None = field(default=None, init=False)
    _until: float = field(default=0.0, init=False)

    @contextmanager
    def ahead(self) -> Iterator[Ahead[Read] | None]:
        """Begin the first attempt while the block computes the rows and commits them: steps 4 and 5.

        The block gets the transaction, or nothing where none could be begun. Its tasks may write the rows
        into it, see `TargetRows.inside`. The transaction sees the cluster as of a moment before the rows were
        computed. If another writer changes the ledger entry or a consumer after that moment, the cluster
        refuses the commit. If computing takes too much of the lease, and no task has written, the attempt
        opens another transaction. What is left open at the end of the block is aborted.
        """
        # When computing has spent its share of the lease.
        self._until = time.monotonic() + config.LEASE.total_seconds() / SHARE_AHEAD
        # The attempt meets a failure again, and handles it.
        with suppress(errors.TransientError):
            self._ahead = self.cluster.begin_ahead(config.LEASE, self.lanes, self.read)
        try:
            yield self._ahead
        finally:
            self._leave_ahead()

    def _leave_ahead(self) -> None:
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
        4. opens a transaction, or takes the one that `ahead` has opened,
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
            self._require_same_parts(parts[-1].digests, len(parts), resumed)
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
                self.fill(transaction, expected, part, number)
            read = ahead.read() if ahead else self.read(transaction)  # 5
            if expected is not None:
                self._require_expected(expected, read)
            entry, _ = read
            if entry is not None and self._is_done(entry, part):
                # An earlier attempt, of this run or of one that died, was applied after all.
                own = entry.transaction_id in self.commits_sent
                self.emit(Event.COMMIT_OUTCOME_RESOLVED, transaction=entry.transaction_id, own=own)
                transaction.abort()
                return entry.transaction_id
            self.tell_left_out(read)
            if expected is None:
                self.fill(transaction, read, part, number)  # 6 to 8
        except BaseException:
            if ahead is not None:
                # The transaction must not end while it is read in.
                with suppress(errors.ExactlyOnceError):
                    ahead.read()
            transaction.abort()
            self.emit(Event.TRANSACTION_ABORTED, attempt=number, transaction=transaction.id)
            raise
        self.commits_sent[transaction.id] = UNSEEN if part.inside else ""
        consumers = [source.consumer for source, _ in read[1] if source.consumer]
        written = [*(target.path for target in part.targets), self.ledger.path, *consumers]
        self._commit(transaction, number, written)  # 9
        return transaction.id

    def _expected(self, part: Part) -> Read | None:
        """Return what step 5 will find, if only this run writes the ledger entry and moves the consumers.

        Nothing, where that cannot be known, or would not let the batch be written: then step 5 comes first.
        """
        entry = self.before
        if entry is None or part.inside or self.batch.needs_its_rows:
            return None
        expected = self.left_by(entry)
        with suppress(errors.ExactlyOnceError):
            if expected is not None and not self._is_done(entry, part):
                self.moves(expected)
                return expected
        return None

    def _require_expected(self, expected: Read, read: Read) -> None:
        """Raise `ConflictError` if step 5 finds other than was expected: the next attempt begins with it."""
        entry, before = read[0], expected[0]
        is_same = entry and before and entry.transaction_id == before.transaction_id
        if not is_same or read[1] != expected[1]:
            raise errors.ConflictError(
                "The ledger entry or a consumer is not what this run has left",
                ledger=self.ledger.path,
            )

    def _open(self, part: Part) -> tuple[Transaction, Ahead[Read] | None]:
        """Return a transaction, and what was read in it ahead; raise `TransactionLostError` if it ended."""
        ahead = self._ahead
        if ahead is not None and (part.inside or time.monotonic() < self._until):
            self._ahead = None
            return ahead.transaction(), ahead
        if part.inside:
            raise errors.TransactionLostError(
                "The transaction with the rows of the tasks has ended", transaction=part.inside
            )
        self._leave_ahead()
        return self.cluster.begin(config.LEASE, self.lanes), None

    def _is_done(self, entry: LedgerEntry, part: Part) -> bool:
        """Check whether the part is committed, with the same offsets and rows; raises as `judge` does.

        If another call has written the batch, with other rows, that is a `RepeatedCallError`.
        """
        batch, ledger = self.batch, self.ledger.path
        verdict = judge(
            entry, batch, ledger=ledger, running=True, logged=self.logged, accepted=self.accepted
        )
        if verdict is Verdict.NEW or entry.part < part.number:
            return False
        require_one_sink(entry, batch, self.commits_sent, ledger=ledger)
        self._require_same_rows(entry, part)
        self._require_same_parts(part.digests, part.count, entry)
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

    def _require_same_parts(
        self, digests: Sequence[str], part_count: int, entry: LedgerEntry
    ) -> None:
        """Raise `LedgerDivergedError` if committed parts are not those into which the batch is cut now."""
        both = min(len(digests), len(entry.part_digests))
        if entry.part_count != part_count or tuple(digests[:both]) != entry.part_digests[:both]:
            raise errors.LedgerDivergedError(
                f"The batch differs from the {entry.part} of its {entry.part_count} parts that are written",
                remedy="With split_oversized every run must produce the same rows in the same order, with "
                "the same dyn_batch_size, wire_format, rows_per_tablet_limit, placement and tablets. Restore "
                "these. Or remove the rows of this batch from the target, and start a new checkpoint",
                **self.batch.where,
                target=entry.target,
            )

    def _commit(self, transaction: Transaction, number: int, written: Sequence[str]) -> None:
        try:
            transaction.commit(written)
        except errors.CommitOutcomeUnknownError as error:
            told = {"attempt": number, "transaction": transaction.id, "error": str(error)}
            self.emit(Event.COMMIT_OUTCOME_UNKNOWN, **told)
            self.cluster.unpin()
            self._require_applied(transaction, error)
            self.emit(Event.COMMIT_OUTCOME_RESOLVED, transaction=transaction.id, own=True)
        self.emit(Event.TRANSACTION_COMMITTED, attempt=number, transaction=transaction.id)

    def _require_applied(
        self, transaction: Transaction, unknown: errors.CommitOutcomeUnknownError
    ) -> None:
        """Find a commit without an answer in the ledger; raise the error again if it is not there.

        Rows that tasks have written must be computed again then. So for them the ledger is asked as often as
        an attempt is repeated: the commit may still be on its way, or the cluster away for a moment.
        """

        def look(_: int) -> None:
            entry = self.ledger.read(self.cluster)
            if entry is None or entry.transaction_id != transaction.id:
                raise unknown

        if self.commits_sent[transaction.id] != UNSEEN:
            look(1)
            return
        try:
            run_attempts(look, self.policy, self.emit)
        except errors.RetriesExhaustedError as error:
            raise unknown from error
