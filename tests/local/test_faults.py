"""Faults on request: each does what it says, as often as it is told, on every proxy."""

import re
import threading
import time

import pytest
import yt.wrapper as yt

from tests.contract.tables import columns, create
from tests.rpc_client import RawRpc, RpcError, driver, message
from yt_exactly_once.local import LocalClusterError


@pytest.fixture
def cluster(faulty):
    return faulty


@pytest.fixture
def patient(cluster):
    """A client that does not retry, so that a fault is seen."""
    return cluster.client(proxy={"retries": {"enable": False}})


@pytest.fixture(params=["http", "rpc"])
def put(request, cluster, patient):
    """Set a node by one request, over each front."""
    if request.param == "http":
        yield patient.set
        return
    with RawRpc(cluster.rpc_addresses[0]) as rpc:
        yield lambda path, _: rpc.call("SetNode", message("TReqSetNode", path=path, value=b"1"))


def _failure(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each test looks at it
        call(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(("action", "written"), [("lose_answer", True), ("lose_request", False)])
def test_lost_request_or_answer_is_a_reset(cluster, client, put, tmp, action, written):
    """The client cannot tell them apart; the cluster can. Over RPC all of the connection is lost."""
    cluster.inject(action, "set")
    assert re.search("reset|has closed the connection", str(_failure(put, f"{tmp}/x", 1)))
    assert bool(client.exists(f"{tmp}/x")) is written


def test_unavailable_proxy_says_when_to_come_back(cluster, raw, tmp):
    """503 with Retry-After and a retriable code; nothing is executed."""
    cluster.inject("unavailable", "set", match={"path": f"{tmp}/x"})
    answer = raw.command("PUT", "set", {"path": f"{tmp}/x"}, b"1")
    assert answer.status == 503
    assert answer.headers["retry-after"] == "60"
    assert answer.error["code"] == 105
    assert not raw.command("GET", "exists", {"path": f"{tmp}/x"}).json()["value"]


@pytest.mark.parametrize("action", ["error", "unavailable", "late_error"])
def test_error_has_the_wanted_code_and_text(cluster, client, put, tmp, action):
    """Any error of a real cluster can be provoked, where a parameter matches; a late one has executed."""
    cluster.inject(action, "set", code=901, message="Access denied", match={"path": f"{tmp}/x"})
    put(f"{tmp}/y", 1)
    error = _failure(put, f"{tmp}/x", 1)
    assert error.codes == {901} if isinstance(error, RpcError) else error.contains_code(901)
    assert "Access denied" in str(error)
    assert bool(client.exists(f"{tmp}/x")) is (action == "late_error")


@pytest.mark.parametrize("kind", ["master", "tablet"])
@pytest.mark.parametrize("action", ["error", "expire_transaction"])
def test_transaction_is_lost_by_the_fault(cluster, patient, action, kind):
    """A commit that failed has no second try, and a lease runs out exactly when the test wants it."""
    cluster.inject(action, "commit_transaction", code=1700)
    transaction_id = patient.start_transaction(type=kind, timeout=600_000)
    for code in (1700 if action == "error" else 11000, 11000):
        assert _failure(patient.commit_transaction, transaction_id).contains_code(code)


@pytest.mark.parametrize("backend", ["http", "rpc"])
@pytest.mark.parametrize("any_table", [False, True])
def test_rule_waits_for_a_transaction_that_has_written(cluster, tmp, backend, any_table):
    """Clients commit transactions that they only read in too, and batches without rows."""
    names = ("aside", "target")
    tables = [create(cluster.client(), f"{tmp}/{name}", columns(n="int64")) for name in names]
    cluster.inject("error", "commit_transaction", writes_to="*" if any_table else tables[1])
    # Over HTTP rows would go to any proxy, and a transaction lives in one.
    pinned = {"proxy": {"enable_proxy_discovery": False, "retries": {"enable": False}}}
    client = driver(cluster) if backend == "rpc" else cluster.client(**pinned)
    outcomes = []
    for written in ([], tables[:1], tables):
        try:
            with client.Transaction(type="tablet"):
                list(client.select_rows(f"* from [{tables[0]}]"))
                for table in written:
                    client.insert_rows(table, [{"n": 1}])
            outcomes.append("ok")
        except yt.YtError:
            outcomes.append("error")
    assert outcomes == (["ok", "error", "ok"] if any_table else ["ok", "ok", "error"])
    assert cluster.faults()[0]["seen"] == (2 if any_table else 1)


def test_delayed_command_lets_others_pass(cluster, patient, tmp):
    """A slow command holds nobody up."""
    cluster.inject("delay", "set", seconds=1.0, match={"path": f"{tmp}/slow"})
    slow = threading.Thread(target=patient.set, args=(f"{tmp}/slow", 1))
    slow.start()
    other = cluster.client()
    while not cluster.faults()[0]["hits"]:
        pass
    other.set(f"{tmp}/fast", 1)
    assert not other.exists(f"{tmp}/slow")
    slow.join()
    assert other.get(f"{tmp}/slow") == 1


def test_held_command_lands_after_its_client_has_gone(cluster, client, put, tmp):
    """This is the late commit that nobody waits for any more."""
    cluster.inject("hold", "set", seconds=1.0)
    _failure(put, f"{tmp}/x", 1)
    assert not client.exists(f"{tmp}/x")
    while not client.exists(f"{tmp}/x"):
        pass


@pytest.mark.parametrize(("when", "written"), [("before", False), ("after", True)])
def test_killed_proxy_has_or_has_not_executed(cluster, put, tmp, when, written):
    """The process ends without a word; what it acknowledged or wrote is in the store.

    A new one has the same addresses.
    """
    addresses = cluster.rpc_addresses
    cluster.inject("kill_proxy", "set", when=when)
    _failure(put, f"{tmp}/x", 1)
    assert bool(cluster.client(1).exists(f"{tmp}/x")) is written
    # Its connections are closed a moment before its process is gone.
    while cluster.is_alive(0):
        time.sleep(0.01)
    assert cluster.faults()[0]["hits"] == 1
    dead = cluster.proxy_pids[0]
    cluster.restart_proxy(0)
    assert cluster.proxy_pids[0] != dead
    assert cluster.rpc_addresses == addresses
    with RawRpc(addresses[0]) as again:
        assert again.call("ExistsNode", message("TReqExistsNode", path=tmp)).exists


def test_rule_counts_and_skips(cluster, patient, tmp):
    """`after` lets requests pass, `count` ends the rule."""
    cluster.inject("error", "set", after=1, count=2)
    assert attempts(patient, tmp, 5) == ".xx.."
    (rule,) = cluster.faults()
    assert (rule["seen"], rule["hits"]) == (5, 2)


def test_chance_is_repeatable(cluster, patient, tmp):
    """The same seed hits the same requests."""
    patterns = []
    for _ in range(2):
        cluster.inject("error", "set", probability=0.5, seed=11, count=None)
        patterns.append(attempts(patient, tmp, 20))
        cluster.clear_faults()
    assert patterns[0] == patterns[1]
    assert {".", "x"} == set(patterns[0])


def test_request_meets_one_end_only(cluster, patient, tmp):
    """A rule behind the one that ended the request did nothing, and does not count a hit."""
    cluster.inject("delay", "set", count=None)
    cluster.inject("error", "set", count=None)
    cluster.inject("lose_answer", "set", count=None)
    _failure(patient.set, f"{tmp}/x", 1)
    assert [(rule["seen"], rule["hits"]) for rule in cluster.faults()] == [(1, 1), (1, 1), (1, 0)]


def test_only_requests_of_a_transaction_can_lose_it(cluster, patient, tmp):
    """A lease that nobody has cannot expire."""
    cluster.inject("expire_transaction", "set", count=None)
    patient.set(f"{tmp}/x", 1)
    assert cluster.faults()[0]["seen"] == 0


@pytest.mark.parametrize("is_of_one", [False, True])
def test_rule_is_shared_by_all_proxies_or_holds_for_one(cluster, tmp, is_of_one):
    """One rule hits once, whichever proxy meets it; or there is a bad proxy among good ones."""
    address = cluster.proxy_urls[1].removeprefix("http://")
    cluster.inject("error", "set", **({"proxy": address, "count": None} if is_of_one else {}))
    good, bad = (cluster.client(index, proxy={"retries": {"enable": False}}) for index in (0, 1))
    if is_of_one:
        good.set(f"{tmp}/x", 1)
    _failure(bad.set, f"{tmp}/x", 2)
    good.set(f"{tmp}/x", 3)
    assert cluster.faults()[0]["hits"] == 1


def test_rules_survive_a_restart(cluster):
    """They are part of the cluster's state."""
    cluster.inject("delay", "set", seconds=0.25, count=None)
    cluster.restart_proxy(0)
    (rule,) = cluster.faults()
    assert (rule["action"], rule["seconds"]) == ("delay", 0.25)
    cluster.clear_faults()
    assert cluster.faults() == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"action": "explode"},
        {"action": "error", "nonsense": 1},
        {"action": "error", "probability": 2},
        {"action": "error", "count": 0},
        {"action": "delay", "seconds": -1},
        {"action": "kill_proxy", "when": "maybe"},
    ],
)
def test_impossible_rule_is_refused(cluster, attributes):
    """A typo must not become a test that tests nothing."""
    with pytest.raises(LocalClusterError):
        cluster.inject(**attributes)
    assert cluster.faults() == []


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"5", b"[5]", b'[{"command": "get"}]'])
def test_malformed_rules_get_an_envelope(raw, body):
    """The page answers like a command."""
    answer = raw("POST", "/local/faults", {}, body)
    assert answer.status == 400
    assert answer.error


def attempts(client, path, count):
    """Return which of several changes went through."""
    pattern = ""
    for number in range(count):
        try:
            client.set(f"{path}/{number}", 1)
            pattern += "."
        except Exception:  # noqa: BLE001 - any failure counts
            pattern += "x"
    return pattern


def test_recorded_plan_hits_the_same_requests_again(cluster, patient, tmp):
    """What chance did once can be done on purpose."""
    cluster.inject("error", "set", probability=0.3, seed=4, count=None)
    cluster.inject("lose_answer", "set", probability=0.2, seed=5, count=None)
    patient.get(f"{tmp}/@id")
    first = attempts(patient, tmp, 20)
    plan = cluster.fault_plan()
    assert len(plan) == sum(rule["hits"] for rule in cluster.faults()) >= first.count("x") > 2
    assert {rule["action"] for rule in plan} == {"error", "lose_answer"}
    cluster.clear_faults()
    assert cluster.fault_plan() == []
    cluster.inject_plan(plan)
    assert attempts(patient, tmp, 20) == first
    assert cluster.fault_plan() == plan


def test_plan_keeps_what_a_rule_was_told(cluster, patient, tmp):
    """Code, text and condition are part of what was injected."""
    rule = {"action": "error", "command": "set", "code": 901, "match": {"path": f"{tmp}/0"}}
    cluster.inject(**rule, probability=1.0, count=None)
    assert attempts(patient, tmp, 3) == "x.."
    assert cluster.fault_plan() == [{**rule, "after": 0}]


def test_every_hit_is_logged(cluster, patient, tmp):
    """Whoever looks for the reason of a failure finds it in the log of the proxy."""
    cluster.inject("error", "set", after=1)
    assert attempts(patient, tmp, 3) == ".x."
    logs = "".join(path.read_text() for path in cluster.data_dir.glob("proxy-*.log"))
    assert f"Fault {cluster.faults()[0]['id']}: error of set, request 1" in logs


def test_unknown_admin_page_is_not_found(raw):
    """There is nothing else under the admin path."""
    for method, path in (("GET", "/local/trim"), ("GET", "/local/x"), ("PUT", "/local/faults")):
        answer = raw(method, path)
        assert (answer.status, answer.json()["code"]) == (404, 1)
