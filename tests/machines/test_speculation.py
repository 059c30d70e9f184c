"""Copies of slow tasks on Spark Standalone: tasks claim their partitions, and one copy of each writes."""

import json
import subprocess
import sys

import pytest

from tests.flows import columns, create_table
from tests.machines.standalone import Standalone
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.local import LocalCluster

ROWS = 4_000
DRIVER = """
import json, sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from yt_exactly_once import TransactionalSink
master, proxy, target, folder, count = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m",
    "spark.executor.cores": "1", "spark.speculation": "true", "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "0ms",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).option("numPartitions", 2)

def slowly(batches):
    # In the first batch before its first row, in the second one after it.
    partition, waits = TaskContext.get().partitionId(), False
    for batch in batches:
        for start in range(0, batch.num_rows, 100):
            piece = batch.slice(start, 100)
            number = piece.column(0)[0].as_py() // int(count)
            flag = Path(folder, f"{number}-{partition}")
            if partition == 3 and not start:
                try:
                    flag.touch(exist_ok=False)
                    waits = True
                except FileExistsError:
                    Path(folder, f"copied-{number}").touch()
            if waits and start == 100 * number:
                time.sleep(12)
            yield piece

frame = rows.load().selectExpr("value as id").repartition(4).mapInArrow(slowly, "id long")
heard = []
listen = lambda event, fields: heard.append(fields["sent_by"]) if event == "batch.committed" else None
sink = TransactionalSink(target, proxy=proxy, sent_by="tasks", dyn_batch_size=50, listener=listen)
query = frame.writeStream.foreachBatch(lambda frame, number: number > 1 or sink(frame, number))
query = query.option("checkpointLocation", folder + "/checkpoint").start()
while len(heard) < 2 and query.isActive:
    query.awaitTermination(1)
failure = str(query.exception() or "")[:2000]
query.stop()
print(json.dumps([heard, failure]))
"""


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_one_copy_of_a_slow_task_writes(tmp_path):
    """The faster one, if no row was sent; else the one that has sent some. Rows are counted."""
    target = "//speculated"
    with LocalCluster() as cluster, Standalone(tmp_path) as machines:
        client = cluster.client()
        create_table(client, target, columns({"id": "int64?"}), tablet_count=4)
        command = [sys.executable, "-c", DRIVER, machines.url, cluster.proxy_urls[0], target]
        done = subprocess.run(
            [*command, str(tmp_path), str(ROWS)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        senders, failure = json.loads(done.stdout.splitlines()[-1])
        assert failure == ""
        found = sorted(row["id"] for row in client.select_rows(f"id from [{target}]"))
    assert found == list(range(2 * ROWS))
    # A copy was started, claimed first, and wrote.
    assert (tmp_path / "copied-0").exists()
    assert senders[0] == SentBy.TASKS
    assert set(senders) <= set(SentBy)
