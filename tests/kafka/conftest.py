"""A real broker, an embedded cluster, and drivers that carry rows from the one to the other."""

import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_fixtures import HazardousCluster
from tests.flows import create_table
from tests.kafka.broker import Broker
from tests.kafka.query import Query
from tests.maven import give_up, jars_of
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.operations.query_status import QueryStatus
from yt_exactly_once.operations.status import status
from yt_exactly_once.testing.attacks import Attack, Manner
from yt_exactly_once.testing.life import Life
from yt_exactly_once.testing.steps import Kind, Step
from yt_exactly_once.testing.trial import Trial
from yt_exactly_once.ytsaurus.client import Connection

try:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
except ImportError:
    AdminClient = None

_POM = Path(__file__).parent / "pom.xml"

SCHEMA = [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int64"},
    {"name": "offset", "type": "int64"},
    {"name": "key", "type": "string"},
    {"name": "value", "type": "string"},
]


class World:
    """A topic, tables for its rows, and lives of drivers."""

    def __init__(self, broker: Broker, cluster: Any, jars: Path, folder: Path) -> None:
        self.broker, self.cluster = broker, cluster
        self.client = cluster.client()
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        listed = ",".join(map(str, sorted(jars.glob("*.jar"))))
        self.submit = f"--jars {listed} pyspark-shell"
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": broker.address})

    def create_topic(self, partitions: int = 2, **config: str) -> None:
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        topic = NewTopic(self.topic, partitions, 1, config=dotted)
        _wait_for(self._admin.create_topics([topic]))

    def add_partitions(self, count: int) -> None:
        _wait_for(self._admin.create_partitions([NewPartitions(self.topic, count)]))

    def delete_before(self, offset: int) -> None:
        """Let the broker forget rows of partition 0, as retention does."""
        _wait_for(self._admin.delete_records([TopicPartition(self.topic, 0, offset)]))

    def send(self, rows: Iterable[tuple[str, str | bytes | None]], **config: Any) -> None:
        """Write keys and values; with a `transactional.id` nothing of it is committed."""
        producer = Producer({"bootstrap.servers": self.broker.address, **config})
        if "transactional.id" in config:
            producer.init_transactions()
            producer.begin_transaction()
        for key, value in rows:
            producer.produce(self.topic, key=key, value=value)
        assert producer.flush(30) == 0
        if "transactional.id" in config:
            producer.abort_transaction()

    def query(self, name: str, mode: str = "transactional", **more: Any) -> Query:
        """Return a query over the topic, with a table for its rows."""
        target = f"//home/kafka/{self.topic}/{name}"
        if not self.client.exists(target):
            create_table(self.client, target, SCHEMA, tablet_count=2)
        given = {"kafka.bootstrap.servers": self.broker.address, "subscribe": self.topic}
        where = {"trial": Trial(name, self._folder / name), "proxy": self.cluster.proxy_urls[0]}
        read = given | more.pop("read", {})
        return Query(target=target, mode=mode, read=read, **where, **more)

    def live(self, *queries: Query) -> Mapping[str, str] | None:
        """Run queries until all that was sent is read; return their errors, or `None` after a kill."""
        dying = [query for query in queries if query.die_at]
        with Life(self._folder, {}) as life:
            for query in dying:
                attack = Attack(Manner.KILL, Step(Kind.EVENT, query.die_at))
                arrived = life.run(query.trial, query.job, batch=query.second_batch, attack=attack)
                assert arrived, life.errors
            for query in queries:
                if query not in dying:
                    life.start(query.trial, query.job)
            if dying:
                # The driver dies in the midst of the others, if there are any.
                life.wait(lambda: len(life.running) < max(2, len(queries)))
                return None
            life.wait(lambda: not life.running)
        return {query.target: life.errors[query.trial.name] for query in queries}

    def status(self, query: Query) -> QueryStatus:
        """Return what `status` knows of a query."""
        connection = Connection(ClusterConfig(proxy=self.cluster.proxy_urls[0]))
        (one,) = status(query.target, connection=connection)
        return one

    def run_page(self, code: str, folder: Path, path: str = "") -> None:
        """Run lines of the documentation with this topic, in a process of its own."""
        for shown, real in {
            "broker:9092": self.broker.address,
            "127.0.0.1:9092": self.broker.address,
            '"checkpoint"': f'"{folder}/checkpoint"',
            '"orders"': f'"{self.topic}"',
            "/data": str(folder),
        }.items():
            code = code.replace(shown, real)
        environment = {
            "YT_PROXY": self.cluster.proxy_urls[0],
            "PYSPARK_SUBMIT_ARGS": self.submit,
            "PYTHONPATH": path,
        }
        subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=True)

    def found(self, query: Query) -> Counter[tuple[int, int, str, str | None]]:
        """Return what a target has: partition, offset, key and value of each row."""
        rows = self.client.select_rows(f"* from [{query.target}]")
        return Counter((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)

    def sent(self, **config: Any) -> Counter[tuple[int, int, str, str | None]]:
        """Return what the topic has, as another client reads it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": uuid.uuid4().hex,
                "enable.partition.eof": True,
                **config,
            }
        )
        partitions = consumer.list_topics(self.topic).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, one, OFFSET_BEGINNING) for one in partitions])
        found: Counter[tuple[int, int, str, str | None]] = Counter()
        left = len(partitions)
        while left:
            message = consumer.poll(30)
            assert message is not None, "the broker is silent"
            if message.error() is not None:
                left -= 1
                continue
            value = message.value()
            text = None if value is None else value.decode()
            found[message.partition(), message.offset(), message.key().decode(), text] += 1
        consumer.close()
        return found


def _wait_for(answers: Mapping[Any, Any]) -> None:
    for answer in answers.values():
        answer.result()


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    if AdminClient is None:
        give_up("KAFKA", "confluent-kafka is not installed")
    folder = tmp_path_factory.mktemp("broker")
    with Broker(jars_of(_POM, "broker", "KAFKA"), folder) as running:
        yield running


@pytest.fixture(scope="session")
def connector():
    return jars_of(_POM, "connector", "KAFKA")


@pytest.fixture(scope="session")
def cluster():
    with HazardousCluster() as running:
        yield running


@pytest.fixture
def world(broker, cluster, connector, tmp_path, monkeypatch):
    made = World(broker, cluster, connector, tmp_path)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", made.submit)
    return made
