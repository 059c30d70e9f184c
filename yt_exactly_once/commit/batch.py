"""A micro-batch as the protocol sees it: its query, its number, and the rows of each queue it covers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class PartitionRange(NamedTuple):
    """Rows of one queue partition, from `start` on and before `end`."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class SourceRange:
    """What a batch reads from one queue.

    Attributes:
        cluster: name of the queue's cluster, as in consumer rows.
        consumer: path of the consumer; `None` when the query reads without one.
        partitions: sorted by partition, including those that do not move.
        queue_id: object id of the queue's table, empty when not known; a queue that was recreated
            under the same path counts its rows from 0 again.
        cluster_id: object id of the cluster's `//sys`, empty when not known; two clusters may have one name.
    """

    cluster: str
    queue: str
    consumer: str | None
    partitions: tuple[PartitionRange, ...]
    queue_id: str = ""
    cluster_id: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identity of the source among those that the query has or had."""
        return self.cluster, self.queue, self.consumer or "", self.queue_id

    @property
    def moves(self) -> bool:
        """Whether any partition has rows in this batch."""
        return any(one.end != one.start for one in self.partitions)


@dataclass(frozen=True)
class TargetColumns:
    """The columns that a batch writes into a target.

    Attributes:
        names: sorted, with the members of structs.
        is_recorded: whether the ledger entry has them. Then another run of the query must have them too.
    """

    names: tuple[str, ...] = ()
    is_recorded: bool = False


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of one query.

    Attributes:
        query_id: id of the query, kept in its checkpoint over restarts.
        batch_id: number of the batch; a replay has the same one.
        run_id: id of this run of the query; every restart has a new one.
        sources: the queues among its sources.
        stateful: whether the query keeps state, which a replay must build again from the same rows.
        output_mode: `append`, `update` or `complete`; `None` where it cannot be known.
        others: what the batch reads from sources that are no queues, see `OtherSources.to_text`; empty
            without any.
        reads_again: whether Spark computes the rows again even if the sink skips the replay.
        shares_tasks: whether one Spark task reads several queue partitions.
        checkpoint: location of the query's checkpoint, as errors may show it; empty without one.
        query_name: name of the query in Spark (`queryName`); empty without one.
    """

    query_id: str
    batch_id: int
    run_id: str
    sources: tuple[SourceRange, ...] = field(default=())
    stateful: bool = False
    output_mode: str | None = None
    others: str = ""
    reads_again: bool = False
    shares_tasks: bool = False
    checkpoint: str = ""
    query_name: str = ""

    @property
    def where(self) -> dict[str, Any]:
        """What places an error; see `ExactlyOnceError`. Nothing before the query has started."""
        return {"query": self.query_id, "batch": self.batch_id} if self.query_id else {}

    @property
    def needs_its_rows(self) -> bool:
        """Whether a replay reads the rows of the batch, so that no consumer may pass them before."""
        return self.stateful or self.reads_again

    @property
    def moves(self) -> bool:
        """Whether any queue partition has rows in this batch."""
        return any(source.moves for source in self.sources)
