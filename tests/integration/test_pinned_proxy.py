"""One proxy per transaction, chosen from `/hosts`, and another one when it dies."""

import socket
from contextlib import contextmanager

import pytest

from tests.cluster_fixtures import served
from tests.flows import columns, create_table
from tests.integration.streams import QUICK, Heard
from tests.tiers import first_of
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA, CommitLedger
from yt_exactly_once.commit.parts import TargetRows, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import emitter
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_table

GROUPS = 3


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(proxies=3) as running:
        yield running


@pytest.fixture
def client(cluster):
    yield cluster.client()
    cluster.clear_faults()
    for index in range(len(cluster.proxy_urls)):
        if not cluster.is_alive(index):
            cluster.restart_proxy(index)


class Sender:
    """Commits batches over one connection, each of a row for each of three tablets."""

    def __init__(self, client, folder, connection, policy=QUICK):
        self.connection, self.policy, self.heard = connection, policy, Heard()
        self._client, self._path, self._ledger = client, f"{folder}/target", f"{folder}/ledger"
        create_table(client, self._path, columns({"batch": "int64"}), tablet_count=GROUPS)
        ensure_table(
            Connection(ClusterConfig(proxy=client.config["proxy"]["url"])),
            self._ledger,
            LEDGER_SCHEMA,
            {},
        )

    def send(self, number=0):
        row = b'{"$tablet_index"=%d;batch=%d};'
        groups = [[Payload(1, row % (group, number))] for group in range(GROUPS)]
        commit = BatchCommit(
            CommitLedger(self._ledger, "query", [self._path]),
            MicroBatch("query", number, "run"),
            self.connection,
            policy=self.policy,
            emit=emitter(self.heard),
            connections=GROUPS,
            advance_consumer=False,
        )
        rows = TargetRows(self._path, groups, "yson", GROUPS, group_is_tablet=True)
        return commit.commit(whole([rows]))

    def sent(self):
        """Return how many rows there are of each batch."""
        rows = [row["batch"] for row in self._client.select_rows(f"batch from [{self._path}]")]
        return {batch: rows.count(batch) for batch in rows}


def pinned_elsewhere(cluster):
    """Return a connection whose pinned proxy is not the one that it asks for `/hosts`."""
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    while connection.pinned().url == cluster.proxy_urls[0]:
        connection.unpin()
    return connection


@pytest.mark.parametrize(
    ("command", "when", "attempts"),
    first_of(
        [
            ("commit_transaction", "after", 1),
            ("insert_rows", "before", 2),
            ("commit_transaction", "before", 2),
            ("start_transaction", "before", 2),
        ],
        count=2,
    ),
)
def test_proxy_that_dies_is_left_for_another(cluster, client, tmp, command, when, attempts):
    """Its transaction is lost with it, and a commit that it still carried out is found."""
    sender = Sender(client, tmp, pinned_elsewhere(cluster))
    dying = sender.connection.pinned().url
    cluster.inject("kill_proxy", command, when=when, proxy=dying.removeprefix("http://"))
    assert sender.send().attempts == attempts
    assert sender.sent() == {0: GROUPS}
    assert [cluster.is_alive(index) for index in range(3)].count(False) == 1
    assert sender.connection.pinned().url != dying
    assert sender.send(1).attempts == 1


@contextmanager
def listing(*hosts):
    """Serve `/hosts` with these addresses and itself, a banned proxy, and answer nothing else."""
    listed = list(hosts)
    banned = {"code": 2100, "message": "Banned"}
    with served(lambda path: (200, listed) if path.startswith("/hosts") else (503, banned)) as own:
        listed.append(own)
        yield own


def dead_address():
    """Return an address on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_dead_and_banned_proxies_in_the_list_are_tried_once(cluster, client, tmp):
    """Each costs an attempt at most; then the living one is kept."""
    living = cluster.proxy_urls[1].removeprefix("http://")
    with listing(dead_address(), living) as address:
        sender = Sender(client, tmp, Connection(ClusterConfig(proxy=address)))
        attempts = [sender.send(number).attempts for number in range(5)]
    assert attempts[0] <= 3
    assert attempts[1:] == [1] * 4
    assert sender.connection.pinned().url.endswith(living)
    assert sender.sent() == dict.fromkeys(range(5), GROUPS)
