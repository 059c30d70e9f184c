"""Sink and source over RPC, through YTsaurus's own C++ driver: the same promises as over HTTP."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.flows import AGGREGATION, STATELESS, Queue
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.config import ClusterConfig, WriteMode
from yt_exactly_once.errors import OffsetConflictError
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

pytestmark = pytest.mark.further

pytest.importorskip("yt_driver_rpc_bindings")

COMMIT = "commit_transaction"
EXACT = (WriteMode.TRANSACTIONAL, WriteMode.IDEMPOTENT)


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
    if mode is WriteMode.TRANSACTIONAL:
        assert told.count(Event.COMMIT_OUTCOME_UNKNOWN) == 2
    flow.assert_exact()
    flow.forget_last_batch()
    flow.queue.append(1_000, 0)
    flow.run()
    flow.assert_exact()


@pytest.mark.nightly
@pytest.mark.usefixtures("rpc_only")
def test_rows_arrive_at_least_once_without_the_sinks_protection(stream):
    """The weakest mode, without faults: every row, and a replayed batch twice."""
    flow = stream(STATELESS, backend="rpc", rows=1_000, options={"mode": WriteMode.AT_LEAST_ONCE})
    flow.run()
    once = Counter(flow.found())
    assert flow.wrong() == ""
    flow.forget_last_batch()
    flow.run()
    assert once <= Counter(flow.found())


@pytest.mark.nightly
@pytest.mark.usefixtures("rpc_only")
def test_aggregation_into_a_sorted_table_is_exact_over_a_lossy_network(stream, faults):
    """Any request may lose its answer, or its connection before it is executed."""
    flow = stream(AGGREGATION, backend="rpc", rows=2_000, is_sorted=True)
    for action in ("lose_answer", "lose_request"):
        faults.inject(action, probability=0.03, seed=5, count=None)
    flow.run()
    assert any(rule["hits"] for rule in faults.faults())
    faults.clear_faults()
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
