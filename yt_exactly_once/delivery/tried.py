"""What was tried of a batch that Spark plans in one process and commits in another, or that a job ends.

Such a batch fails with its query, and the next run plans it again. So the way that has failed is kept in the
table of claims, for a day. It decides how fast a batch is written, and never what is written: without it, a
batch is tried as if for the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.config import LEASE
from yt_exactly_once.delivery.route import Way
from yt_exactly_once.errors import ExactlyOnceError, TasksRefusedError, TransactionTooOldError

if TYPE_CHECKING:
    from yt_exactly_once.commit.cluster import Cluster
    from yt_exactly_once.delivery.route import Facts

_PLANNED, _FAILED = "planned", "failed"


@dataclass(frozen=True)
class Tried:
    """Who was to send the rows of the newest batch of a query, of those that tasks were to send.

    Attributes:
        has_failed: whether that has failed, and the other way is left.
        lasting: why tasks cannot send later batches either; empty if nothing speaks against that.
    """

    query_id: str
    target: str
    batch: int
    by: SentBy
    has_failed: bool = False
    lasting: str = ""

    @classmethod
    def read(cls, cluster: Cluster, table: str, query_id: str, target: str) -> Self | None:
        """Return what is kept; `None` if there is nothing."""
        (row,) = cluster.lookup(table, [_key(query_id, target)])
        if row is None:
            return None
        by, batch, state, lasting = str(row["owner"]).split(" ", 3)
        return cls(query_id, target, int(batch), SentBy(by), state == _FAILED, lasting)

    def keep(self, cluster: Cluster, table: str) -> None:
        """Keep it in the place of what was kept before."""
        state = _FAILED if self.has_failed else _PLANNED
        text = f"{self.by} {self.batch} {state} {self.lasting}"
        transaction = cluster.begin(LEASE)
        try:
            transaction.insert(table, [{**_key(self.query_id, self.target), "owner": text}])
        except BaseException:
            transaction.abort()
            raise
        transaction.commit([table])

    def failed(self, error: ExactlyOnceError) -> Self:
        """Return the same once it has failed."""
        lasts = isinstance(error, TasksRefusedError | TransactionTooOldError)
        lasting = f"{type(error).__name__}: {error.what}" if lasts else self.lasting
        return replace(self, has_failed=True, lasting=lasting)

    def add_to(self, facts: Facts, batch: int) -> Facts:
        """Return the facts of a batch with what was tried of it, or of one before."""
        if self.lasting.startswith(TransactionTooOldError.__name__):
            facts = replace(facts, outlived=True)
        elif self.lasting:
            facts = replace(facts, refusal=self.lasting)
        if self.batch != batch:
            return facts
        if (self.by is SentBy.TASKS) is self.has_failed:
            return replace(facts, tried=frozenset({Way.JOIN}))
        tried = frozenset({Way.COLLECT}) if self.has_failed else facts.tried
        return replace(facts, too_large=True, tried=tried)


def _key(query_id: str, target: str) -> dict[str, Any]:
    """Return a key that no claim has: no transaction, and no plan, is called as a query."""
    return {"transaction_id": query_id, "target": target, "partition": -1}
