"""Sources with names, which Spark logs in version 2 of its offset log: added, removed and reordered."""

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.flows import QUEUE_TYPES, Queue, columns, create_table
from tests.integration.streams import TO_THE_END, finish, forget_last_batch
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.spark.versions import SPARK

pytestmark = pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 is the first with named sources")

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@dataclass
class Evolving:
    """A query that passes on what is in some queues, each a source with a name."""

    spark: Any
    client: Any
    folder: str
    checkpoint: Path
    proxy: str
    way: str
    queues: dict[str, Queue] = field(default_factory=dict)

    def source(self, name: str) -> DataFrame:
        if name not in self.queues:
            self.queues[name] = Queue.filled(self.client, self.folder, 20, name, partitions=2)
        queue = self.queues[name]
        reader = self.spark.readStream.format("yt")
        reader = reader.name(name)
        reader = (
            reader.option("proxy", self.proxy)
            .option("consumer_path", queue.consumer)
            .option("include_service_columns", "true")
            .option("max_rows_per_partition", 15)
        )
        return reader.load(queue.path)

    def run(self, *names: str) -> None:
        """Add rows to every queue, and run the query with the sources of these names, in this order."""
        for queue in self.queues.values():
            for partition in range(2):
                queue.append(20, partition)
        frame = reduce(DataFrame.union, [self.source(name) for name in names])
        frame = frame.select(*QUEUE_TYPES)
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**TO_THE_END)
        target = f"{self.folder}/target"
        if self.way == "function":
            sink = TransactionalSink(target, proxy=self.proxy)
            finish(writer.foreachBatch(sink).start())
        else:
            finish(writer.format("yt").option("proxy", self.proxy).start(target))

    def assert_exact(self, *names: str) -> None:
        """The target has every row of the queues of these names once, and their consumers are at the end."""
        found = Counter(
            row["id"] for row in self.client.select_rows(f"id from [{self.folder}/target]")
        )
        rows = [row["id"] for name in names for part in self.queues[name].rows for row in part]
        wanted = Counter(rows)
        assert (found - wanted, wanted - found) == (Counter(), Counter())
        for name in names:
            queue = self.queues[name]
            assert queue.stored(queue.consumer) == queue.ends()


@pytest.fixture(params=first_of(["format", "function"]))
def evolving(request, spark, client, cluster, tmp, tmp_path):
    register_source(spark)
    create_table(client, f"{tmp}/target", columns(QUEUE_TYPES))
    spark.conf.set(EVOLUTION, "true")
    yield Evolving(
        spark, client, tmp, tmp_path / "checkpoint", cluster.proxy_urls[0], request.param
    )
    spark.conf.unset(EVOLUTION)


def test_replay_is_exact_while_sources_are_added_removed_and_reordered(evolving):
    """Around each change Spark forgets a batch, which then comes again with the same rows."""
    evolving.run("orders", "payments")
    assert (evolving.checkpoint / "offsets" / "0").read_text().startswith("v2\n")
    evolving.assert_exact("orders", "payments")
    for names in (("payments", "orders"), ("orders", "payments", "returns")):
        forget_last_batch(evolving.checkpoint)
        evolving.run(*names)
    evolving.run("returns", "orders")
    forget_last_batch(evolving.checkpoint)
    evolving.run("returns", "payments", "orders")
    evolving.assert_exact("orders", "payments", "returns")
