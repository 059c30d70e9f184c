"""Fault rules over RPC: the same rules as over HTTP, with what they mean on the bus."""

import time

import pytest
import yt.wrapper as yt

from tests.rpc_client import RawRpc, RpcError, message, request_parts
from tests.rpc_client import driver as cpp_client


@pytest.fixture
def cluster(faulty):
    return faulty


@pytest.fixture
def rpc(cluster):
    with RawRpc(cluster.rpc_addresses[0]) as client:
        yield client


def setting(path):
    return request_parts("SetNode", message("TReqSetNode", path=path, value=b"1"))


@pytest.mark.parametrize(("action", "written"), [("lose_answer", True), ("lose_request", False)])
def test_lost_request_or_answer_is_a_reset(cluster, client, rpc, tmp, action, written):
    """The client cannot tell them apart; every request of the connection is lost with it."""
    cluster.inject(action, "set")
    rpc.send(setting(f"{tmp}/x"))
    assert rpc.receive() is None
    assert bool(client.exists(f"{tmp}/x")) is written


def test_driver_repeats_after_a_lost_answer_and_nothing_is_done_twice(cluster, client, tmp):
    """The kept answer has the id that the first request made."""
    cluster.inject("lose_answer", "create")
    node_id = cpp_client(cluster).create("map_node", f"{tmp}/x")
    assert client.get(f"{tmp}/x/@id") == node_id
    assert cluster.faults()[0]["hits"] == 1


def test_held_request_lands_after_its_client_has_gone(cluster, client, rpc, tmp):
    """The connection is reset at once."""
    cluster.inject("hold", "set", seconds=1.0)
    rpc.send(setting(f"{tmp}/x"))
    assert rpc.receive() is None
    assert not client.exists(f"{tmp}/x")
    while not client.exists(f"{tmp}/x"):
        time.sleep(0.05)


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


@pytest.mark.parametrize(("action", "code"), [("error", 1700), ("unavailable", 105)])
def test_provoked_error_has_its_code_and_text(cluster, rpc, tmp, action, code):
    """And is not executed."""
    cluster.inject(action, "set", code=code, message="as told")
    rpc.send(setting(f"{tmp}/x"))
    with pytest.raises(RpcError, match="as told") as caught:
        rpc.answer()
    assert caught.value.codes == {code}
    assert not cluster.client().exists(f"{tmp}/x")


@pytest.mark.parametrize("action", ["error", "expire_transaction"])
def test_transaction_is_lost_by_the_fault(cluster, rpc, action):
    """A commit that failed has no second try, and a lease may run out before it."""
    start = message("TReqStartTransaction", type=1, sticky=True)
    given = rpc.call("StartTransaction", start).id
    cluster.inject(action, "commit_transaction", code=1)
    for expected in (11000 if action == "expire_transaction" else 1, 11000):
        request = message("TReqCommitTransaction", transaction_id=(given.first, given.second))
        with pytest.raises(RpcError) as caught:
            rpc.call("CommitTransaction", request)
        assert expected in caught.value.codes


@pytest.mark.parametrize(("when", "written"), [("before", False), ("after", True)])
def test_killed_proxy_has_or_has_not_executed(cluster, rpc, tmp, when, written):
    """Both of its ports are closed, and open again after a restart at the same addresses."""
    addresses = cluster.rpc_addresses
    cluster.inject("kill_proxy", "set", when=when)
    rpc.send(setting(f"{tmp}/x"))
    assert rpc.receive() is None
    assert bool(cluster.client(1).exists(f"{tmp}/x")) is written
    while cluster.is_alive(0):
        time.sleep(0.01)
    cluster.restart_proxy(0)
    assert cluster.rpc_addresses == addresses
    with RawRpc(addresses[0]) as again:
        assert again.call("ExistsNode", message("TReqExistsNode", path=tmp)).exists


def test_driver_finds_the_proxies_that_are_left(cluster, tmp):
    """It asks an HTTP proxy for them; a dead one is not listed."""
    cluster.client(1).set(f"{tmp}/x", 5)
    cluster.kill_proxy(0)
    quiet = {"rules": [], "writers": {}}
    survivor = cpp_client(cluster, 1, driver_logging_config=quiet)
    assert survivor.get(f"{tmp}/x") == 5


def test_lost_commit_answer_leaves_the_commit_done(cluster, client, tmp):
    """The driver reports a failed transport, and does not commit again by itself."""
    schema = [{"name": "n", "type": "int64"}]
    client.create("table", f"{tmp}/q", attributes={"dynamic": True, "schema": schema})
    client.mount_table(f"{tmp}/q", sync=True)
    driver = cpp_client(cluster, proxy={"retries": {"enable": False}})
    transaction = driver.Transaction(type="tablet")
    transaction.__enter__()
    driver.insert_rows(f"{tmp}/q", [{"n": 1}])
    cluster.inject("lose_answer", "commit_transaction")
    with pytest.raises(yt.YtError):
        transaction.__exit__(None, None, None)
    assert client.get(f"{tmp}/q/@row_count") == 1


def test_held_commit_lands_although_its_client_aborts(cluster, client, tmp):
    """The C++ client aborts what it could not commit; a commit that has begun is not stopped by that."""
    schema = [{"name": "n", "type": "int64"}]
    client.create("table", f"{tmp}/q", attributes={"dynamic": True, "schema": schema})
    client.mount_table(f"{tmp}/q", sync=True)
    driver = cpp_client(cluster, proxy={"retries": {"enable": False}})
    cluster.inject("hold", "commit_transaction", seconds=1.0)
    with pytest.raises(yt.YtError), driver.Transaction(type="tablet"):
        driver.insert_rows(f"{tmp}/q", [{"n": 1}])
    assert client.get(f"{tmp}/q/@row_count") == 0
    while not client.get(f"{tmp}/q/@row_count"):
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


def test_match_sees_the_parameters_of_the_command(cluster, rpc, tmp):
    """Named as over HTTP, whatever the message calls them."""
    cluster.inject("error", "set", match={"path": f"{tmp}/b"}, code=500)
    rpc.send(setting(f"{tmp}/a"))
    rpc.answer()
    rpc.send(setting(f"{tmp}/b"))
    with pytest.raises(RpcError):
        rpc.answer()
