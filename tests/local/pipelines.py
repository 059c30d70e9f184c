"""A query without Spark: queue, consumer, target and ledger, and the protocol that commits its batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt.yson import dumps

from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.ledger import LEDGER_MARK, LEDGER_SCHEMA, LEDGER_VERSION, CommitLedger
from yt_exactly_once.commit.parts import TargetRows, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_table

if TYPE_CHECKING:
    from yt.wrapper import YtClient

    from yt_exactly_once.local import LocalCluster

PARTITIONS = 2
QUEUE_SCHEMA = [
    {"name": "value", "type": "int64"},
    {"name": "note", "type": "string"},
    {"name": "$timestamp", "type": "uint64"},
]
TARGET_SCHEMA = [
    {"name": "part", "type": "int64"},
    {"name": "row", "type": "int64"},
    {"name": "value", "type": "int64"},
]


@dataclass
class Pipeline:
    """One query that copies rows from a queue of two partitions.

    Attributes:
        cluster: where.
        folder: holds everything.
        query: id of the query.
        marked: whether the ledger carries its mark, as older ones do not.
        queue_name: name of the queue.
        target_name: name of the target.
        at: end of the last batch, per partition.
        batch: number of the next batch.
    """

    cluster: LocalCluster
    folder: str
    query: str = "query-1"
    marked: bool = True
    queue_name: str = "queue"
    target_name: str = "target"
    at: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    batch: int = 0

    def __post_init__(self) -> None:
        self.client: YtClient = self.cluster.client()
        self.connection = Connection(ClusterConfig(proxy=self.cluster.proxy_urls[0]))
        self.queue, self.consumer = f"{self.folder}/{self.queue_name}", f"{self.folder}/consumer"
        self.target = f"{self.folder}/{self.target_name}"
        self.ledger = f"{self.target}_ledger"

    def create(self) -> Pipeline:
        """Create all tables."""
        mark = {LEDGER_MARK: LEDGER_VERSION} if self.marked else {}
        for path, schema, attributes in (
            (self.queue, QUEUE_SCHEMA, {"tablet_count": PARTITIONS}),
            (self.target, TARGET_SCHEMA, {}),
            (self.ledger, LEDGER_SCHEMA, mark),
        ):
            ensure_table(self.connection, path, schema, attributes)
        if not self.client.exists(self.consumer):
            self.client.create("queue_consumer", self.consumer)
            self.client.register_queue_consumer(self.queue, self.consumer, vital=True)
        return self

    def feed(self, rows: int) -> None:
        """Append rows to every partition."""
        for partition in range(PARTITIONS):
            start = self.client.get_tablet_infos(self.queue, [partition])["tablets"][0][
                "total_row_count"
            ]
            values = [
                {"$tablet_index": partition, "value": index * 10 + partition, "note": "x"}
                for index in range(start, start + rows)
            ]
            self.client.insert_rows(self.queue, values)

    def run(self, rows: int, written: list[dict[str, Any]] | None = None) -> None:
        """Commit the next batch, of some rows of every partition."""
        ranges = tuple(
            PartitionRange(part, start, start + rows) for part, start in enumerate(self.at)
        )
        queue_id = self.client.get(f"{self.queue}/@id")
        name = self.client.get("//sys/@cluster_name")
        source = SourceRange(name, self.queue, self.consumer, ranges, queue_id)
        copied = [
            {"part": one.partition, "row": index, "value": index * 10 + one.partition}
            for one in ranges
            for index in range(one.start, one.end)
        ]
        payload = Payload(len(copied), b"".join(dumps(row) + b";" for row in written or copied))
        commit = BatchCommit(
            self.connection,
            CommitLedger(self.ledger, self.query, [self.target]),
            policy=RetryPolicy(attempts=1),
            emit=lambda _event, **_fields: None,
            transaction_timeout=timedelta(seconds=30),
            lanes=1,
            advance_consumer=True,
            mode="transactional",
        )
        given = TargetRows(self.target, [[payload]], "yson", payload.row_count)
        batch = MicroBatch(self.query, self.batch, "run-1", (source,))
        commit.commit(batch, whole([given]))
        self.at = [one.end for one in ranges]
        self.batch += 1
