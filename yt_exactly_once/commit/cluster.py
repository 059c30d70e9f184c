"""What the protocol needs from a cluster; `ytsaurus.client.Connection` provides it.

Small on purpose: the exhaustive model of the tests implements the same interface, so it runs the code that
runs in production.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from yt_exactly_once.config import PLAIN_WRITE, WriteOptions

Row = dict[str, Any]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Payload(NamedTuple):
    """The body of one request.

    Attributes:
        deletes: whether it deletes the keys in it, which are YSON, or writes rows.
        digest: of the rows, where the ledger keeps one.
    """

    row_count: int
    data: bytes | memoryview
    deletes: bool = False
    digest: int = 0


class Reader(Protocol):
    """Something that reads rows of sorted dynamic tables by key."""

    def lookup(self, path: str, keys: Sequence[Row]) -> list[Row | None]:
        """Return the rows in the order of the keys, `None` for a missing one."""


class OpenTransaction(NamedTuple):
    """What another process needs to write into an open transaction: its id, and the proxy that holds it."""

    id: str
    proxy: str


class Transaction(Reader, Protocol):
    """A tablet transaction: reads see its start, writes show at its commit."""

    @property
    def id(self) -> str:
        """Transaction id."""

    @property
    def proxy(self) -> str:
        """Address of the proxy that holds it."""

    def lookup_columns(self, path: str, keys: bytes, columns: Sequence[str]) -> bytes:
        """Return columns of the rows that have some of the keys, all as YSON, in any order."""

    def insert(self, path: str, rows: Sequence[Row]) -> None:
        """Write a few rows."""

    def select(self, path: str, columns: Sequence[str], *, limit: int) -> bytes:
        """Return columns of the rows of a sorted table, as YSON in any order, and at most so many."""

    def write(
        self, path: str, payloads: Sequence[Payload], wire: str, options: WriteOptions = PLAIN_WRITE
    ) -> None:
        """Write or delete what the payloads say, in their order."""

    def kept_alive(self, every: float) -> AbstractContextManager[None]:
        """Renew the lease every so many seconds while a block runs that sends nothing from here."""

    def side_by_side(self, calls: Sequence[Callable[[Transaction], T]]) -> list[T]:
        """Make independent calls at the same time, and return their results."""

    def commit(self, written: Sequence[str] = ()) -> None:
        """Apply everything, or nothing; `written` are the tables, for the error of a missing permission."""

    def abort(self) -> None:
        """Discard everything."""


class Ahead(Protocol[T_co]):
    """A transaction that is begun, and read in, while the caller does something else."""

    def transaction(self) -> Transaction:
        """Wait for it, or raise why there is none."""

    def read(self) -> T_co:
        """Wait for what was read first in it, or raise what has failed."""


class Cluster(Reader, Protocol):
    """A cluster that can begin transactions."""

    def begin(self, timeout: timedelta, connections: int = 1) -> Transaction:
        """Start a tablet transaction."""

    def begin_ahead(
        self, timeout: timedelta, connections: int, reads: Callable[[Transaction], T]
    ) -> Ahead[T]:
        """Start a tablet transaction and read in it, while the caller does something else."""

    def join_ahead(
        self,
        transaction_id: str,
        connections: int,
        reads: Callable[[Transaction], T],
        *,
        proxy: str,
    ) -> Ahead[T]:
        """Do the same in a transaction that another process has started on a proxy, and this one ends."""

    def unpin(self) -> None:
        """Use another proxy from now on."""
