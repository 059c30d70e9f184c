"""Fault rules over RPC, as far as they mean something else on the bus; test_faults.py has the others."""

import time
from datetime import timedelta

import pytest
import yt.wrapper as yt

from tests.contract.tables import create
from tests.rpc_client import RpcError, message, request_parts
from tests.rpc_client import driver as cpp_client
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import CommitOutcomeUnknownError, ConflictError
from yt_exactly_once.ytsaurus.client import Connection


@pytest.fixture
def cluster(faulty):
    return faulty


@pytest.fixture
def queue(client, tmp):
    return create(client, f"{tmp}/q", [{"name": "n", "type": "int64"}])


def setting(path):
    return request_parts("SetNode", message("TReqSetNode", path=path, value=b"1"))


def test_driver_repeats_after_a_lost_answer_and_nothing_is_done_twice(cluster, client, tmp):
    """The kept answer has the id that the first request made."""
    cluster.inject("lose_answer", "create")
    node_id = cpp_client(cluster).create("map_node", f"{tmp}/x")
    assert client.get(f"{tmp}/x/@id") == node_id
    assert cluster.faults()[0]["hits"] == 1


def test_repetition_may_be_marked_in_the_header(rpc, tmp):
    """The Java client marks it there, and nowhere else."""
    request = message("TReqCreateNode", path=f"{tmp}/x", type=303)
    request.mutating_options.mutation_id.first = request.mutating_options.mutation_id.second = 53
    first = rpc.call("CreateNode", request)
    assert rpc.call("CreateNode", request, retry=True) == first
    with pytest.raises(RpcError, match="not marked as"):
        rpc.call("CreateNode", request)


def test_delayed_request_lets_others_of_its_connection_pass(cluster, rpc, tmp):
    """Answers come in the order in which they are ready."""
    cluster.inject("delay", "set", seconds=1.0)
    slow, fast = (
        setting(f"{tmp}/x"),
        request_parts("ExistsNode", message("TReqExistsNode", path=tmp)),
    )
    rpc.send(slow)
    rpc.send(fast)
    rpc.answer()
    assert not cluster.client().exists(f"{tmp}/x")
    rpc.answer()
    assert cluster.client().exists(f"{tmp}/x")


def test_driver_finds_the_proxies_that_are_left(cluster, tmp):
    """It asks an HTTP proxy for them; a dead one is not listed."""
    cluster.client(1).set(f"{tmp}/x", 5)
    cluster.kill_proxy(0)
    quiet = {"rules": [], "writers": {}}
    survivor = cpp_client(cluster, 1, driver_logging_config=quiet)
    assert survivor.get(f"{tmp}/x") == 5


def test_lost_commit_answer_leaves_the_commit_done(cluster, client, queue):
    """The driver reports a failed transport, and does not commit again by itself."""
    driver = cpp_client(cluster, proxy={"retries": {"enable": False}})
    transaction = driver.Transaction(type="tablet")
    transaction.__enter__()
    driver.insert_rows(queue, [{"n": 1}])
    cluster.inject("lose_answer", "commit_transaction")
    with pytest.raises(yt.YtError):
        transaction.__exit__(None, None, None)
    assert client.get(f"{queue}/@row_count") == 1


@pytest.mark.parametrize("backend", ["http", "rpc"])
def test_commit_that_was_applied_may_be_answered_with_an_error(cluster, client, tmp, backend):
    """Only a code that proves the contrary is believed, whichever protocol brings it.

    `proofs.PROOFS` names the function of each, below `yt/yt`.
    """
    table = create(client, f"{tmp}/t", [{"name": "n", "type": "int64"}])
    connection = Connection(
        ClusterConfig(proxy=cluster.proxy_urls[0], client_config={"backend": backend})
    )
    for code, error in ((98_765, CommitOutcomeUnknownError), (1700, ConflictError)):
        cluster.inject("late_error", "commit_transaction", code=code)
        transaction = connection.begin(timedelta(seconds=30))
        transaction.insert(table, [{"n": code}])
        with pytest.raises(error):
            transaction.commit()
    assert client.get(f"{table}/@row_count") == 2


def test_held_commit_lands_although_its_client_aborts(cluster, client, queue):
    """The C++ client aborts what it could not commit; a commit that has begun is not stopped by that."""
    driver = cpp_client(cluster, proxy={"retries": {"enable": False}})
    cluster.inject("hold", "commit_transaction", seconds=1.0)
    with pytest.raises(yt.YtError), driver.Transaction(type="tablet"):
        driver.insert_rows(queue, [{"n": 1}])
    assert client.get(f"{queue}/@row_count") == 0
    while not client.get(f"{queue}/@row_count"):
        time.sleep(0.05)
    assert cluster.request_counts()["/rpc/AbortTransaction"]


@pytest.mark.parametrize("action", ["lose_answer", "lose_request", "error"])
def test_faults_of_streams_leave_no_half_of_a_table(cluster, client, tmp, action):
    """The driver writes in a transaction of its own, which a failure ends."""
    once = {"enable": False}
    # A ping that fails after the transaction has ended would interrupt the process of the tests.
    retries = {"proxy": {"retries": once}, "write_retries": once, "read_retries": once}
    driver = cpp_client(cluster, **retries, ping_failed_mode="pass")
    client.create("table", f"{tmp}/t")
    cluster.inject(action, "write_table", code=1)
    with pytest.raises(yt.YtError):
        driver.write_table(f"{tmp}/t", [{"n": number} for number in range(1000)])
    assert client.get(f"{tmp}/t/@row_count") == 0
    client.write_table(f"{tmp}/t", [{"n": number} for number in range(1000)])
    cluster.inject("lose_answer", "read_table")
    with pytest.raises(yt.YtError):
        list(driver.read_table(f"{tmp}/t"))
