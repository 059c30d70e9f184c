"""Spark Connect: a server of its own, and a client without a JVM; what works there and what is refused."""

import os
import subprocess
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.flows import (
    AGGREGATION,
    QUEUE_TYPES,
    STATELESS,
    Query,
    Queue,
    columns,
    create_table,
    ledger_entries,
)
from tests.integration.connect_server import ROWS_PER_PARTITION, Client, Flow, Server
from tests.integration.streams import forget_last_batch
from yt_exactly_once.spark.compat.versions import SPARK

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_200)]

BARE = """
import sys
from importlib.util import find_spec
from pyspark.sql import SparkSession
assert find_spec("yt_exactly_once") is None and find_spec("yt") is None
address, proxy, queue, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
rows = spark.readStream.format("yt").option("proxy", proxy).load(queue)
writer = rows.writeStream.format("yt").option("proxy", proxy).trigger(availableNow=True)
query = writer.option("checkpointLocation", checkpoint).start(target)
assert query.awaitTermination(280)
read = spark.read.format("yt").option("proxy", proxy).load(queue)
for _ in range(2):
    job = read.write.format("yt").option("proxy", proxy).mode("append")
    job.option("application", "bare").option("version", 1).save(target)
print(read.count())
"""
"""A client that has `pyspark-client` alone: it streams, writes a job twice, and reads."""

MODES = ["transactional", "idempotent", "at-least-once"]


@pytest.fixture(scope="module")
def connect(tmp_path_factory, interpreter) -> Iterator[Client]:
    """A client of a server."""
    with Server(tmp_path_factory.mktemp("connect"), interpreter) as server:
        yield server.client()


@pytest.fixture
def flow(connect, client, cluster, tmp, tmp_path):
    """Make a flow."""

    def make(query: Query = STATELESS, *, is_sorted: bool = False, output_mode: str = "") -> Flow:
        queue = Queue.filled(client, tmp, 2 * ROWS_PER_PARTITION)
        return Flow(
            connect,
            queue,
            query,
            is_sorted,
            query.create_target(client, f"{tmp}/target", is_sorted=is_sorted),
            cluster.proxy_urls[0],
            str(tmp_path / "checkpoint"),
            output_mode or query.output_mode,
        )

    return make


@pytest.fixture
def bare(tmp_path):
    """The interpreter of an environment with Spark's client, and nothing else.

    A client may be older than the server, and some versions of Spark have none in the registry.
    """
    venv.create(tmp_path / "client", with_pip=True)
    python = tmp_path / "client" / "bin" / "python"
    wanted = f"pyspark-client<={pyspark.__version__}"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", wanted], check=True)
    return python


def test_client_without_the_package_streams_writes_a_job_and_reads(
    connect, client, cluster, tmp, tmp_path, bare
):
    """The format is on the server."""
    queue = Queue.filled(client, tmp, rows=100, partitions=2)
    target = create_table(client, f"{tmp}/target", columns(QUEUE_TYPES))
    command = [bare, "-I", "-c", BARE, connect.address, cluster.proxy_urls[0]]
    done = subprocess.run(
        [*command, queue.path, target, str(tmp_path / "checkpoint")],
        # The client of Spark 4.2.0 ends at once without it; any folder serves.
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.split() == ["200"]
    found = Counter(row["id"] for row in client.select_rows(f"id from [{target}]"))
    assert found == Counter({row["id"]: 2 for part in queue.rows for row in part})


@pytest.mark.parametrize("way", ["format", "function"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_exact_over_a_replay(flow, mode, way):
    """With rows that carry their source, which idempotent mode needs there."""
    _assert_exact_over_a_replay(flow(), way, mode=mode, numbered=True)


def test_complete_result_is_replaced_by_the_format(flow):
    """Spark tells a writer the output mode."""
    complete = flow(AGGREGATION, is_sorted=True, output_mode="complete")
    _assert_exact_over_a_replay(complete, "format", write="replace")


@pytest.mark.skipif(SPARK < (4, 3), reason="Spark Connect of 4.2 takes a name, and logs none")
@pytest.mark.parametrize("way", ["format", "function"])
def test_source_with_a_name_is_exact_over_a_replay(flow, way):
    """Spark then logs offsets in version 2, by that name."""
    named = flow()
    named.settings["spark.sql.streaming.queryEvolution.enableSourceEvolution"] = "true"
    named.source_name = "orders"
    _assert_exact_over_a_replay(named, way)
    logged = Path(named.checkpoint, "offsets", "0").read_text().splitlines()
    assert (logged[0], logged[2].partition(":")[0]) == ("v2", "orders")


def test_stateful_query_is_exact_over_a_replay(flow):
    """With the sink, which evaluates the replay for its state."""
    _assert_exact_over_a_replay(flow(AGGREGATION, is_sorted=True), "function")


def test_tasks_claim_their_partitions_where_no_plan_is_seen(flow):
    """They write into the transaction of the process that runs the function."""
    by_tasks = flow()
    _assert_exact_over_a_replay(by_tasks, "function", sent_by="tasks")
    client, ledger = by_tasks.queue.client, f"{by_tasks.target}_ledger"
    assert [row["sent_by"] for row in client.select_rows(f"sent_by from [{ledger}]")] == ["tasks"]
    assert list(client.select_rows(f"* from [{ledger}_claims]"))


@pytest.mark.parametrize(
    ("way", "output_mode", "options", "message", "kind"),
    [
        ("function", "update", {"checkpoint_location": None}, "has no JVM to ask", "ConfigError"),
        ("function", "complete", {"write": "replace"}, "(Spark Connect)", "ConfigError"),
        ("function", "append", {"mode": "idempotent"}, "rows are shuffled", "ConfigError"),
        ("format", "update", {}, "does not support Update mode", ""),
        ("format", "append", {"dyn_batch_sise": "5"}, "Did you mean", "ConfigError"),
    ],
    ids=["no checkpoint", "replace", "unnumbered", "update", "unknown option"],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    flow, way, output_mode, options, message, kind
):
    """The error says what is missing, and what `exactly_once_error` reads from it is typed."""
    query, is_sorted = (STATELESS, False) if output_mode == "append" else (AGGREGATION, True)
    refused = flow(query, is_sorted=is_sorted, output_mode=output_mode)
    error, found = refused.run(way, **options)
    assert message in error
    assert found == kind, error
    assert query.found(refused.queue.client, refused.target) == []
    assert ledger_entries(refused.queue.client, f"{refused.target}_ledger") == []
    assert refused.queue.stored() == {}


def _assert_exact_over_a_replay(flow: Flow, way: str, **options: Any) -> None:
    """Run it, let Spark forget the last batch, add rows, and run it again."""
    for _ in range(2):
        assert flow.run(way, **options) == ("", "")
        flow.assert_exact()
        forget_last_batch(Path(flow.checkpoint))
        for partition in range(len(flow.queue.rows)):
            flow.queue.append(ROWS_PER_PARTITION, partition)
