"""How many requests a batch costs: the number that a distant cluster multiplies."""

import pytest
from py4j.clientserver import JavaClient

from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.config import DYN_BATCH_SIZE_CONF

COMMANDS_OF_PYSPARK = 6
"""What PySpark asks the JVM before it calls a function for `foreachBatch`."""


@pytest.fixture
def commands(monkeypatch):
    """Every command that Python sends to the JVM, except those that forget objects."""
    sent, send = [], JavaClient.send_command

    def note(client, command, *options, **more):
        if not command.startswith("m\n"):
            sent.append(command)
        return send(client, command, *options, **more)

    monkeypatch.setattr(JavaClient, "send_command", note)
    return sent


def test_batch_asks_the_jvm_little(stream, commands):
    """A call takes a third of a millisecond. What holds for a whole run is asked once."""
    flow = stream(rows=30, partitions=1, rows_per_partition=10)
    until = []
    flow.run(lambda event, _: event == Event.BATCH_COMMITTED and until.append(len(commands)))
    first, second, third = until
    assert max(third - second, second - first) <= COMMANDS_OF_PYSPARK + 29


@pytest.mark.parametrize("partitions", first_of([6, 1]))
def test_small_batch_takes_seven_requests_whatever_its_partitions(stream, cluster, partitions):
    """Begin, two look-ups, rows, consumer, ledger entry, commit; nothing of Cypress. And rows are read."""
    flow = stream(rows=30, partitions=partitions, rows_per_partition=10)
    before, spent = {}, {}

    def count(event, fields):
        if event == Event.BATCH_STARTED:
            before[fields["batch"]] = cluster.request_counts()
        elif event == Event.BATCH_COMMITTED:
            counts = cluster.request_counts() - before[fields["batch"]]
            commands = {path.rpartition("/")[2]: count for path, count in counts.items()}
            commands.pop("pull_queue_consumer", None)
            spent[fields["batch"]] = commands

    flow.run(count)
    flow.assert_exact()
    assert (
        spent[1]
        == spent[2]
        == {"start_transaction": 1, "lookup_rows": 2, "insert_rows": 3, "commit_transaction": 1}
    )


@pytest.mark.further
def test_rows_per_request_follow_the_spark_conf(stream, faults, spark):
    """SPYT's name for it is honoured where the argument is absent."""
    flow = stream(rows=1_000)
    faults.inject("delay", "insert_rows", match={"path": flow.target}, count=None)
    spark.conf.set(DYN_BATCH_SIZE_CONF, "100")
    try:
        flow.run()
    finally:
        spark.conf.unset(DYN_BATCH_SIZE_CONF)
    probes = 1
    assert faults.faults()[0]["hits"] == 30 + probes
    flow.assert_exact()
