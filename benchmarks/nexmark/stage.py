"""Where everything is, and how a query runs: queues, consumers, tables, the DataFrame and its sink.

The driver that is killed and the one that is timed run a query in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from yt.wrapper.format import ArrowFormat

from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import LATENESS_SECONDS, SIDE_ROWS, STREAMS, Query
from yt_exactly_once import Target, TransactionalSink, create_table
from yt_exactly_once.config import ClusterConfig, DeliveryMode
from yt_exactly_once.demo.schedule import rows_per_batch
from yt_exactly_once.operations.creating import create_consumer, create_queue
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from yt.wrapper import YtClient

    from yt_exactly_once.observability import Listener

ROOT = "//home/nexmark"
PARTITIONS = 4
"""Of each queue, and tablets of each ordered table."""

TRANSACTIONAL, IDEMPOTENT = DeliveryMode.TRANSACTIONAL.value, DeliveryMode.IDEMPOTENT.value
AT_LEAST_ONCE = DeliveryMode.AT_LEAST_ONCE.value

_ROWS_PER_REQUEST = 20_000


def modes_of(query: Query) -> list[str]:
    """Return the modes that take a query."""
    if query.pattern:
        # Rows that name their tables are for this mode.
        return [TRANSACTIONAL]
    return [TRANSACTIONAL, *([IDEMPOTENT] if query.one_to_one else []), AT_LEAST_ONCE]


@dataclass(frozen=True)
class Run:
    """One run of a query, as a driver is told of it.

    Attributes:
        proxy: address of the cluster.
        folder: for checkpoints.
        name: of the run, a part of all its paths.
        rows: that a batch has of a queue partition at most, by stream.
    """

    proxy: str
    folder: str
    name: str
    rows: dict[str, int]

    @classmethod
    def of(cls, events: Events, kills: int, **more: str) -> Self:
        """Return a run with batches that suffice for so many kills.

        Raises:
            ConfigError: there are too few events.
        """
        rows = {
            name: rows_per_batch(-(-table.num_rows // PARTITIONS), kills)
            for name, table in events.by_name().items()
        }
        return cls(**more, rows=rows)

    def larger(self, factor: int) -> Self:
        """Return the run with batches of so many times as many rows."""
        return replace(self, rows={name: factor * count for name, count in self.rows.items()})

    def home(self, query: Query, writer: str) -> str:
        """Return where the tables of a contender are."""
        return f"{ROOT}/{query.name}/{self.name}/{writer}"

    def checkpoint(self, query: Query, writer: str) -> str:
        """Return where Spark keeps the progress of a contender."""
        return str(Path(self.folder) / "checkpoints" / query.name / self.name / writer)


def fill_queues(client: YtClient, proxy: str, events: Events) -> None:
    """Create a queue for each stream, and deal the events out over its partitions in their order."""
    cluster = Connection(ClusterConfig(proxy=proxy))
    for name, table in events.by_name().items():
        create_queue(f"{ROOT}/{name}", table.schema, tablet_count=PARTITIONS, connection=cluster)
        partitions = [number % PARTITIONS for number in range(table.num_rows)]
        rows = table.append_column("$tablet_index", pa.array(partitions, pa.int64()))
        for start in range(0, rows.num_rows, _ROWS_PER_REQUEST):
            sink = BytesIO()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows.slice(start, _ROWS_PER_REQUEST).combine_chunks())
            # In a transaction the client does not repeat the request, which could append twice.
            with client.Transaction(type="tablet"):
                client.insert_rows(
                    f"{ROOT}/{name}", BytesIO(sink.getvalue()), format=ArrowFormat(), raw=True
                )


def frame_of(spark: SparkSession, query: Query, run: Run, writer: str) -> DataFrame:
    """Return the rows of a query.

    Who is none of our modes reads without a consumer, as it moves none.
    """
    cluster = Connection(ClusterConfig(proxy=run.proxy))
    spark.range(SIDE_ROWS).selectExpr(
        "id AS key", "CAST(id AS STRING) AS value"
    ).createOrReplaceTempView("side_input")
    for view in query.views:
        queue = f"{ROOT}/{STREAMS[view]}"
        reader = (
            spark.readStream.format("yt")
            .option("proxy", run.proxy)
            .option("starting_offsets", "earliest")
            .option("max_rows_per_partition", run.rows[STREAMS[view]])
            .option("include_service_columns", writer == IDEMPOTENT)
        )
        if writer in modes_of(query):
            consumer = f"{run.home(query, writer)}/{view}_consumer"
            create_consumer(consumer, queue, vital=False, connection=cluster)
            reader = reader.option("consumer_path", consumer)
        rows = reader.load(queue)
        if query.waits:
            rows = rows.withWatermark("dateTime", f"{LATENESS_SECONDS} seconds")
        rows.createOrReplaceTempView(view)
    return spark.sql(query.for_spark(with_origin=writer == IDEMPOTENT))


def sink_of(
    query: Query, run: Run, mode: str, frame: DataFrame, listener: Listener | None = None
) -> TransactionalSink:
    """Return the sink of a query, and create its table."""
    path = f"{run.home(query, mode)}/{query.path}"
    tablets = None if query.keys else PARTITIONS
    if query.pattern:
        target = Target(path, create={"tablet_count": tablets})
    else:
        target = Target(path)
        create_table(
            path, frame.schema, key_columns=query.keys, tablet_count=tablets, proxy=run.proxy
        )
    return TransactionalSink(target, mode=mode, proxy=run.proxy, listener=listener)


def tables_of(client: YtClient, query: Query, run: Run, mode: str) -> list[str]:
    """Return the tables that a query has written."""
    home = run.home(query, mode)
    if not query.pattern:
        return [f"{home}/{query.path}"]
    depth = query.path.count("/") + 1
    found: list[Any] = list(client.search(home, node_type="table"))
    return sorted(path for path in found if path.removeprefix(home).count("/") == depth)
