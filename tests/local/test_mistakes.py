"""The mistakes of a first hour, without Spark: each is told at once, and the first line says what to do.

`python -m tests.local.test_mistakes` prints the table with the seconds that each took on this machine.
"""

import os
import re
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest
from pyspark import SparkContext
from pyspark.sql.types import LongType, StringType, StructType

from tests.cluster_fixtures import served
from tests.contract.tables import create
from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.source.opening import OpenedQueue

FRAME_SCHEMA = StructType().add("k", LongType(), nullable=False).add("v", StringType())
FRAME = SimpleNamespace(columns=FRAME_SCHEMA.names, schema=FRAME_SCHEMA)

KEY = {"name": "k", "type": "int64", "sort_order": "ascending", "required": True}
TEXT = {"name": "v", "type": "utf8"}


def check(proxy, path="//home/right", **options):
    TransactionalSink(path, proxy=proxy, **options).check(FRAME)


def load(proxy, **options):
    OpenedQueue.open({"path": "//home/queue", "proxy": proxy, **options})


def without_java(proxy):
    found = {"PATH": "/nonexistent", "JAVA_HOME": ""}
    with mock.patch.dict(os.environ, found), mock.patch.object(SparkContext, "_gateway", None):
        check(proxy)


MISTAKES = {
    "no Java on the machine": (lambda proxy, _: without_java(proxy),
        r"JavaNotFoundError: No Java runtime was found\. Install Java 17 or newer"),
    "misspelt mode": (lambda proxy, _: check(proxy, mode="transactionl"),
        r"ConfigError: Unknown mode 'transactionl' \[option=mode\]\. Did you mean transactional\?"),
    "misspelt argument of the sink": (lambda proxy, _: check(proxy, conections=1),
        r"ConfigError: The sink has no option conections .*Did you mean connections\?"),
    "option of the target given to the sink": (lambda proxy, _: check(proxy, write="replace"),
        r"ConfigError: The sink has no option write: it is one of the target"),
    "misspelt option of the source": (lambda proxy, _: load(proxy, max_row_per_partition="5"),
        r"ConfigError: The source yt has no option max_row_per_partition .*Did you mean max_rows_per_p"),
    "a path that is none": (lambda proxy, _: check(proxy, "home/right"),
        r"ConfigError: path is 'home/right', not a Cypress path"),
    "a server that is no proxy": (lambda _, other: check(other),
        r"ProxyNotFoundError: The server at this address is no proxy .*proxy=http://127"),
    "the same for the source": (lambda _, other: load(other),
        r"ProxyNotFoundError: The server at this address is no proxy .*proxy=http://127"),
    "https for a proxy of plain HTTP": (lambda proxy, _: check(proxy.replace("http:", "https:")),
        r"ProxyNotFoundError: The proxy .* speaks plain HTTP.*proxy=https://.*Use http://127"),
    "the same for a queue": (lambda proxy, _: load(proxy.replace("http:", "https:")),
        r"ProxyNotFoundError: The proxy .* speaks plain HTTP.*proxy=https://.*Use http://127"),
    "a port that nobody listens at": (lambda *_: check("127.0.0.1:1"),
        r"ClusterUnavailableError: The proxy does not answer \(Connection refused\) \[proxy=http://127"),
    "no target": (lambda proxy, _: check(proxy, "//home/none"),
        r"TableNotFoundError: There is no such table .*Or, .*create_table\('//home/none', df\.schema"),
    "a static target": (lambda proxy, _: check(proxy, "//home/static"),
        r"TableNotDynamicError: The table is static.*yt alter-table //home/static --dynamic"),
    "an unmounted target": (lambda proxy, _: check(proxy, "//home/unmounted"),
        r"TableNotMountedError: The table is unmounted.*yt mount-table //home/unmounted --sync"),
    "a column of another type": (lambda proxy, _: check(proxy, "//home/other"),
        r"SchemaMismatchError: The DataFrame does not fit the table in one place \[target=//home/other\]"),
    "append to a sorted target": (lambda proxy, _: check(proxy, Target("//home/right", write="append")),
        r"ConfigError: write='append' is for ordered targets, this one is sorted"),
    "no queue": (lambda proxy, _: load(proxy, path="//home/none"),
        r"TableNotFoundError: There is no such table \[path=//home/none\]"),
    "a sorted queue": (lambda proxy, _: load(proxy, path="//home/right"),
        r"NotAQueueError: The table is sorted, but a queue is an ordered dynamic table"),
    "no consumer": (lambda proxy, _: load(proxy, consumer_path="//home/none"),
        r"ConsumerNotFoundError: There is no such consumer .*create-consumer //home/none //home/queue"),
    "a consumer that is not registered": (lambda proxy, _: load(proxy, consumer_path="//home/consumer"),
        r"ConsumerNotRegisteredError: .*yt register-queue-consumer //home/queue //home/consumer --vital"),
}  # fmt: skip
"""What somebody does, given the address of a proxy and of another server; and the first line."""


def furnish(client):
    """Create what the mistakes are made with."""
    tables = {
        "right": [KEY, TEXT],
        "other": [KEY, {"name": "v", "type": "double"}],
        "queue": [TEXT],
        "unmounted": [KEY, TEXT],
    }
    for name, schema in tables.items():
        create(client, f"//home/{name}", schema, mount=name != "unmounted")
    client.create("table", "//home/static", attributes={"schema": [TEXT]})
    client.create("queue_consumer", "//home/consumer")


@contextmanager
def stage():
    """Yield the addresses of a proxy and of another server."""
    with LocalCluster() as cluster, served(lambda _: (404, None)) as other:
        furnish(cluster.client())
        yield cluster.proxy_urls[0], other


@pytest.fixture(scope="module")
def addresses():
    with stage() as found:
        yield found


def first_line(error):
    return f"{type(error).__name__}: {error}".splitlines()[0]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told_in_the_first_line(addresses, monkeypatch, mistake):
    """Class, what, where, and what to do."""
    monkeypatch.setattr("yt_exactly_once.ytsaurus.queues._PAUSE_SECONDS", 0.01)
    make, line = MISTAKES[mistake]
    with pytest.raises(ExactlyOnceError) as caught:
        make(*addresses)
    assert re.match(line, first_line(caught.value)), first_line(caught.value)


def main():
    """Print mistake, seconds and first line as a table of Markdown."""
    with stage() as addresses:
        for mistake, (make, _) in MISTAKES.items():
            began = time.monotonic()
            try:
                make(*addresses)
            except ExactlyOnceError as error:
                seconds = time.monotonic() - began
                sys.stdout.write(f"| {mistake} | {seconds:.1f} | `{first_line(error)}` |\n")


if __name__ == "__main__":
    main()
