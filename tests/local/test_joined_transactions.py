"""A transaction that another process writes into: at the same proxy, and only while it is open."""

import pickle
import threading
from datetime import timedelta
from threading import Event

import pytest

from tests.contract.tables import create
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import TransactionLostError
from yt_exactly_once.ytsaurus.client import Connection

ROW = Payload(1, b"{number=7;};")


@pytest.fixture
def table(client, tmp):
    schema = [{"name": "number", "type": "int64"}]
    return create(client, f"{tmp}/t", schema)


def rows(client, table):
    return [row["number"] for row in client.select_rows(f"number from [{table}]")]


def test_rows_of_another_process_are_visible_with_the_commit_of_the_first(cluster, client, table):
    """Of two transactions with rows the one that is aborted leaves nothing, and takes nothing more."""
    drivers = [Connection(ClusterConfig(proxy=cluster.proxy_urls[0])) for _ in range(2)]
    task = pickle.loads(pickle.dumps(drivers[0]))
    assert task.shares_transactions
    committed, aborted = (driver.begin(timedelta(seconds=30)) for driver in drivers)
    for one in (committed, aborted):
        task.joined(one.id, proxy=one.proxy).write(table, [ROW], "yson")
    assert rows(client, table) == []
    aborted.abort()
    with pytest.raises(TransactionLostError):
        task.joined(aborted.id, proxy=aborted.proxy).write(table, [ROW], "yson")
    zombie = task.joined(committed.id, proxy=committed.proxy)
    committed.commit()
    # A task that slept meanwhile, and is not heard any more.
    with pytest.raises(TransactionLostError):
        zombie.write(table, [ROW], "yson")
    assert rows(client, table) == [7]


def test_transaction_opens_while_the_look_between_two_batches_is_under_way(cluster):
    """The next batch does not wait for an answer that it does not need."""
    connection, answered = Connection(ClusterConfig(proxy=cluster.proxy_urls[0])), Event()
    look = connection.submit(lambda: answered.wait(60))
    opened = connection.begin_ahead(timedelta(seconds=30), 1, lambda _: None)
    opened.transaction().abort()
    assert not look.done()
    answered.set()
    assert look.result()


def test_connections_that_are_kept_share_their_threads(cluster):
    """Spark keeps the sink of a query that has ended. A driver that starts it again does not grow by that."""
    kept, counts = [], []
    for _ in range(8):
        kept.append(Connection(ClusterConfig(proxy=cluster.proxy_urls[0])))
        opened = kept[-1].begin_ahead(timedelta(seconds=30), 2, lambda _: None)
        opened.transaction().side_by_side([lambda one: one.ping()] * 2)
        opened.read()
        opened.transaction().abort()
        kept[-1].submit(int).result()
        counts.append(sum(thread.name.startswith("yt-") for thread in threading.enumerate()))
    assert counts[-1] < 2 * counts[0], counts
