"""Sticky tablet transactions: they live in the memory of one proxy and nowhere else.

Owns their life: start with a snapshot, buffered writes, a lease that every command renews, and the end.
What was never started here, has ended, or belongs to another proxy is the same to a client: not found.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from sqlite3 import Connection

from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import Snapshot, Store, last_timestamp
from yt_exactly_once.local.tablets import appends, catalog, commit
from yt_exactly_once.local.tablets.commit import Manner
from yt_exactly_once.local.tablets.modifications import Batch

DEFAULT_TIMEOUT_SECONDS = 30.0
_LOOK_EVERY_SECONDS = 1.0

_ACTIVE, _COMMITTING, _COMMITTED, _ABORTED = "active", "committing", "committed", "aborted"


@dataclass(eq=False, kw_only=True, repr=False)
class TabletTransaction(commit.Terms):
    """One transaction; a command's own one takes its snapshot at its first read.

    Attributes:
        timeout: length of the lease in seconds.
        batches: what is buffered.
        progress: last sequence number pushed here per producer, queue and session.
        deadline: when the pool ends it, on the clock of the pool.
    """

    store: Store
    snapshot: Snapshot | None = None
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    batches: list[Batch] = field(default_factory=list)
    progress: dict[tuple[str, str, str], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    state: str = _ACTIVE
    deadline: float = math.inf

    def buffer(self, batches: Sequence[Batch]) -> None:
        """Keep modifications for the commit; raise `YtError` 11003 when it has begun."""
        with self.lock:
            self._check_active("Cannot modify rows since")
            self.batches += batches

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give the state at the start of the transaction; one reader at a time."""
        with self.lock:
            self._check_active("Cannot read since")
            snapshot = self.snapshot = self.snapshot or self.store.snapshot()
            self.start_timestamp = snapshot.timestamp
        with snapshot.lock:
            if self.state != _ACTIVE:
                raise not_found(self.id)
            yield snapshot.connection

    def commit(self, manner: Manner, prerequisites: Sequence[str] = ()) -> int:
        """Commit what is buffered and return the commit timestamp.

        Args:
            prerequisites: master transactions that must be alive.

        Raises:
            YtError: the transaction has ended, and nothing of it is visible.
        """
        with self.lock:
            self._check_active("Cannot commit since")
            self.state = _COMMITTING
        self.manner, self.prerequisites = manner, tuple(prerequisites)
        ended = _ABORTED
        try:
            timestamp = self._apply()
            ended = _COMMITTED
        except YtError as error:
            raise YtError(f"Error committing transaction {self.id}", inner=[error]) from error
        finally:
            self.state = ended
            self._release()
        return timestamp

    def abort(self) -> None:
        """Forget what is buffered; raise `YtError` 11003 when the commit has begun."""
        with self.lock:
            self._check_active("Cannot abort since")
            self.state = _ABORTED
        self._release()

    def _apply(self) -> int:
        if not self.batches:
            with self.store.read() as connection:
                return last_timestamp(connection)
        # A reader of older pages would keep the log of SQLite from ever beginning at its start again.
        self._close_snapshot()
        with self.store.write() as connection:
            return commit.apply(connection, self.batches, self)

    def _release(self) -> None:
        self.batches = []
        self._close_snapshot()

    def _close_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()

    def _check_active(self, action: str) -> None:
        if self.state != _ACTIVE:
            raise YtError(
                f'{action} transaction {self.id} is in "{self.state}" state',
                Code.INVALID_TRANSACTION_STATE,
            )


class TransactionPool:
    """The transactions of one proxy.

    Args:
        max_timeout: longest lease in seconds; a longer one is cut.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        manner: Manner | None = None,
        *,
        max_timeout: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._manner = manner or Manner()
        with store.write() as connection:
            catalog.initialize(connection)
            if not self._manner.visibility_delay:
                # Of an earlier run that had one.
                appends.apply_pending(connection)
        self._max_timeout = max_timeout
        self._clock = clock
        self._entries: dict[str, TabletTransaction] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._reaper: threading.Thread | None = None

    def start(
        self,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        atomicity: str = "full",
        transaction_id: str | None = None,
        user: str = "root",
    ) -> TabletTransaction:
        """Start a transaction that reads the newest committed state.

        Args:
            timeout: seconds that it lives without a command that names it; no more than the limit.
            transaction_id: id to use instead of a new one; `YtError` 11003 when it is taken.
        """
        snapshot = self._store.snapshot()
        transaction = TabletTransaction(
            transaction_id or _new_id(atomicity),
            atomicity,
            snapshot.timestamp,
            time.time(),
            user=user,
            store=self._store,
            snapshot=snapshot,
            timeout=min(timeout, self._max_timeout),
        )
        with self._lock:
            if transaction.id in self._entries:
                transaction.abort()
                raise YtError(
                    f"Failed to register duplicate sticky transaction {transaction.id}",
                    Code.INVALID_TRANSACTION_STATE,
                )
            transaction.deadline = self._clock() + transaction.timeout
            self._entries[transaction.id] = transaction
            if self._reaper is None:
                self._reaper = threading.Thread(target=self._reap, name="leases", daemon=True)
                self._reaper.start()
        return transaction

    def get(self, transaction_id: str) -> TabletTransaction:
        """Return a transaction and renew its lease; raise `YtError` 11000 when it is not here."""
        self.expire()
        with self._lock:
            found = self._entries.get(transaction_id)
            if found is None:
                raise not_found(transaction_id)
            found.deadline = self._clock() + found.timeout
            return found

    def commit(self, transaction_id: str, prerequisites: Sequence[str] = ()) -> int:
        """Commit a transaction and return its timestamp; whatever happens, it is gone afterwards.

        Args:
            prerequisites: master transactions that must be alive if rows are written.

        Raises:
            YtError: 11003 when another commit of it is running, otherwise why it failed.
        """
        transaction = self.get(transaction_id)
        try:
            return transaction.commit(self._manner, prerequisites)
        finally:
            if transaction.state in (_COMMITTED, _ABORTED):
                self._forget(transaction_id)

    def abort(self, transaction_id: str) -> None:
        """Abort a transaction."""
        self.get(transaction_id).abort()
        self._forget(transaction_id)

    @contextmanager
    def own(self, atomicity: str = "full", user: str = "root") -> Iterator[TabletTransaction]:
        """Give a command without a transaction id one of its own, committed at the end."""
        transaction = TabletTransaction(
            _new_id(atomicity), atomicity, None, time.time(), user=user, store=self._store
        )
        try:
            yield transaction
        except BaseException:
            transaction.abort()
            raise
        transaction.commit(self._manner)

    def ids(self) -> list[str]:
        """Return the ids of the transactions that are alive here."""
        self.expire()
        with self._lock:
            return list(self._entries)

    def written(self, transaction_id: str) -> frozenset[str]:
        """Return the paths of the tables that a transaction has buffered rows for; none if it is not here."""
        with self._lock:
            found = self._entries.get(transaction_id.lower())
            return frozenset(each.layout.path for each in (found.batches if found else ()))

    def expire(self) -> None:
        """Abort every transaction whose lease has run out."""
        with self._lock:
            now = self._clock()
            late = [t for t in self._entries.values() if t.deadline <= now]
            late = [t for t in late if t.state != _COMMITTING]
            for transaction in late:
                del self._entries[transaction.id]
        for transaction in late:
            _abort_quietly(transaction)

    def close(self) -> None:
        """Abort everything, as the end of the process would."""
        with self._lock:
            entries, self._entries = list(self._entries.values()), {}
        self._closing.set()
        for entry in entries:
            _abort_quietly(entry)
        if self._reaper is not None:
            self._reaper.join()

    def _forget(self, transaction_id: str) -> None:
        # Another thread may be going through the entries.
        with self._lock:
            self._entries.pop(transaction_id, None)

    def _reap(self) -> None:
        """Close snapshots of forgotten transactions, which would keep the log of SQLite growing."""
        while not self._closing.wait(_LOOK_EVERY_SECONDS):
            self.expire()


def _new_id(atomicity: str) -> str:
    """Return an id by whose type clients recognise a tablet transaction."""
    return make_id(f"{'atomic' if atomicity == 'full' else 'non_atomic'}_tablet_transaction")


def not_found(transaction_id: str) -> YtError:
    """Return the error for a transaction that this proxy does not have."""
    return YtError(
        f"Sticky transaction {transaction_id} is not found, this usually means that you use tablet "
        "transactions within HTTP API; consider using RPC API instead",
        Code.NO_SUCH_TRANSACTION,
    )


def _abort_quietly(transaction: TabletTransaction) -> None:
    try:
        transaction.abort()
    except YtError as error:
        # It ended by itself in the meantime, which is what was wanted.
        if error.code != Code.INVALID_TRANSACTION_STATE:
            raise
