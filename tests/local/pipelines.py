"""A query without Spark: queue, consumer, target and ledger, and the protocol that commits its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from yt.wrapper import YtClient
from yt.yson import dumps

from tests.contract.tables import columns
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.entry import LEDGER_VERSION
from yt_exactly_once.commit.ledger import LEDGER_MARK, LEDGER_SCHEMA, CommitLedger
from yt_exactly_once.commit.parts import TargetRows, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.sink.complete import CompleteResult
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_table

PARTITIONS = 2
QUEUE_SCHEMA = columns(**{"value": "int64", "note": "string", "$timestamp": "uint64"})
TARGET_SCHEMA = columns(part="int64", row="int64", value="int64")


@dataclass
class Pipeline:
    """One query that copies rows from a queue of two partitions.

    Attributes:
        marked: whether the ledger carries its mark, as older ones do not.
        digest: whether the ledger keeps digests of rows.
        mode: delivery mode, as the ledger tells it.
        others: `MicroBatch.others` of the next batch.
        at: end of the last batch, per partition.
    """

    cluster: LocalCluster
    folder: str
    query: str = "query-1"
    marked: bool = True
    queue_name: str = "queue"
    target_name: str = "target"
    target_schema: Sequence[dict[str, Any]] = tuple(TARGET_SCHEMA)
    digest: bool = False
    mode: str = "transactional"
    others: str = ""
    at: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    batch: int = 0

    def __post_init__(self) -> None:
        self.client: YtClient = self.cluster.client()
        self.connection = Connection(ClusterConfig(proxy=self.cluster.proxy_urls[0]))
        self.queue, self.consumer = f"{self.folder}/{self.queue_name}", f"{self.folder}/consumer"
        self.target = f"{self.folder}/{self.target_name}"
        self.ledger = f"{self.target}_ledger"

    def create(self) -> Pipeline:
        mark = {LEDGER_MARK: LEDGER_VERSION} if self.marked else {}
        for path, schema, attributes in (
            (self.queue, QUEUE_SCHEMA, {"tablet_count": PARTITIONS}),
            (self.target, self.target_schema, {}),
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
        """Commit the next batch, of some rows of every partition.

        Args:
            rows: how many.
            written: what really gets into the target, in the place of the rows that the ledger counts.
        """
        source, copied = self.next(rows)
        self.commit([source], copied, written)

    def next(self, rows: int) -> tuple[SourceRange, list[dict[str, Any]]]:
        """Return the next rows of every partition, as a range and as rows of the target."""
        ranges = tuple(
            PartitionRange(part, start, start + rows) for part, start in enumerate(self.at)
        )
        self.at = [one.end for one in ranges]
        queue_id = self.client.get(f"{self.queue}/@id")
        name = self.client.get("//sys/@cluster_name")
        copied = [
            {"part": one.partition, "row": index, "value": index * 10 + one.partition}
            for one in ranges
            for index in range(one.start, one.end)
        ]
        return SourceRange(name, self.queue, self.consumer, ranges, queue_id), copied

    def commit(
        self,
        sources: Sequence[SourceRange],
        counted: Sequence[dict[str, Any]],
        written: Sequence[dict[str, Any]] | None = None,
        *,
        targets: Sequence[str] = (),
        complete: CompleteResult | None = None,
    ) -> None:
        """Commit the next batch.

        Args:
            written: rows that really get into the target; default: the same.
            targets: where they go, all of them to each; default: the target.
            complete: see `TargetRows`.
        """
        paths = [*targets] or [self.target]
        commit = BatchCommit(
            CommitLedger(self.ledger, self.query, sorted(paths)),
            MicroBatch(self.query, self.batch, "run-1", tuple(sources), others=self.others),
            self.connection,
            policy=RetryPolicy(attempts=1),
            emit=lambda _event, **_fields: None,
            connections=1,
            advance_consumer=True,
            mode=self.mode,
        )
        real = counted if written is None else written
        payload = Payload(len(counted), b"".join(dumps(row) + b";" for row in real))
        given = [
            TargetRows(
                path,
                [[payload]],
                "yson",
                len(counted),
                complete=complete,
                digest=self.digest_of(counted) if self.digest else None,
            )
            for path in paths
        ]
        commit.commit(whole(given))
        self.batch += 1

    def digest_of(self, rows: Sequence[dict[str, Any]]) -> int:
        """Return the digest of rows of the target, as a sink has it from Spark."""
        table = TableSchema.from_yt(self.target_schema)
        batch = pa.RecordBatch.from_pylist([*rows], schema=arrow_schema_of(table))
        return added(0, row_hashes(batch, table.columns))
