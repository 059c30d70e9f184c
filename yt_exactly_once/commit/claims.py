"""Claims: which attempt of a task sends the rows of a Spark partition into an open transaction.

A task cannot take back what it has sent, and Spark may run it more than once. So before its first row an
attempt writes a row of its own, in a short transaction of its own. The first one to commit is the owner.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt_exactly_once.config import LEASE
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    RepeatedTaskError,
    TransactionLostError,
)
from yt_exactly_once.retrying import run_attempts

if TYPE_CHECKING:
    from yt_exactly_once.commit.cluster import Cluster
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


@dataclass(frozen=True)
class Claim:
    """The claim of one attempt of a task to one Spark partition, of one transaction and target.

    It rests on what the ledger rests on: a transaction reads the cluster as of its start, and is refused if
    another one has committed the same row since. So whoever commits first finds no row, and everybody else
    finds a row or is refused.

    Attributes:
        transaction_id: of the transaction that the rows are sent into.
        owner: the attempt, by a name that no other one has.
    """

    transaction_id: str
    target: str
    partition: int
    owner: str

    def take(self, cluster: Cluster, table: str, policy: RetryPolicy, emit: Emitter) -> None:
        """Become the owner of the partition.

        An attempt without an answer is repeated: if it has landed, the next one finds it.

        Raises:
            RepeatedTaskError: another attempt is the owner. It may have sent rows.
            RetriesExhaustedError: whether this attempt is the owner is unknown. It must not send rows.
        """
        owner = run_attempts(lambda _: self._owner(cluster, table), policy, emit)
        if owner != self.owner:
            raise RepeatedTaskError(
                f"The task of Spark partition {self.partition} may not write: another attempt of it, "
                f"{owner}, has claimed the partition, and may have written rows into the same transaction",
                remedy="Nothing is to be done: if the other attempt has failed, the sink writes the batch "
                "through the driver. If tasks fail often, use sent_by='driver'",
                transaction=self.transaction_id,
                target=self.target,
            )

    def _owner(self, cluster: Cluster, table: str) -> str:
        """Return the owner of the partition, who is this attempt if there was none."""
        row = asdict(self)
        key = {name: value for name, value in row.items() if name != "owner"}
        try:
            transaction = cluster.begin(LEASE)
            try:
                (found,) = transaction.lookup(table, [key])
                if found is None:
                    transaction.insert(table, [row])
            except BaseException:
                transaction.abort()
                raise
            if found is not None:
                transaction.abort()
                return str(found["owner"])
            transaction.commit([table])
        except (ClusterUnavailableError, CommitOutcomeUnknownError, TransactionLostError):
            cluster.unpin()
            raise
        return self.owner
