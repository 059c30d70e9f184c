"""A tablet transaction: begin, read, write, commit, abort.

It never retries: a retried command could act twice, and a retried commit hides its outcome. All its requests
go to the proxy that started it. Its writes are invisible until the commit, to itself too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from yt.wrapper import YsonFormat
from yt.wrapper.format import ArrowFormat

from yt_exactly_once.errors import CommitOutcomeUnknownError, ExactlyOnceError
from yt_exactly_once.ytsaurus.failures import leaves_outcome_unknown, translated
from yt_exactly_once.ytsaurus.lanes import Unread

if TYPE_CHECKING:
    from yt.wrapper import YtClient
    from yt.wrapper.format import Format

T = TypeVar("T")


_ROWS_READ = 1_000_000
"""How many rows a select may read and return at least."""

_WRITTEN = {"enable_null_to_yson_entity_conversion": False}
"""Format attributes without which `insert_rows` stores a null of an `any` column as a YSON entity, which
is no null to a query (`TInsertRowsFormatConfig`). `push_queue_producer` stores a null either way."""


def input_format(wire: str) -> Format:
    """Return the format of rows that are written as `arrow` or as `yson`."""
    kind = {"arrow": ArrowFormat, "yson": YsonFormat}[wire]
    return kind(attributes=_WRITTEN)


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
        self, transaction_id: str, clients: Sequence[YtClient], pool: Executor, *, proxy: str
    ) -> None:
        self.id = transaction_id
        self.proxy = proxy
        self._clients = clients
        self._pool = pool
        # A client that stays joined would send the commands of the next transaction into this one.
        with ExitStack() as joined:
            for client in clients:
                # Joining only adds the id to every command of that client: no ping, no commit on exit.
                joined.enter_context(
                    client.Transaction(transaction_id=transaction_id, ping=False, acquire=False)
                )
            self._joined = joined.pop_all()

    @classmethod
    def start(
        cls, clients: Sequence[YtClient], pool: Executor, timeout: timedelta, *, proxy: str
    ) -> Self:
        """Start a transaction through the first client and join the others to it.

        Args:
            clients: of one proxy; each has one request under way at a time.
            pool: threads for calls that are made side by side.
        """
        with translated("start a transaction", proxy=proxy):
            transaction_id = clients[0].start_transaction(
                type="tablet", sticky=True, timeout=int(timeout.total_seconds() * 1000)
            )
        return cls(str(transaction_id), clients, pool, proxy=proxy)

    def over(self, clients: slice) -> Self:
        """Return the same transaction over some of its clients; other threads may use the others."""
        part = copy(self)
        part._clients = self._clients[clients]  # noqa: SLF001 - of this very class
        return part

    def lookup(self, path: str, keys: Sequence[dict[str, Any]]) -> list[dict[str, Any] | None]:
        """Return rows as of the start of the transaction, in the order of the keys."""
        if not keys:
            return []
        with self._translated("read rows", path=path):
            return list(
                self._clients[0].lookup_rows(
                    path, list(keys), keep_missing_rows=True, format=YsonFormat()
                )
            )

    def insert(self, path: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a few rows given as mappings."""
        with self._translated("write rows", path=path):
            self._clients[0].insert_rows(path, list(rows), format=YsonFormat())

    def delete(self, path: str, keys: Sequence[dict[str, Any]]) -> None:
        """Delete a few rows of a sorted table by their keys."""
        with self._translated("delete rows", path=path):
            self._clients[0].delete_rows(path, list(keys), format=YsonFormat())

    def select(self, path: str, columns: Sequence[str], *, limit: int) -> bytes:
        """Return columns of a sorted table as of the start of the transaction, as YSON in any order."""
        listed = ", ".join(f"[{name}]" for name in columns)
        with self._translated("read rows", path=path):
            rows = self._clients[0].select_rows(
                f"{listed} from [{path}] limit {limit}",
                input_row_limit=max(limit, _ROWS_READ),
                output_row_limit=max(limit, _ROWS_READ),
                format=YsonFormat(),
                raw=True,
            )
            return bytes(rows.read())

    def write(
        self,
        path: str,
        bodies: Sequence[Body],
        wire: str,
        *,
        update: bool = False,
        aggregate: bool = False,
    ) -> None:
        """Write encoded payloads, and delete the keys of those that say so, in their order.

        Args:
            wire: `arrow` or `yson`, for what is written.
            update: keep the columns of a sorted row that a payload does not have.
            aggregate: combine aggregating columns with what is there.
        """
        client = self._clients[0]
        for body in bodies:
            stream = Unread(body.data)
            if body.deletes:
                with self._translated("delete rows", path=path):
                    client.delete_rows(path, stream, format=YsonFormat(), raw=True)
                continue
            with self._translated("write rows", path=path):
                client.insert_rows(
                    path,
                    stream,
                    format=input_format(wire),
                    raw=True,
                    update=update or None,
                    aggregate=aggregate or None,
                )

    @contextmanager
    def kept_alive(self, every: float) -> Iterator[None]:
        """Renew the lease every so many seconds while a block runs that sends nothing through these clients.

        Whoever else writes into the transaction meets its end, so a failure is no error here.
        """
        done = Event()

        def ping() -> None:
            while not done.wait(every):
                with suppress(ExactlyOnceError), self._translated("ping"):
                    self._clients[0].ping_transaction(self.id)

        pinging = self._pool.submit(ping)
        try:
            yield
        finally:
            done.set()
            wait([pinging])

    def side_by_side(self, calls: Sequence[Callable[[TabletTransaction], T]]) -> list[T]:
        """Make independent calls at the same time.

        Each call gets this transaction with its own client. When there are more calls than clients, the calls
        of one client run one after the other, the last one first.

        Returns:
            What the calls returned, in their order. The first failure in that order is raised after all
            of them have ended, and so is an interrupt of this thread.
        """
        count = min(len(self._clients), len(calls))
        if count <= 1:
            return [call(self) for call in calls]
        lanes = [self.over(slice(number, number + 1)) for number in range(count)]

        def make(number: int) -> list[T]:
            # A batch ends with its small requests. Behind the rows of a lane they would be waited for alone.
            return [call(lanes[number]) for call in calls[number::count][::-1]][::-1]

        made = [self._pool.submit(make, number) for number in range(count)]
        try:
            wait(made)
        except BaseException:
            # The transaction must not end while a client still works in it.
            for future in made:
                future.cancel()
            wait(made)
            raise
        results = [future.result() for future in made]
        return [results[place % count][place // count] for place in range(len(calls))]

    def commit(self, written: Sequence[str] = ()) -> None:
        """Commit; afterwards the transaction is gone, whatever the outcome.

        Args:
            written: the tables that it writes, for the error of a missing permission.

        Raises:
            ConflictError: refused: another transaction wrote the same row first.
            CommitOutcomeUnknownError: no answer, or one that leaves the outcome open.
            ExactlyOnceError: refused for another reason; nothing was written.
        """
        client = self._clients[0]
        self._joined.close()
        try:
            with translated(
                "commit", asked=lambda: client, among=written, transaction=self.id, proxy=self.proxy
            ):
                client.commit_transaction(self.id)
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
        self._joined.close()
        try:
            with translated("abort", transaction=self.id, proxy=self.proxy):
                self._clients[0].abort_transaction(self.id)
        except ExactlyOnceError:
            # The lease ends it anyway, and the error that led here matters more.
            return

    def leave(self) -> None:
        """Use the clients for something else, and let the transaction live."""
        self._joined.close()

    def _translated(self, action: str, **where: Any) -> Any:
        return translated(action, transaction=self.id, proxy=self.proxy, **where)


class TransactionAhead(Generic[T]):
    """A transaction that another thread starts and reads in, one request after the other.

    Args:
        thread: makes the calls one by one, in their order.
        reads: the first calls in it.
        lanes: how many of its clients are not for the reads.
    """

    def __init__(
        self,
        thread: Executor,
        start: Callable[[], TabletTransaction],
        reads: Callable[[TabletTransaction], T],
        lanes: int,
    ) -> None:
        self._started = thread.submit(start)
        self._read = thread.submit(lambda: reads(self._started.result().over(slice(lanes, None))))
        self._lanes = lanes

    def transaction(self) -> TabletTransaction:
        """Wait for the transaction, or raise why there is none."""
        return self._started.result().over(slice(self._lanes))

    def read(self) -> T:
        """Wait for what was read first, or raise what has failed."""
        return self._read.result()
