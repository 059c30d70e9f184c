"""Rows of a real Kafka broker get into tables exactly once."""

import os
import subprocess
import sys

import pytest

from tests.code_blocks import blocks
from tests.flows import create_table
from yt_exactly_once import Event

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.further, pytest.mark.timeout(900)]

POSITION = {"source_position": ["topic", "partition", "offset"]}

DEATHS = [
    ("transactional", Event.BATCH_STARTED),
    ("transactional", Event.BATCH_COMPUTED),
    ("transactional", Event.ROWS_WRITTEN),
    ("transactional", Event.LEDGER_RECORDED),
    ("transactional", Event.TRANSACTION_COMMITTED),
    ("idempotent", Event.BATCH_COMPUTED),
    ("idempotent", Event.LEDGER_RECORDED),
    ("idempotent", Event.TRANSACTION_COMMITTED),
    ("at-least-once", Event.BATCH_COMPUTED),
    ("at-least-once", Event.TRANSACTION_COMMITTED),
]
ROWS = 60


def test_ten_killed_drivers_lose_and_double_no_row(world):
    """One at each point of a batch; at-least-once may repeat."""
    world.create_topic()
    slow = {"maxOffsetsPerTrigger": "20"}
    queries = {
        "transactional": world.query("transactional", read=slow),
        "idempotent": world.query("idempotent", "idempotent", read=slow, options=POSITION),
        "at-least-once": world.query("at-least-once", "at-least-once", read=slow),
    }
    for number, (mode, point) in enumerate(DEATHS):
        world.send((f"{number}-{row}", f"value {row}") for row in range(ROWS))
        dying = {**queries, mode: queries[mode].dying(point)}
        assert world.live(*dying.values()) is None, (mode, point)
    assert set(world.live(*queries.values()).values()) == {""}
    sent = world.sent()
    assert sent.total() == ROWS * len(DEATHS)
    assert world.found(queries["transactional"]) == sent
    assert world.found(queries["idempotent"]) == sent
    assert sent - world.found(queries["at-least-once"]) == {}


def test_idempotent_replay_may_come_in_other_tasks(world):
    """The rows were pushed, and the commit was lost. By position such a replay is refused."""
    world.create_topic()
    world.send((f"{row}", "x") for row in range(ROWS))
    by_source = world.query("by-source", "idempotent", options=POSITION, attempts=1)
    by_position = world.query("by-position", "idempotent", attempts=1)
    world.cluster.inject("lose_request", "commit_transaction", count=None)
    try:
        errors = world.live(by_source, by_position)
        assert all(errors.values())
    finally:
        world.cluster.clear_faults()
    errors = world.live(by_source.in_tasks(1), by_position.in_tasks(1))
    assert errors[by_source.target] == ""
    assert world.found(by_source) == world.sent()
    assert "NotOneToOneError" in errors[by_position.target]
    assert world.live(by_position)[by_position.target] == ""
    assert world.found(by_position) == world.sent()


def test_topic_that_grows_and_has_gaps_is_read_once(world):
    """New partitions, rows of an aborted producer, tombstones, and compaction."""
    world.create_topic(
        1, cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01"
    )
    committed = {"kafka.isolation.level": "read_committed"}
    modes = {"transactional": {}, "idempotent": POSITION}
    queries = [
        world.query(mode, mode, read=committed, options=options) for mode, options in modes.items()
    ]
    world.send([("a", "1"), ("b", "2")])
    world.send([("c", "aborted"), ("d", "aborted")], **{"transactional.id": world.topic})
    world.send([("e", "3"), ("a", None)])
    assert set(world.live(*queries).values()) == {""}
    seen = world.sent(**{"isolation.level": "read_committed"})
    world.add_partitions(3)
    world.send((f"{row}", "later") for row in range(ROWS))
    assert set(world.live(*queries).values()) == {""}
    later = world.sent(**{"isolation.level": "read_committed"})
    assert {row[0] for row in later} == {0, 1, 2}
    for query in queries:
        # Compaction takes rows from the topic that were read before.
        assert world.found(query) == seen | later
        assert {value for *_, value in world.found(query)} == {"1", "2", "3", None, "later"}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_rows_that_kafka_has_deleted_are_not_passed_over_in_silence(world, fails):
    """Spark ends the query, unless it was told to go on; then the rows that are left come once."""
    world.create_topic(1)
    query = world.query("late", read={"failOnDataLoss": fails})
    world.send([("a", "1")])
    assert world.live(query)[query.target] == ""
    world.send([("b", "2"), ("c", "3")])
    world.delete_before(2)
    world.send([("d", "4")])
    error = world.live(query)[query.target]
    values = {value for *_, value in world.found(query)}
    if fails == "true":
        assert "failOnDataLoss" in error
        assert values == {"1"}
    else:
        assert error == ""
        assert values == {"1", "3", "4"}
    assert world.found(query).total() == len(values)


def test_broker_that_is_killed_costs_no_row(world):
    """The query goes on when the broker is back."""
    world.create_topic()
    query = world.query("copy", read={"maxOffsetsPerTrigger": "20"})
    world.send((f"{row}", "x") for row in range(ROWS))
    world.broker.kill()
    world.broker.start_later(3.0)
    assert world.live(query)[query.target] == ""
    assert world.found(query) == world.sent()


def test_lines_of_the_page_copy_a_topic(world, tmp_path):
    world.create_topic()
    world.send((f"{row}", str(row)) for row in range(ROWS))
    schema = [{"name": "customer", "type": "string"}, {"name": "amount", "type": "int64"}]
    create_table(world.client, "//home/shop/from_kafka", schema)
    _shell, code, _mode = (block.code for block in blocks("docs/how-to/from-kafka.md"))
    for shown, real in {
        "broker:9092": world.broker.address,
        '"orders"': f'"{world.topic}"',
        "/data": str(tmp_path),
    }.items():
        code = code.replace(shown, real)
    environment = {"YT_PROXY": world.cluster.proxy_urls[0], "PYSPARK_SUBMIT_ARGS": world.submit}
    subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=True)
    found = world.client.select_rows("customer, amount from [//home/shop/from_kafka]")
    assert sorted((int(row["customer"]), row["amount"]) for row in found) == [
        (row, row) for row in range(ROWS)
    ]
