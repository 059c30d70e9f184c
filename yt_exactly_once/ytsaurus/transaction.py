"""A tablet transaction: begin, read, write, commit, abort.

It never retries: a retried command could act twice, and a retried commit hides its outcome. All its requests
go to the proxy that started it. Its writes are invisible until the commit, to itself too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import contextmanager, suppress
from copy import copy
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from yt import yson

from yt_exactly_once.config import PLAIN_WRITE, WriteOptions
from yt_exactly_once.errors import CommitOutcomeUnknownError, ExactlyOnceError
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.proofs import leaves_outcome_unknown
from yt_exactly_once.ytsaurus.sender import BINARY, WIRES, YSON, encoded

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.sender import Sender

T = TypeVar("T")

_ROWS_READ = 1_000_000
"""How many rows a select may read and return at least."""


class Body(Protocol):
    """The body of one request."""

    @property
    def data(self) -> bytes | memoryview:
        """Encoded rows, or keys as YSON."""

    @property
    def deletes(self) -> bool:
        """Whether the keys are to be deleted."""


class TabletTransaction:
    """One open tablet transaction; use `start`.

    Attributes:
        proxy: address of the proxy it lives on.
    """

    def __init__(
        self, transaction_id: str, senders: Sequence[Sender], pool: Executor, *, proxy: str
    ) -> None:
        self.id = transaction_id
        self.proxy = proxy
        self._senders = senders
        self._pool = pool

    @classmethod
    def start(
        cls, senders: Sequence[Sender], pool: Executor, timeout: timedelta, *, proxy: str
    ) -> Self:
        """Start a transaction through the first sender.

        Args:
            senders: of one proxy; each has one request under way at a time.
            pool: threads for calls that are made side by side.
        """
        lease = int(timeout.total_seconds() * 1000)
        parameters = {"type": "tablet", "sticky": True, "timeout": lease, "output_format": YSON}
        with translated("start a transaction", proxy=proxy):
            answer = yson.loads(senders[0].send("start_transaction", parameters))
        return cls(str(answer["transaction_id"]), senders, pool, proxy=proxy)

    def over(self, senders: slice) -> Self:
        """Return the same transaction over some of its senders; other threads may use the others."""
        narrowed = copy(self)
        narrowed._senders = self._senders[senders]  # noqa: SLF001 - of this very class
        return narrowed

    def lookup(
        self, path: str, keys: Sequence[dict[str, Any]] | bytes
    ) -> list[dict[str, Any] | None]:
        """Return rows as of the start of the transaction, in the order of the keys, given so or as YSON."""
        if not keys:
            return []
        with self._translated("read rows", path=path):
            return self._senders[0].look_up(path, keys, transaction_id=self.id)

    def lookup_columns(self, path: str, keys: bytes, columns: Sequence[str]) -> bytes:
        """Return columns of the rows that have some of the keys, as of the start of the transaction.

        Keys and rows are YSON; a key without a row is left out.
        """
        formats = {"input_format": YSON, "output_format": BINARY}
        with self._translated("read rows", path=path):
            return self._send("lookup_rows", keys, path=path, column_names=list(columns), **formats)

    def insert(self, path: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a few rows given as mappings."""
        self._change("insert_rows", path, encoded(rows))

    def delete(self, path: str, keys: Sequence[dict[str, Any]]) -> None:
        """Delete a few rows of a sorted table by their keys."""
        self._change("delete_rows", path, encoded(keys))

    def select(self, path: str, columns: Sequence[str], *, limit: int) -> bytes:
        """Return columns of a sorted table as of the start of the transaction, as YSON in any order."""
        listed = ", ".join(f"[{name}]" for name in columns)
        query = f"{listed} from [{path}] limit {limit}"
        most = max(limit, _ROWS_READ)
        limits: dict[str, Any] = {"input_row_limit": most, "output_row_limit": most}
        with self._translated("read rows", path=path):
            return self._send("select_rows", query=query, output_format=YSON, **limits)

    def write(
        self, path: str, bodies: Sequence[Body], wire: str, options: WriteOptions = PLAIN_WRITE
    ) -> None:
        """Write encoded payloads, and delete the keys of those that say so, in their order.

        Args:
            wire: `arrow` or `yson`, for what is written.
        """
        for body in bodies:
            if body.deletes:
                self._change("delete_rows", path, body.data)
            else:
                self._change("insert_rows", path, body.data, WIRES[wire], **options.parameters)

    def ping(self) -> None:
        """Renew the lease."""
        with self._translated("ping"):
            self._send("ping_transaction")

    @contextmanager
    def kept_alive(self, every: float) -> Iterator[None]:
        """Renew the lease every so many seconds while a block runs that sends nothing through these senders.

        Whoever else writes into the transaction meets its end, so a failure is no error here.
        """
        done = Event()

        def ping() -> None:
            while not done.wait(every):
                with suppress(ExactlyOnceError):
                    self.ping()

        pinging = self._pool.submit(ping)
        try:
            yield
        finally:
            done.set()
            wait([pinging])

    def side_by_side(self, calls: Sequence[Callable[[TabletTransaction], T]]) -> list[T]:
        """Make independent calls at the same time.

        Each call gets this transaction with its own sender. When there are more calls than senders, the calls
        of one sender run one after the other, the last one first.

        Returns:
            What the calls returned, in their order. The first failure in that order is raised after all
            of them have ended, and so is an interrupt of this thread.
        """
        count = min(len(self._senders), len(calls))
        if count <= 1:
            return [call(self) for call in calls]
        senders = [self.over(slice(number, number + 1)) for number in range(count)]

        def make(number: int) -> list[T]:
            # A batch ends with its small requests. After the rows of a sender they would be waited for alone.
            return [call(senders[number]) for call in calls[number::count][::-1]][::-1]

        made = [self._pool.submit(make, number) for number in range(count)]
        try:
            wait(made)
        except BaseException:
            # The transaction must not end while a sender still works in it.
            for future in made:
                future.cancel()
            wait(made)
            raise
        results = [future.result() for future in made]
        return [results[index % count][index // count] for index in range(len(calls))]

    def commit(self, written: Sequence[str] = ()) -> None:
        """Commit; afterwards the transaction is gone, whatever the outcome.

        Args:
            written: the tables that it writes, for the error of a missing permission.

        Raises:
            ConflictError: refused: another transaction wrote the same row first.
            CommitOutcomeUnknownError: no answer, or one that leaves the outcome open.
            ExactlyOnceError: refused for another reason; nothing was written.
        """
        try:
            with self._translated("commit", asked=lambda: self._senders[0].client, among=written):
                self._send("commit_transaction")
        except ExactlyOnceError as error:
            if error.__cause__ is not None and leaves_outcome_unknown(error.__cause__):
                raise CommitOutcomeUnknownError(
                    "The commit was sent, and its outcome is unknown: " + error.what,
                    transaction=self.id,
                    proxy=self.proxy,
                ) from error
            raise

    def abort(self) -> None:
        """End the transaction without effect; no error when it is already gone."""
        # If this fails, the lease ends it anyway, and the error that led here matters more.
        with suppress(ExactlyOnceError), self._translated("abort"):
            self._send("abort_transaction")

    def _change(
        self, command: str, path: str, body: bytes | memoryview, kind: Any = YSON, **options: Any
    ) -> None:
        action = "delete rows" if command == "delete_rows" else "write rows"
        with self._translated(action, path=path):
            self._send(command, body, path=path, input_format=kind, **options)

    def _send(
        self, command: str, body: bytes | memoryview | None = None, **parameters: Any
    ) -> bytes:
        """Send a command of this transaction."""
        return self._senders[0].send(command, {**parameters, "transaction_id": self.id}, body)

    def _translated(self, action: str, **where: Any) -> Any:
        return translated(action, transaction=self.id, proxy=self.proxy, **where)


class TransactionAhead(Generic[T]):
    """A transaction that another thread starts and reads in, one request after the other.

    Args:
        threads: begin with a call that was submitted earlier no later than with the others.
        reads: the first calls in it.
        connections: how many of its senders are not for the reads.
    """

    def __init__(
        self,
        threads: Executor,
        start: Callable[[], TabletTransaction],
        reads: Callable[[TabletTransaction], T],
        connections: int,
    ) -> None:
        self._started = threads.submit(start)
        self._read = threads.submit(
            lambda: reads(self._started.result().over(slice(connections, None)))
        )
        self._connections = connections

    def transaction(self) -> TabletTransaction:
        """Wait for the transaction, or raise why there is none."""
        return self._started.result().over(slice(self._connections))

    def read(self) -> T:
        """Wait for what was read first, or raise what has failed."""
        return self._read.result()
