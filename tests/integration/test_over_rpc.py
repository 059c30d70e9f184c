"""Sink and source over RPC, through YTsaurus's own C++ driver: the same promises as over HTTP."""

import time

import pytest

from tests.flows import STATELESS, Queue
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.config import ClusterConfig, DeliveryMode
from yt_exactly_once.errors import OffsetConflictError
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

pytestmark = pytest.mark.further

pytest.importorskip("yt_driver_rpc_bindings")

COMMIT = "commit_transaction"
EXACT = (DeliveryMode.TRANSACTIONAL, DeliveryMode.IDEMPOTENT)


@pytest.fixture
def rpc_only(cluster):
    """After the test: rows went over RPC, and none over HTTP."""
    before = cluster.request_counts()
    yield
    names = set(cluster.request_counts() - before)
    assert {name for name in names if name.startswith("/rpc/Pull")}
    assert not {name for name in names if name.startswith(("/api/v4/pull_", "/api/v4/push_"))}


@pytest.mark.usefixtures("rpc_only")
@pytest.mark.parametrize("mode", EXACT)
@pytest.mark.parametrize("fault", first_of(["lose_answer", "lose_request"]))
def test_lost_commits_and_a_replay_leave_every_row_once(stream, faults, mode, fault):
    """The driver reports a broken bus, and the ledger says what became of the commit."""
    flow = stream(STATELESS, backend="rpc", rows=3_000, options={"mode": mode})
    faults.inject(fault, COMMIT, after=1, count=2)
    told = flow.run()
    assert sum(rule["hits"] for rule in faults.faults()) == 2
    if mode is DeliveryMode.TRANSACTIONAL:
        assert told.count(Event.COMMIT_OUTCOME_UNKNOWN) == 2
    flow.assert_exact()
    flow.forget_last_batch()
    flow.queue.append(1_000, 0)
    flow.run()
    flow.assert_exact()


def test_repeated_advance_is_recognised(client, cluster, tmp):
    """The proxy wraps the conflict in an error of the same code; the offset is in the inner one."""
    queue = Queue.filled(client, tmp, 10, partitions=1)
    while not list(client.list_queue_consumer_registrations(queue_path=queue.path)):
        time.sleep(0.01)  # others learn of it a moment later
    config = ClusterConfig(proxy=cluster.proxy_urls[0], client_config={"backend": "rpc"})
    remote = RemoteQueue(Connection(config), queue.path, queue.consumer)
    for _ in range(2):
        remote.advance(0, 0, 4)
    with pytest.raises(OffsetConflictError):
        remote.advance(0, 0, 5)
