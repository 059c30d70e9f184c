"""Changes in a random order, some late and some repeated, under drivers that are killed: as if in order."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from yt.wrapper import YtClient

from tests.flows import columns, create_table
from tests.tiers import NIGHTLY
from yt_exactly_once import Event
from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.nightly

CHANGES, KEYS = (1_000_000, 50_000) if NIGHTLY else (20_000, 1_000)
PARTITIONS = 4
SHUFFLED, LATE, REPEATED, DELETES = 0.02, 0.05, 0.03, 0.1
"""How far a change moves, as a share of all of them; shares of those that are late, repeated or delete."""

DEATHS = [
    (Event.BATCH_COMPUTED, 1),
    (Event.ROWS_WRITTEN, 3),
    (Event.TRANSACTION_COMMITTED, 5),
    None,
]
"""After which event of which batch a driver is killed: before the rows, before and after the commit."""

PROGRAM = """
import os, signal, sys
from pyspark.sql import SparkSession
from yt_exactly_once import Changes, Target, TransactionalSink, register_source

proxy, folder, checkpoint, event, batch, size = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

def die(name, fields):
    if name == event and fields["batch"] == int(batch):
        os.kill(os.getpid(), signal.SIGKILL)

register_source(spark)
options = {"proxy": proxy, "consumer_path": f"{folder}/consumer", "max_rows_per_partition": size}
rows = spark.readStream.format("yt").options(**options).load(f"{folder}/queue")
changes = Changes(sequence="lsn", operation="op")
sink = TransactionalSink(Target(f"{folder}/target", changes=changes), proxy=proxy, listener=die)
query = (
    rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
"""


def generated() -> tuple[list[dict[str, object]], dict[int, tuple[int, str]]]:
    """Return changes as they arrive, and the table after all of them, applied one by one in their order."""
    draw = random.Random(51)
    table: dict[int, tuple[int, str]] = {}
    arriving = []
    for lsn in range(CHANGES):
        key, deletes = draw.randrange(KEYS), draw.random() < DELETES
        row = {"key": key, "lsn": lsn, "value": None if deletes else f"value {lsn}"}
        if deletes:
            table.pop(key, None)
        else:
            table[key] = lsn, f"value {lsn}"
        change = {**row, "op": "d" if deletes else "u", "$tablet_index": draw.randrange(PARTITIONS)}
        late = draw.random() * CHANGES if draw.random() < LATE else 0
        arriving.append((lsn + draw.random() * SHUFFLED * CHANGES + late, change))
        if draw.random() < REPEATED:
            again = {**change, "$tablet_index": draw.randrange(PARTITIONS)}
            arriving.append((lsn + draw.random() * CHANGES, again))
    arriving.sort(key=lambda one: one[0])
    return [change for _, change in arriving], table


def make_tables(client: YtClient, folder: str) -> None:
    schema = columns({"key": "int64", "lsn": "int64", "value": "utf8?"}, ["key"])
    create_table(client, f"{folder}/target", schema)
    types = {"key": "int64", "lsn": "int64", "value": "utf8?", "op": "utf8"}
    create_table(client, f"{folder}/queue", columns(types), tablet_count=PARTITIONS)
    client.create("queue_consumer", f"{folder}/consumer")
    client.mount_table(f"{folder}/consumer", sync=True)
    client.register_queue_consumer(f"{folder}/queue", f"{folder}/consumer", vital=True)


@pytest.mark.timeout(1800)
def test_changes_out_of_order_leave_what_their_order_says(tmp_path: Path) -> None:
    changes, table = generated()
    with LocalCluster() as cluster:
        client, folder = cluster.client(), "//home/changes"
        make_tables(client, folder)
        for start in range(0, len(changes), 50_000):
            client.insert_rows(f"{folder}/queue", changes[start : start + 50_000])
        size = str(len(changes) // PARTITIONS // 10)
        for death in DEATHS:
            event, batch = death or ("", -1)
            checkpoint = str(tmp_path / "checkpoint")
            given = [cluster.proxy_urls[0], folder, checkpoint, str(event), str(batch), size]
            ended = subprocess.run(
                [sys.executable, "-c", PROGRAM, *given], env=os.environ, check=False
            )
            assert ended.returncode == (-9 if death else 0), death
        found = client.select_rows(
            f"key, lsn, value from [{folder}/target] limit 1000000", input_row_limit=10**7
        )
        assert {row["key"]: (row["lsn"], row["value"]) for row in found} == table
