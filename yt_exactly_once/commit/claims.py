"""Claims: which attempt of a task sends the rows of a Spark partition into an open transaction.

A task cannot take back what it has sent, and Spark may run it more than once. So before its first row an
attempt writes a row of its own, in a short transaction of its own. The first one to commit is the owner.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import uuid4

from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.config import LEASE
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    RepeatedTaskError,
    TransactionLostError,
)
from yt_exactly_once.retrying import run_attempts

if TYPE_CHECKING:
    from yt_exactly_once.commit.cluster import Cluster, Row
    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.observability import Emitter

KEPT = timedelta(days=1)
"""How long the table keeps a claim: rows expire by themselves."""

HOLD = KEPT / 2
"""How long the driver relies on claims; the rest is for clocks that differ."""

CLAIMS_SCHEMA: list[dict[str, Any]] = [
    {"name": "transaction_id", "type": "string", "sort_order": "ascending", "required": True},
    {"name": "target", "type": "string", "sort_order": "ascending", "required": True},
    {"name": "partition", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "owner", "type": "string", "required": True},
]
"""Columns of the table of claims."""

_MILLISECONDS = int(KEPT.total_seconds() * 1000)

CLAIMS_ATTRIBUTES: dict[str, Any] = {
    "min_data_versions": 0,
    "max_data_versions": 1,
    "min_data_ttl": _MILLISECONDS,
    "max_data_ttl": _MILLISECONDS,
}
"""Its attributes: rows are removed after `KEPT`."""


def seconds_since(moment: float) -> float:
    """Return the seconds since a moment on the monotonic clock."""
    return time.monotonic() - moment


_OF_DRIVER = -1
"""No Spark partition: what the driver claims, to see that it can."""

_OF_ALL = -2
"""The same: what the attempt claims that has opened a transaction for all tasks."""


class Plan(NamedTuple):
    """A batch whose tasks open their transaction themselves: the process that plans it does not live on.

    Attributes:
        id: which no other plan has, of the same batch neither.
        made_at: seconds since the epoch, by the clock of the driver.
    """

    id: str
    made_at: float

    @classmethod
    def make(cls) -> Self:
        """Return a new one."""
        return cls(str(uuid4()), time.time())

    @property
    def age(self) -> float:
        """Seconds since it was made, on the machine that has made it."""
        return time.time() - self.made_at


@dataclass(frozen=True)
class Claims:
    """The claims of the tasks of one batch and target.

    They rest on what the ledger rests on: a transaction reads the cluster as of its start, and is refused if
    another one has committed the same row since. So whoever commits first finds no row, and everybody else
    finds a row or is refused. What has no answer is tried again: if it has landed, the next try finds it.

    Attributes:
        table: where they are.
        batch: the id of the transaction that the rows are sent into, or of the plan whose tasks open one.
    """

    table: str
    batch: str
    target: str

    def take(
        self, cluster: Cluster, partition: int, attempt: str, policy: RetryPolicy, emit: Emitter
    ) -> None:
        """Make an attempt of a task the owner of its Spark partition.

        Args:
            attempt: its name, which no other one has.

        Raises:
            RepeatedTaskError: another attempt is the owner. It may have sent rows.
            RetriesExhaustedError: whether this attempt is the owner is unknown. It must not send rows.
        """
        owner = run_attempts(lambda _: self._owner(cluster, partition, attempt), policy, emit)
        if owner != attempt:
            raise RepeatedTaskError(
                f"The task of Spark partition {partition} may not write: another attempt of it, {owner}, has "
                "claimed the partition, and may have written rows into the same transaction",
                remedy="Nothing is to be done: if the other attempt has failed, the sink writes the batch "
                "through the driver. If tasks fail often, use sent_by='driver'",
                transaction=self.batch,
                target=self.target,
            )

    def try_out(self, cluster: Cluster, policy: RetryPolicy, emit: Emitter) -> None:
        """Claim no partition, to see that this user can claim one."""
        self.take(cluster, _OF_DRIVER, "driver", policy, emit)

    def opened(self, cluster: Cluster) -> OpenTransaction | None:
        """Return the transaction that the tasks share, if one of them has opened it."""
        (row,) = cluster.lookup(self.table, [self._key(_OF_ALL)])
        return None if row is None else OpenTransaction(*str(row["owner"]).split())

    def open(self, cluster: Cluster, policy: RetryPolicy, emit: Emitter) -> OpenTransaction:
        """Return the transaction that the tasks share; open it, if none of them has.

        There is one, since who opens it claims that. Others end theirs.

        Raises:
            RetriesExhaustedError: which transaction it is is unknown.
        """
        known = run_attempts(lambda _: self.opened(cluster), policy, emit)
        if known is not None:
            return known
        mine = run_attempts(lambda _: cluster.begin(LEASE), policy, emit)
        name = f"{mine.id} {mine.proxy}"
        try:
            owner = run_attempts(lambda _: self._owner(cluster, _OF_ALL, name), policy, emit)
        except BaseException:
            mine.abort()
            raise
        if owner != name:
            mine.abort()
        return OpenTransaction(*owner.split())

    def _key(self, partition: int) -> Row:
        return {"transaction_id": self.batch, "target": self.target, "partition": partition}

    def _owner(self, cluster: Cluster, partition: int, name: str) -> str:
        """Return who owns a partition, which is the given one if nobody did."""
        key = self._key(partition)
        try:
            transaction = cluster.begin(LEASE)
            try:
                (found,) = transaction.lookup(self.table, [key])
                if found is None:
                    transaction.insert(self.table, [{**key, "owner": name}])
            except BaseException:
                transaction.abort()
                raise
            if found is not None:
                transaction.abort()
                return str(found["owner"])
            transaction.commit([self.table])
        except (ClusterUnavailableError, CommitOutcomeUnknownError, TransactionLostError):
            cluster.unpin()
            raise
        return name
