"""Rows that are sent while Spark computes others of the same batch."""

import time

import pyspark.sql.functions as sf
import pytest
from pyspark import TaskContext

from yt_exactly_once import Event, TransactionalSink

ROWS = 36_000
"""Rows of a batch, in three partitions: enough in each to be sent by themselves."""


@pytest.fixture
def target(client, tmp):
    """An ordered table of three tablets."""
    path = f"{tmp}/target"
    schema = [{"name": "id", "type": "int64"}]
    client.create("table", path, attributes={"dynamic": True, "schema": schema, "tablet_count": 3})
    client.mount_table(path, sync=True)
    return path


def test_rows_of_a_task_that_has_ended_do_not_wait_for_the_others(
    spark, cluster, client, tmp, tmp_path, target
):
    """Of two tasks that have ended, the rows of the first one are there. Each row is written once.

    The first batch is sent at the end, since it may be a replay.
    """
    gate = tmp_path / "gate"

    def slow(batches):
        for batch in batches:
            is_second = batch.num_rows and batch.column(0)[0].as_py() >= ROWS
            while is_second and TaskContext.get().partitionId() == 1 and not gate.exists():
                time.sleep(0.01)
            yield batch

    told = []
    sink = TransactionalSink(
        target,
        proxy=cluster.proxy_urls[0],
        ledger_path=f"{tmp}/ledger",
        listener=lambda event, fields: told.append((event, fields)),
    )
    options = {"rowsPerBatch": ROWS, "numPartitions": 3}
    rows = spark.readStream.format("rate-micro-batch").options(**options).load()
    written = rows.select(sf.col("value").alias("id")).mapInArrow(slow, "id bigint")
    query = (
        written.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for(query, lambda: committed(told) == 1)
        before = inserts(cluster)
        wait_for(query, lambda: inserts(cluster) > before)
        gate.touch()
        wait_for(query, lambda: committed(told) >= 2)
    finally:
        gate.touch()
        query.stop()
    ahead = [fields["ahead"] for event, fields in told if event == Event.ROWS_WRITTEN]
    assert ahead[0] == 0
    assert ahead[1] >= ROWS // 3
    found = [row["id"] for row in client.select_rows(f"id from [{target}]")]
    assert len(found) >= 2 * ROWS
    assert sorted(found) == list(range(len(found)))


def wait_for(query, holds):
    while not holds():
        assert query.isActive, query.exception()
        time.sleep(0.01)


def committed(told):
    return sum(event == Event.BATCH_COMMITTED for event, _ in told)


def inserts(cluster):
    counts = cluster.request_counts()
    return sum(count for path, count in counts.items() if path.endswith("/insert_rows"))
