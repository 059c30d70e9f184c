"""Sources with names, which Spark logs in version 2 of its offset log: added, removed and reordered."""

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.flows import QUEUE_TYPES, Queue, columns, create_table
from tests.integration.streams import TO_THE_END, finish, forget_last_batch
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.spark.compat.spark_log import require_commit
from yt_exactly_once.spark.compat.versions import SPARK

pytestmark = pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 is the first with named sources")

VERSION = "spark.sql.streaming.offsetLog.formatVersion"
SINK_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
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
        if self.spark.conf.get(EVOLUTION) == "true":
            reader = reader.name(name)
        reader = (
            reader.option("proxy", self.proxy)
            .option("consumer_path", queue.consumer)
            .option("include_service_columns", "true")
            .option("max_rows_per_partition", 15)
        )
        return reader.load(queue.path)

    def run(self, *names: str, write: Any = None, named: str = "") -> None:
        """Add rows to every queue, and run the query with the sources of these names, in this order."""
        for queue in self.queues.values():
            for partition in range(2):
                queue.append(20, partition)
        frame = reduce(DataFrame.union, [self.source(name) for name in names])
        frame = frame.select(*QUEUE_TYPES)
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**TO_THE_END)
        if named:
            writer._jwrite = writer._jwrite.name(named)
        target = f"{self.folder}/target"
        if self.way == "function":
            sink = TransactionalSink(target, proxy=self.proxy)
            finish(writer.foreachBatch(write or sink).start())
        else:
            finish(writer.format("yt").option("proxy", self.proxy).start(target))

    def logged(self, folder: str) -> dict[int, str]:
        """Return what Spark has logged of each batch."""
        files = (self.checkpoint / folder).iterdir()
        return {int(file.name): file.read_text() for file in files if file.name.isdecimal()}

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
    spark.conf.set(VERSION, "2")
    spark.conf.set(EVOLUTION, "true")
    yield Evolving(
        spark, client, tmp, tmp_path / "checkpoint", cluster.proxy_urls[0], request.param
    )
    for setting in (SINK_EVOLUTION, EVOLUTION, VERSION):
        spark.conf.unset(setting)


def test_replay_is_exact_while_sources_are_added_removed_and_reordered(evolving):
    """Around each change Spark forgets a batch, which then comes again with the same rows."""
    evolving.run("orders", "payments")
    assert evolving.logged("offsets")[0].startswith("v2\n")
    evolving.assert_exact("orders", "payments")
    forget_last_batch(evolving.checkpoint)
    evolving.run("returns", "payments", "orders")
    evolving.run("orders", "returns")
    forget_last_batch(evolving.checkpoint)
    evolving.run("orders", "payments", "returns")
    evolving.assert_exact("orders", "payments", "returns")


@pytest.mark.further
@pytest.mark.parametrize("evolving", ["function"], indirect=True)
def test_source_that_is_removed_before_its_batch_is_written_is_refused(evolving):
    """Spark would run the batch without its rows, and its consumer would move past them."""
    evolving.run("orders", "payments")
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        evolving.run("orders", "payments", write=lambda _frame, number: number / 0)
    with pytest.raises(StreamingQueryException, match="with the source payments, which the query"):
        evolving.run("orders")
    evolving.run("orders", "payments")
    evolving.assert_exact("orders", "payments")


@pytest.mark.further
def test_log_of_version_2_without_names_is_read(evolving, spark):
    """Spark then names sources by their place. A checkpoint keeps the version that it has begun with."""
    spark.conf.set(EVOLUTION, "false")
    for version in ("2", "1"):
        spark.conf.set(VERSION, version)
        evolving.run("orders", "payments")
        forget_last_batch(evolving.checkpoint)
    evolving.run("orders", "payments")
    evolving.assert_exact("orders", "payments")
    assert {text[:2] for text in evolving.logged("offsets").values()} == {"v2"}


@pytest.mark.further
def test_sink_with_a_name_is_exact_over_a_replay(evolving, spark):
    """Spark then logs commits in version 3. Only Scala has names of sinks yet."""
    spark.conf.set(SINK_EVOLUTION, "true")
    for name in ("one", "two"):
        evolving.run("orders", "payments", named=name)
        forget_last_batch(evolving.checkpoint)
    evolving.run("orders", "payments", named="two")
    evolving.assert_exact("orders", "payments")
    commits = evolving.logged("commits")
    assert {text[:2] for text in commits.values()} == {"v3"}
    for number, text in commits.items():
        require_commit(number, text)
