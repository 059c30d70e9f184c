"""The source `yt` in real queries against the embedded cluster: what arrives, once, in order.

`tests/unit/test_source_reader.py` and `test_source_range.py` show how it plans and reads.
"""

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from structlog.testing import capture_logs

from tests.flows import QUEUE_TYPES, Queue
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.registration import register_source
from yt_exactly_once.spark.tuning import start
from yt_exactly_once.spark.tuning.warm_up import warm_up


@pytest.fixture
def queue(client, tmp):
    return Queue.create(client, tmp, partitions=1)


def append(queue, count, partition=0):
    """Write rows that all can see then; return their ids."""
    first = len(queue.rows[partition])
    queue.append(count, partition)
    queue.client.get_tablet_infos(queue.path, [partition])
    return [row["id"] for row in queue.rows[partition][first:]]


@pytest.fixture
def read(spark, cluster):
    """Open a queue as a stream; keyword arguments are options."""
    register_source(spark)

    def open_stream(queue, **options):
        given = {"proxy": cluster.proxy_urls[0], "consumer_path": queue.consumer} | options
        return spark.readStream.format("yt").options(**given).load(queue.path)

    return open_stream


@dataclass
class Batches:
    """What a query gave out: rows per batch number, as often as the batch was run."""

    seen: list[tuple[int, list[Any]]] = field(default_factory=list)

    def __call__(self, frame, batch_id):
        self.seen.append((batch_id, frame.collect()))

    @property
    def rows(self):
        return [row for _, rows in self.seen for row in rows]

    @property
    def ids(self):
        return [row.id for row in self.rows]


def run(frame, checkpoint, batches=None):
    """Run a query over what is there now, until it ends."""
    batches = batches or Batches()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return batches


@contextmanager
def running(frame, checkpoint):
    """Keep a query running, and stop it whatever happens."""
    batches = Batches()
    writer = frame.writeStream.foreachBatch(batches)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query, batches
    finally:
        query.stop()


def fails(error, match, call):
    """Check that a call fails with our error by name and a text; return the whole text."""
    with pytest.raises((StreamingQueryException, AnalysisException)) as caught:
        call()
    text = str(caught.value)
    assert f"yt_exactly_once.errors.{error}: " in text
    assert match in text
    return text


def test_rows_arrive_once_and_in_order_per_partition(client, tmp, read, tmp_path):
    """Every row of every partition, in the order of the queue."""
    queue = Queue.create(client, tmp)
    expected = {part: append(queue, 500 + part, part) for part in range(3)}
    rows = run(read(queue), tmp_path).rows
    for part, ids in expected.items():
        assert [row.id for row in rows if row.id % 3 == part] == ids
    assert len(rows) == sum(map(len, expected.values()))
    assert set(rows[0].asDict()) == set(QUEUE_TYPES)


def test_rows_that_arrive_later_come_in_later_batches(queue, read, tmp_path):
    """A running query sees new rows, and its consumer is at their end when it is idle."""
    with running(read(queue), tmp_path) as (query, batches):
        first = append(queue, 5)
        query.processAllAvailable()
        second = append(queue, 7)
        query.processAllAvailable()
        assert batches.ids == first + second
        assert queue.stored() == {0: 12}


def test_trimmed_rows_stop_the_query(queue, read, tmp_path):
    """The error names the rows, and nothing after them was given out."""
    append(queue, 5)
    run(read(queue), tmp_path)
    append(queue, 10)
    queue.client.trim_rows(queue.path, 0, 8)
    batches = Batches()
    text = fails("DataLossError", "Rows 5 to 7", lambda: run(read(queue), tmp_path, batches))
    assert "fail_on_data_loss" in text
    assert batches.ids == []


def test_wrong_token_is_refused_and_not_shown(spark):
    """Neither by us nor by the client whose error is the cause."""
    register_source(spark)
    wrong = "a-very-wrong-token"
    with LocalCluster(token="the-right-token") as guarded:
        reader = spark.readStream.format("yt").option("proxy", guarded.proxy_urls[0])
        text = fails(
            "AccessError", "token", lambda: reader.option("token", wrong).load("//tmp/queue")
        )
    assert wrong not in text


def planners(spark):
    """Which modules the Python processes run that plan for sources."""
    children = spark._jvm.java.lang.ProcessHandle.current().children().toArray()
    words = [word for child in children for word in child.info().commandLine().orElse("").split()]
    return sorted(word for word in words if word.startswith("pyspark.sql.worker."))


def test_query_finds_the_processes_that_were_started_ahead(spark, read, queue, monkeypatch):
    """Spark keeps them by their variables: with others, it would start more, and the query would wait."""
    monkeypatch.setattr(start, "_tuned", WeakSet())
    with capture_logs() as logs:
        warm_up(spark).join()
    assert logs == []
    started = planners(spark)
    assert {
        f"pyspark.sql.worker.{name}" for name in ("create_data_source", "plan_data_source_read")
    } <= set(started)
    read(queue)
    assert planners(spark) == started


def test_function_of_the_user_starts_as_ever(spark):
    """The format has processes with a `sitecustomize`; Spark keeps them apart by their variables."""
    assert warm_up(spark) is None, "the context is warmed up"

    def path(_rows):
        yield pa.record_batch({"path": [os.environ.get("PYTHONPATH", "")]})

    one = spark.range(1, numPartitions=1)
    with start.started_sooner(spark):
        ours = one.mapInArrow(path, "path string")
    theirs = one.mapInArrow(path, "path string")
    assert [start.INTERPRETER in job.first().path for job in (ours, theirs)] == [True, False]
