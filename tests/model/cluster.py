"""The cluster of the model: sorted rows with versions, snapshots, and first committer wins.

Two halves. The functions on `Rows` are the server: what a commit checks and does. `ModelCluster` is the
client: it has the interface of `commit.cluster`, and turns every call that touches shared state into a
request of the script. Calls inside a transaction touch only its snapshot and its own buffer, so they
are answered on the spot; whether one of them fails was decided when the transaction was begun.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from tests.model.continuations import NO_FAILURE, Script
from yt_exactly_once.commit.cluster import Payload, Row, Transaction
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.config import PLAIN_WRITE, WriteOptions
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    RequestRefusedError,
    TransactionLostError,
)

T = TypeVar("T")

CLUSTER = "model"
CONSUMER = "//consumer"
LEDGER = "//ledger"
CLAIMS = "//ledger_claims"
PRODUCER = "//producer"

Rows = tuple[tuple[int, str], ...]
"""Version and value, as JSON, of every row that a sorted table can hold; an empty value is no row."""

Key = tuple[str, tuple[Any, ...]]
"""Path of a table, and the values of the key columns."""


class Put(NamedTuple):
    """Writes one sorted row.

    Attributes:
        counted: rows of the batch that it counts, if it is one of the ledger.
    """

    row: int
    value: str
    counted: int = 0


class Append(NamedTuple):
    """Appends payloads to an ordered table."""

    path: str
    payloads: tuple[bytes, ...]


class Snapshot(NamedTuple):
    """What a transaction sees.

    Attributes:
        failing: number of the next call inside a transaction that fails, times the number of ways in which
            it can, plus the way; negative for none. Only calls before the next request count.
    """

    transaction: str
    rows: Rows
    failing: int = NO_FAILURE


class Evaluated(NamedTuple):
    """What the rows of a batch are to do to the target.

    Attributes:
        effects: one per row.
        failing: see `Snapshot`; of a transaction that was begun before.
    """

    effects: tuple[str, ...]
    failing: int = NO_FAILURE


@dataclass(frozen=True)
class Lookup:
    """Reads the newest rows."""

    rows: tuple[int, ...]


@dataclass(frozen=True)
class Begin:
    """Begins a transaction.

    Attributes:
        number: how many this program began before.
    """

    number: int


@dataclass(frozen=True)
class Commit:
    """Asks for the commit of everything a transaction has buffered."""

    transaction: str
    snapshot: Rows
    writes: tuple[Put | Append, ...]

    @property
    def guards(self) -> tuple[tuple[int, int], ...]:
        """Rows that must not have changed since the transaction began, with their versions."""
        touched = sorted({write.row for write in self.writes if isinstance(write, Put)})
        return tuple((row, self.snapshot[row][0]) for row in touched)


class FindOwner(NamedTuple):
    """Reads who has claimed a partition, or what stands for one."""

    transaction: str
    partition: int


@dataclass(frozen=True)
class Join:
    """Takes over a transaction that tasks have opened, to read in it as of its begin."""

    transaction: str


LOCAL_FAILURES = (ClusterUnavailableError, TransactionLostError)
"""How a call inside a transaction may fail."""


@dataclass(frozen=True)
class Abort:
    """Asks for the end of a transaction into which tasks may have written."""

    transaction: str


LOST = "lost"
OK = "ok"
UNAVAILABLE = "unavailable"
CONFLICT = "conflict"
UNKNOWN = "unknown"
MISTOLD = "carried out, and answered with an error"


def conflicts(rows: Rows, guards: tuple[tuple[int, int], ...]) -> bool:
    """Tell whether another transaction changed one of the rows first."""
    return any(rows[row][0] != version for row, version in guards)


def put(rows: Rows, writes: Sequence[Put | Append]) -> Rows:
    """Return the rows after a commit; the last value of a row wins."""
    values = {write.row: write.value for write in writes if isinstance(write, Put)}
    if not values:
        return rows
    return tuple(
        (version + 1, values[number]) if number in values else (version, value)
        for number, (version, value) in enumerate(rows)
    )


def ledger_key(query: str, target: str) -> Key:
    return LEDGER, (query, target)


def consumer_key(queue: str, partition: int) -> Key:
    return CONSUMER, (CLUSTER, queue, partition)


def session_key(session_id: str) -> Key:
    return PRODUCER, (session_id,)


_STATISTICS = {
    **Tally().to_row(), "attempts": 1, "mode": "", "seconds": 0.0, "started_at": "", "committed_at": "",
}  # fmt: skip


def ledger_value(row: Mapping[str, Any]) -> str:
    """Return a ledger row as it is kept, without its wall time and statistics.

    They are for people, and would tell states apart that are the same.
    """
    return json.dumps({**row, **_STATISTICS}, sort_keys=True)


def consumer_value(offset: int) -> str:
    return json.dumps({"offset": offset})


def offset_in(rows: Rows, row: int) -> int:
    value = rows[row][1]
    return int(json.loads(value)["offset"]) if value else 0


class ModelCluster:
    """The `commit.cluster.Cluster` that the code under test is given.

    Args:
        index: number of every row that can be there.
        into_one: whether tasks may write into its transactions.
    """

    def __init__(self, script: Script, index: Mapping[Key, int], *, into_one: bool = False) -> None:
        self.script = script
        self.index = index
        self.into_one = into_one
        self.shares_transactions = True
        self.newest = ""
        self._begun = 0

    def lookup(self, path: str, keys: Sequence[Row]) -> list[Row | None]:
        if path == CLAIMS:
            return [self._owner(key) for key in keys]
        answer = self.script.ask(Lookup(self.numbers(path, keys)))
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        return [json.loads(value) if value else None for value in answer]

    def _owner(self, key: Row) -> Row | None:
        answer = self.script.ask(FindOwner(key["transaction_id"], key["partition"]))
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        return {"owner": answer} if answer else None

    def begin(self, timeout: timedelta, connections: int = 1) -> ModelTransaction:  # noqa: ARG002
        answer = self.script.ask(Begin(self._begun))
        self._begun += 1
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        self.newest = answer.transaction
        return ModelTransaction(self, answer)

    def begin_ahead(
        self, timeout: timedelta, connections: int, reads: Callable[[Transaction], T]
    ) -> ModelAhead[T]:
        try:
            begun = partial(_returned, self.begin(timeout, connections))
        except ClusterUnavailableError as error:
            begun = partial(_raised, error)
        return ModelAhead(begun, reads)

    def join_ahead(
        self,
        transaction_id: str,
        connections: int,  # noqa: ARG002 - the interface
        reads: Callable[[Transaction], T],
        *,
        proxy: str,
    ) -> ModelAhead[T]:
        assert proxy == "model"
        answer = self.script.ask(Join(transaction_id))
        if answer == LOST:
            begun = partial(_raised, TransactionLostError("The model ended the transaction"))
        else:
            begun = partial(_returned, ModelTransaction(self, answer))
        return ModelAhead(begun, reads)

    def joined(self, transaction_id: str, *, proxy: str) -> ModelTransaction:
        assert proxy == "model"
        return ModelTransaction(self, Snapshot(transaction_id, ()))

    def unpin(self) -> None:
        """See `Cluster.unpin`; every proxy of the model is as good as another."""

    def numbers(self, path: str, keys: Sequence[Row]) -> tuple[int, ...]:
        return tuple(self.index[path, tuple(key.values())] for key in keys)


class ModelTransaction:
    """The `commit.cluster.Transaction` of the model.

    Args:
        cluster: where it lives.
        snapshot: what it sees.
    """

    def __init__(self, cluster: ModelCluster, snapshot: Snapshot) -> None:
        self._cluster = cluster
        self._snapshot = snapshot
        self._writes: list[Put | Append] = []

    proxy = "model"

    @property
    def id(self) -> str:
        return self._snapshot.transaction

    def lookup(self, path: str, keys: Sequence[Row]) -> list[Row | None]:
        """See `Reader.lookup`: rows as of the begin."""
        self._call()
        values = (self._snapshot.rows[row][1] for row in self._cluster.numbers(path, keys))
        return [json.loads(value) if value else None for value in values]

    def lookup_columns(self, path: str, keys: bytes, columns: Sequence[str]) -> bytes:
        """See `Transaction.lookup_columns`; no target of the model has changes."""
        raise NotImplementedError

    def insert(self, path: str, rows: Sequence[Row]) -> None:
        """See `Transaction.insert`; ledgers and consumers are written this way."""
        self._call()
        for row in rows:
            if path == LEDGER:
                number = self._cluster.index[ledger_key(row["query_id"], row["target"])]
                counted = row["rows"] + row["rejected_rows"]
                self._writes.append(Put(number, ledger_value(row), counted))
            else:
                place = (row["queue_cluster"], row["queue_path"], row["partition_index"])
                self._writes.append(
                    Put(self._cluster.index[path, place], consumer_value(row["offset"]))
                )

    def write(
        self,
        path: str,
        payloads: Sequence[Payload],
        wire: str,  # noqa: ARG002 - the interface
        options: WriteOptions = PLAIN_WRITE,  # noqa: ARG002 - the interface
    ) -> None:
        """See `Transaction.write`; an effect may as well be a deletion."""
        self._call()
        self._writes.append(Append(path, tuple(payload.data for payload in payloads)))

    def kept_alive(self, every: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """See `Transaction.kept_alive`; a lease ends whenever the explorer chooses."""
        return nullcontext()

    def side_by_side(self, calls: Sequence[Callable[[Transaction], T]]) -> list[T]:
        """See `Transaction.side_by_side`; their order makes no difference."""
        return [call(self) for call in calls]

    def commit(self, _written: Sequence[str] = ()) -> None:
        snapshot = self._snapshot
        answer = self._cluster.script.ask(
            Commit(snapshot.transaction, snapshot.rows, tuple(self._writes))
        )
        if answer == CONFLICT:
            raise ConflictError("The model refused the commit", transaction=self.id)
        if answer == UNKNOWN:
            raise CommitOutcomeUnknownError("The model lost the answer", transaction=self.id)
        if answer == MISTOLD:
            refusal = RequestRefusedError("The model mistold the outcome")
            raise CommitOutcomeUnknownError("Refused", transaction=self.id) from refusal
        if answer == LOST:
            raise TransactionLostError("The model ended the transaction", transaction=self.id)

    def abort(self) -> None:
        """See `Transaction.abort`; what nobody has sent leaves no trace."""
        if self._cluster.into_one:
            self._cluster.script.ask(Abort(self.id))

    def _call(self) -> None:
        script = self._cluster.script
        number = script.local()
        failing, kind = divmod(script.failing, len(LOCAL_FAILURES))
        if number == failing:
            raise LOCAL_FAILURES[kind]("The model lost a request", transaction=self.id)


class ModelAhead(Generic[T]):
    """The `commit.cluster.Ahead` of the model.

    What is done ahead touches only the snapshot and the buffer of the transaction, so it may as well be done
    when it is waited for.

    Args:
        begun: returns the transaction, or raises why there is none.
    """

    def __init__(self, begun: Callable[[], Transaction], reads: Callable[[Transaction], T]) -> None:
        self.transaction = begun
        self.read = cache(lambda: reads(begun()))


def _returned(value: T) -> T:
    return value


def _raised(error: Exception) -> Any:
    raise error
