"""Changes in a random order, some late and some repeated, under drivers that are killed: as if in order."""

import random
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from yt.wrapper import YtClient

from tests.flows import columns, create_table, read_queue
from tests.tiers import NIGHTLY
from yt_exactly_once import Changes, Event, Target, TransactionalSink, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.attacks import Attack, Manner
from yt_exactly_once.testing.life import Life
from yt_exactly_once.testing.steps import Kind, Step
from yt_exactly_once.testing.trial import Trial, pickled

pytestmark = pytest.mark.nightly

CHANGES, KEYS = (1_000_000, 50_000) if NIGHTLY else (20_000, 1_000)
PARTITIONS = 4
SHUFFLED, LATE, REPEATED, DELETES = 0.02, 0.05, 0.03, 0.1
"""How far a change moves, as a share of all of them; shares of those that are late, repeated or delete."""

DEATHS = [(Event.BATCH_COMPUTED, 1), (Event.ROWS_WRITTEN, 3), (Event.TRANSACTION_COMMITTED, 5)]
"""At which event of which batch a driver is killed: before the rows, before and after the commit."""


def carry(proxy: str, folder: str, size: int, spark: SparkSession, trial: Trial) -> StreamingQuery:
    """A job."""
    register_source(spark)
    limit = {"max_rows_per_partition": size, "include_service_columns": "false"}
    rows = read_queue(spark, proxy, f"{folder}/queue", f"{folder}/consumer", **limit)
    target = Target(f"{folder}/target", changes=Changes(sequence="lsn", operation="op"))
    writer = rows.writeStream.foreachBatch(TransactionalSink(target, proxy=proxy))
    return writer.option("checkpointLocation", trial.checkpoint).start()


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
        size = len(changes) // PARTITIONS // 10
        trial, job = Trial("changes", tmp_path), tmp_path / "job"
        job.write_bytes(pickled(partial(carry, cluster.proxy_urls[0], folder, size)))
        for event, batch in DEATHS:
            attack = Attack(Manner.KILL, Step(Kind.EVENT, event))
            with Life(tmp_path, {}) as life:
                assert life.run(trial, job, batch=batch, attack=attack), life.errors
        with Life(tmp_path, {}) as life:
            life.run(trial, job, batch=-1)
        assert life.errors == {trial.name: ""}
        found = client.select_rows(
            f"key, lsn, value from [{folder}/target] limit 1000000", input_row_limit=10**7
        )
        assert {row["key"]: (row["lsn"], row["value"]) for row in found} == table
