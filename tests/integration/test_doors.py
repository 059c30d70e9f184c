"""The doors besides Python with a registration: Spark finds the format by itself, whatever calls it."""

from __future__ import annotations

import uuid

import pytest

from tests.flows import QUEUE_TYPES, Queue, columns, create_table
from tests.tiers import first_of


@pytest.fixture
def queue(client, tmp):
    """A queue of 100 rows, and its consumer."""
    return Queue.filled(client, tmp, rows=100, partitions=2)


@pytest.fixture
def unregistered(spark):
    """A new session of Spark as its JVM has it: nobody has told it of any format."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    session = spark._jsparkSession.newSession()
    sessions.setActiveSession(session)
    yield session
    sessions.setActiveSession(spark._jsparkSession)


@pytest.fixture
def target(client, tmp):
    """An ordered table with the columns of the queue."""
    return create_table(client, f"{tmp}/copy-{uuid.uuid4()}", columns(QUEUE_TYPES))


def ids(client, path):
    """Return the ids in a table, sorted."""
    return sorted(row["id"] for row in client.select_rows(f"id from [{path}]"))


@pytest.mark.parametrize("name", first_of(["yt", "yt_exactly_once"]))
def test_format_is_there_without_python(
    unregistered, spark, cluster, client, queue, target, tmp_path, name
):
    """The calls that Scala or Java would make, with options in capitals."""
    proxy = cluster.proxy_urls[0]
    rows = (
        unregistered.readStream()
        .format(name)
        .option("PROXY", proxy)
        .option("Consumer_Path", queue.consumer)
        .load(queue.path)
    )
    query = (
        rows.writeStream()
        .format(name)
        .option("Proxy", proxy)
        .option("path", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(spark._jvm.org.apache.spark.sql.streaming.Trigger.AvailableNow())
        .start()
    )
    query.awaitTermination()
    assert ids(client, target) == sorted(row["id"] for part in queue.rows for row in part)
