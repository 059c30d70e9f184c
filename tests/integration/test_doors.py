"""The doors besides Python with a registration: Spark finds the format by itself, whatever calls it."""

import uuid

import pytest

from tests.flows import QUEUE_TYPES, Queue, columns, create_table
from tests.integration.calls import CHAINS, ELSEWHERE, READS, WRITES, is_there
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once import status


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


def all_ids(queue):
    """Return the ids in a queue, sorted."""
    return sorted(row["id"] for part in queue.rows for row in part)


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
    assert ids(client, target) == all_ids(queue)


@pytest.mark.parametrize("way", ["function", "format"])
def test_name_of_a_query_is_in_its_ledger_and_its_log(stream, way):
    """People know a query by its name; the id is for commands."""
    flow = stream(rows=100)
    heard = flow.run() if way == "function" else flow.write()
    (found,) = status(flow.target, query=flow.name, connection=flow.connection)
    assert found.name == flow.name
    if heard:
        assert {fields["name"] for _, fields in heard.events} == {flow.name}


@pytest.mark.nightly
def test_sql_reads_a_view(unregistered, cluster, queue):
    """A temporary view has options; `yt.` in front of a path is not for formats in Python."""
    options = f"path '{queue.path}', proxy '{cluster.proxy_urls[0]}'"
    unregistered.sql(f"CREATE TEMPORARY VIEW orders USING yt OPTIONS ({options})")
    row = unregistered.sql("SELECT count(*), sum(id) FROM orders WHERE id >= 10").head()
    wanted = [number for number in all_ids(queue) if number >= 10]
    assert (row.getLong(0), row.getLong(1)) == (len(wanted), sum(wanted))


@pytest.fixture
def opened(spark, cluster):
    """A reader of streams."""
    return spark.readStream.format("yt").option("proxy", cluster.proxy_urls[0])


@pytest.fixture
def writer(opened, cluster, queue, tmp_path):
    return (
        opened.load(queue.path)
        .writeStream.format("yt")
        .option("proxy", cluster.proxy_urls[0])
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_calls_before_the_start_keep_the_rows_exact(writer, client, queue, target, chain):
    """Every call that works, together with others, under each trigger."""
    query = chain.start(writer, target)
    try:
        if chain.ends:
            assert query.awaitTermination(280)
        else:
            query.processAllAvailable()
    finally:
        query.stop()
    assert ids(client, target) == all_ids(queue)


@pytest.mark.nightly
@pytest.mark.parametrize("refusal", WRITES, ids=lambda refusal: refusal.name)
def test_calls_of_the_writer_that_cannot_work_are_refused(writer, client, target, refusal):
    """By Spark or by us, before anything is written."""
    if not is_there(writer, refusal.call):
        pytest.skip("This version of Spark has no such call.")
    with pytest.raises(Exception, match=refusal.message):
        finish(refusal.run(writer.trigger(availableNow=True), target))
    assert ids(client, target) == []


@pytest.mark.nightly
@pytest.mark.parametrize("refusal", READS, ids=lambda refusal: refusal.name)
def test_calls_of_the_reader_that_cannot_work_are_refused(opened, queue, refusal):
    """Before the query starts, or with its first plan."""
    if not is_there(opened, refusal.call):
        pytest.skip("This version of Spark has no such call.")
    with pytest.raises(Exception, match=refusal.message):
        finish(
            refusal.run(opened, queue.path)
            .writeStream.format("noop")
            .trigger(availableNow=True)
            .start()
        )


@pytest.mark.nightly
@pytest.mark.parametrize("name", ELSEWHERE)
def test_functions_take_the_place_of_the_format(writer, client, target, name, tmp_path):
    """Spark's own words: the last of `format`, `foreach` and `foreachBatch` counts."""
    seen = tmp_path / "seen"

    def take(*_):
        seen.touch()

    finish(getattr(writer, name)(take).trigger(availableNow=True).start(target))
    assert seen.exists()
    assert ids(client, target) == []
