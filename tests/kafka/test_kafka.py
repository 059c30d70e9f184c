"""Rows of a real Kafka broker get into tables exactly once."""

import json
import random
from io import BytesIO

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessages

from tests.code_blocks import blocks
from tests.flows import create_table
from tests.kafka.conftest import SCHEMA
from yt_exactly_once import Event

fastavro = pytest.importorskip("fastavro")

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.further, pytest.mark.timeout(1800)]

PAGE = "docs/how-to/from-kafka.md"
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
    exact_after(world, DEATHS)


@pytest.mark.nightly
@pytest.mark.timeout(5_400)
def test_hundred_killed_drivers_and_ten_killed_brokers_lose_and_double_no_row(world):
    """At random points; the broker dies under every tenth driver."""
    exact_after(world, random.choices(DEATHS, k=100), kill_broker_every=10)


def exact_after(world, deaths, *, kill_broker_every=None):
    """Let drivers die, each in the second batch of its life, and compare all targets with the topic."""
    world.create_topic()
    slow = {"maxOffsetsPerTrigger": "20"}
    queries = {
        "transactional": world.query("transactional", read=slow),
        "idempotent": world.query("idempotent", "idempotent", read=slow, options=POSITION),
        "at-least-once": world.query("at-least-once", "at-least-once", read=slow),
    }
    for number, (mode, point) in enumerate(deaths):
        world.send((f"{number}-{row}", f"value {row}") for row in range(ROWS))
        if kill_broker_every and number % kill_broker_every == 0:
            world.broker.kill_later(random.uniform(2, 10))
        dying = {**queries, mode: queries[mode].dying(point)}
        assert world.live(*dying.values()) is None, (mode, point)
    assert set(world.live(*queries.values()).values()) == {""}
    sent = world.sent()
    assert sent.total() == ROWS * len(deaths)
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
    # As many tasks as before may not help: the partitions may come in another order from Spark's log.
    assert "NotOneToOneError" in errors[by_position.target]


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


def test_status_shows_what_is_left_of_a_topic(world):
    """As of the last batch: of the newest commit after a kill, and of the end."""
    world.create_topic()
    query = world.query("slow", read={"maxOffsetsPerTrigger": "20"})
    world.send((f"{row}", "x") for row in range(ROWS))
    assert world.live(query.dying(Event.BATCH_STARTED)) is None
    dead = world.status(query)
    assert dead.topic_lag == ROWS - sum(one.end for one in dead.topics) >= ROWS - 21
    assert world.live(query)[query.target] == ""
    done = world.status(query)
    assert (done.topic_lag, done.problems) == (0, [])
    assert sum(one.end for one in done.topics) == ROWS
    assert {(one.topic, one.partition) for one in done.topics} == {
        (world.topic, 0),
        (world.topic, 1),
    }


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
    *_, code, _avro, _protobuf, _options = (block.code for block in blocks(PAGE))
    world.run_page(code, tmp_path)
    found = world.client.select_rows("customer, amount from [//home/shop/from_kafka]")
    assert sorted((int(row["customer"]), row["amount"]) for row in found) == [
        (row, row) for row in range(ROWS)
    ]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_lines_of_the_page_decode_values_and_set_others_aside(world, tmp_path, kind):
    """The writers are libraries of others."""
    world.create_topic(1)
    write = {"avro": as_avro, "protobuf": as_protobuf}[kind]
    world.send([(f"{row}", write(f"customer {row}", row)) for row in range(ROWS)])
    world.send([("bad", b"\xff\xff"), ("gone", None)])
    decoded = [{"name": "customer", "type": "string"}, {"name": "amount", "type": "int64"}]
    undecoded = [SCHEMA[1], SCHEMA[2], {"name": "value", "type": "string"}]
    for name, schema in {"decoded": decoded, "undecoded": undecoded}.items():
        world.client.remove(f"//home/shop/{name}", force=True)
        create_table(world.client, f"//home/shop/{name}", schema)
    *_, avro, protobuf, _options = (block.code for block in blocks(PAGE))
    if kind == "protobuf":
        (tmp_path / "orders_pb2.py").write_text(f"{GENERATED.format(FILE.SerializeToString())}")
        avro = avro.replace("sink = ", f"{protobuf}\nsink = ")
    world.run_page(avro, tmp_path, path=str(tmp_path))
    found = world.client.select_rows("customer, amount from [//home/shop/decoded]")
    assert sorted((row["amount"], row["customer"]) for row in found) == [
        (row, f"customer {row}") for row in range(ROWS)
    ]
    aside = list(world.client.select_rows("* from [//home/shop/undecoded]"))
    assert [row["offset"] for row in aside] == [ROWS, ROWS + 1]
    assert [row["value"] for row in aside][1] is None


def as_avro(customer, amount):
    _, _, after = blocks(PAGE)[-3].code.partition('ORDER = """')
    file = BytesIO()
    fastavro.schemaless_writer(
        file,
        fastavro.parse_schema(json.loads(after.partition('"""')[0])),
        {"customer": customer, "amount": amount},
    )
    return file.getvalue()


def as_protobuf(customer, amount):
    order = GetMessages([FILE])["Order"]
    return order(customer=customer, amount=amount).SerializeToString()


FILE = FileDescriptorProto(name="orders.proto", syntax="proto3")
_ORDER = FILE.message_type.add(name="Order")
for _number, (_name, _type) in enumerate(
    {"customer": "TYPE_STRING", "amount": "TYPE_INT64"}.items(), 1
):
    _ORDER.field.add(
        name=_name,
        number=_number,
        type=getattr(FieldDescriptorProto, _type),
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
GENERATED = """
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessages
Order = GetMessages([FileDescriptorProto.FromString({!r})])["Order"]
"""
"""As `protoc` makes a module."""
